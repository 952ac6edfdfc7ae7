//! Runs call-frame instructions, following only what a rule needs: CFA, frame pointer, rbx (x86-64),
//! return address.

use super::arch::Arch;
use super::cursor::Cursor;
use super::entries::Cie;
use super::expression::{self, CfaExpression};
use crate::rule::{Kind, Rule, Saved};

/// x86-64's stack pointer, where expressions are concerned: no other architecture has those.
const RSP: u8 = 7;
const RBP: u8 = 6;
/// Deepest `remember_state` nesting; compilers emit one level.
const REMEMBERED: usize = 16;

/// How the CFA is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cfa {
    Register { register: u64, offset: i64 },
    Expression(CfaExpression),
    Unknown,
}

/// Where a register of the caller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Unspecified,
    Undefined,
    Same,
    AtCfa(i64),
    AtRegister(u8, i64),
    Unknown,
}

/// The row being built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    cfa: Cfa,
    bp: Slot,
    bx: Slot,
    ra: Slot,
}

/// Instructions of one FDE (or CIE) and the addresses they describe.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub code: Cursor<'a>,
    pub start: u64,
    pub end: u64,
}

/// Scratch space, kept between programs.
pub(crate) struct Machine {
    remembered: [State; REMEMBERED],
    depth: usize,
}

impl Machine {
    pub fn new() -> Machine {
        Machine {
            remembered: [State::START; REMEMBERED],
            depth: 0,
        }
    }

    /// Runs `program`; calls `row(address, rule)` for every change, in ascending order.
    /// On malformed instructions the rest of the function is reported as unsupported.
    pub fn run(&mut self, program: Program<'_>, cie: &Cie, mut row: impl FnMut(u64, Rule)) {
        self.depth = 0;
        let mut run = Run {
            cie,
            state: cie.initial,
            at: program.start,
            code: program.code,
        };
        let mut dirty = true;
        loop {
            match run.step(self) {
                Some(Step::Advance(to)) => {
                    if dirty && to > run.at {
                        row(run.at, run.state.rule(cie));
                        dirty = false;
                    }
                    if to < run.at || to >= program.end {
                        break;
                    }
                    run.at = to;
                }
                Some(Step::Changed) => dirty = true,
                Some(Step::Nothing) => {}
                Some(Step::End) => {
                    if dirty {
                        row(run.at, run.state.rule(cie));
                    }
                    break;
                }
                None => {
                    row(run.at, Rule::bare(Kind::Unsupported));
                    break;
                }
            }
        }
    }
}

impl<'a> Program<'a> {
    /// State after the common instructions of a CIE.
    pub fn initial_state(&self, cie: &Cie) -> Option<State> {
        let mut machine = Machine::new();
        let mut run = Run {
            cie,
            state: State::START,
            at: 0,
            code: self.code,
        };
        loop {
            match run.step(&mut machine)? {
                Step::End => return Some(run.state),
                Step::Advance(_) => return None,
                Step::Changed | Step::Nothing => {}
            }
        }
    }

    /// Size of the instructions in bytes.
    pub fn len(&self) -> usize {
        self.code.bytes.len().saturating_sub(self.code.at)
    }
}

enum Step {
    Advance(u64),
    Changed,
    Nothing,
    End,
}

struct Run<'a, 'c> {
    cie: &'c Cie,
    state: State,
    at: u64,
    code: Cursor<'a>,
}

impl Run<'_, '_> {
    #[inline]
    fn step(&mut self, machine: &mut Machine) -> Option<Step> {
        let Some(op) = self.code.u8() else {
            return Some(Step::End);
        };
        let low = u64::from(op & 0x3f);
        match op >> 6 {
            1 => Some(self.advance(low)),
            2 => {
                let offset = self.factored_unsigned()?;
                Some(self.set(low, Slot::AtCfa(offset)))
            }
            3 => Some(self.restore(low)),
            _ => self.extended(op, machine),
        }
    }

    fn extended(&mut self, op: u8, machine: &mut Machine) -> Option<Step> {
        Some(match op {
            0x00 => Step::Nothing,
            0x01 => Step::Advance(self.code.encoded(self.cie.pointer_encoding, 0)?),
            0x02 => {
                let delta = self.code.u8()?;
                self.advance(u64::from(delta))
            }
            0x03 => {
                let delta = self.code.u16()?;
                self.advance(u64::from(delta))
            }
            0x04 => {
                let delta = self.code.u32()?;
                self.advance(u64::from(delta))
            }
            0x06 => {
                let register = self.code.uleb()?;
                self.restore(register)
            }
            0x0a => machine.remember(self.state)?,
            0x0b => machine.recall(&mut self.state)?,
            0x0c..=0x0f | 0x12 | 0x13 => self.define_cfa(op)?,
            0x2e => {
                // GNU_args_size: matters to exception landing only.
                self.code.uleb()?;
                Step::Nothing
            }
            // AARCH64_negate_ra_state and its form with a PC: the walk strips signatures anyway.
            0x2c | 0x2d if self.cie.arch == Arch::Aarch64 => Step::Nothing,
            _ => self.define_register(op)?,
        })
    }

    fn advance(&self, delta: u64) -> Step {
        Step::Advance(
            self.at
                .saturating_add(delta.saturating_mul(self.cie.code_align)),
        )
    }

    fn factored_unsigned(&mut self) -> Option<i64> {
        i64::try_from(self.code.uleb()?)
            .ok()?
            .checked_mul(self.cie.data_align)
    }

    fn factored_signed(&mut self) -> Option<i64> {
        self.code.sleb()?.checked_mul(self.cie.data_align)
    }

    fn block(&mut self) -> Option<&[u8]> {
        let n = usize::try_from(self.code.uleb()?).ok()?;
        self.code.take(n)
    }

    fn define_cfa(&mut self, op: u8) -> Option<Step> {
        if op == 0x0f {
            let expression = expression::cfa(self.block()?);
            self.state.cfa = expression.map_or(Cfa::Unknown, Cfa::Expression);
            return Some(Step::Changed);
        }
        let (mut register, mut offset) = match self.state.cfa {
            Cfa::Register { register, offset } => (register, offset),
            _ => (u64::MAX, 0),
        };
        if matches!(op, 0x0c | 0x0d | 0x12) {
            register = self.code.uleb()?;
        }
        match op {
            0x0c | 0x0e => offset = i64::try_from(self.code.uleb()?).ok()?,
            0x12 | 0x13 => offset = self.factored_signed()?,
            _ => {}
        }
        self.state.cfa = Cfa::Register { register, offset };
        Some(Step::Changed)
    }

    fn define_register(&mut self, op: u8) -> Option<Step> {
        let register = self.code.uleb()?;
        let slot = match op {
            0x05 => Slot::AtCfa(self.factored_unsigned()?),
            0x07 => Slot::Undefined,
            0x08 => Slot::Same,
            0x09 => {
                self.code.uleb()?;
                Slot::Unknown
            }
            0x10 => match expression::register_slot(self.block()?) {
                Some((register, offset)) => Slot::AtRegister(register, offset),
                None => Slot::Unknown,
            },
            0x11 => Slot::AtCfa(self.factored_signed()?),
            0x14 => {
                self.code.uleb()?;
                Slot::Unknown
            }
            0x15 => {
                self.code.sleb()?;
                Slot::Unknown
            }
            0x16 => {
                self.block()?;
                Slot::Unknown
            }
            // GNU_negative_offset_extended
            0x2f => Slot::AtCfa(self.factored_unsigned()?.checked_neg()?),
            _ => return None,
        };
        Some(self.set(register, slot))
    }

    fn restore(&mut self, register: u64) -> Step {
        let initial = self.cie.initial;
        let [fp, bx, ra] = self.cie.arch.followed();
        match register {
            r if r == fp => self.set(register, initial.bp),
            r if r == bx => self.set(register, initial.bx),
            r if r == ra => self.set(register, initial.ra),
            _ => Step::Nothing,
        }
    }

    fn set(&mut self, register: u64, slot: Slot) -> Step {
        let [fp, bx, ra] = self.cie.arch.followed();
        match register {
            r if r == fp => self.state.bp = slot,
            r if r == bx => self.state.bx = slot,
            r if r == ra => self.state.ra = slot,
            _ => return Step::Nothing,
        }
        Step::Changed
    }
}

impl Machine {
    fn remember(&mut self, state: State) -> Option<Step> {
        *self.remembered.get_mut(self.depth)? = state;
        self.depth += 1;
        Some(Step::Nothing)
    }

    fn recall(&mut self, state: &mut State) -> Option<Step> {
        self.depth = self.depth.checked_sub(1)?;
        *state = self.remembered[self.depth];
        Some(Step::Changed)
    }
}

impl State {
    /// Before any instruction.
    pub const START: State = State {
        cfa: Cfa::Unknown,
        bp: Slot::Unspecified,
        bx: Slot::Unspecified,
        ra: Slot::Unspecified,
    };

    /// The rule of this state, or an unsupported one.
    pub fn rule(&self, cie: &Cie) -> Rule {
        let rule = match cie.arch {
            Arch::X86_64 => self.signal_frame().or_else(|| self.of_x86_64()),
            // The kernel's own CFI would lead past the interrupted instruction.
            Arch::Aarch64 if cie.signal => Some(Rule::bare(Kind::Signal)),
            Arch::Aarch64 => self.of_aarch64(),
        };
        rule.unwrap_or(Rule::bare(Kind::Unsupported))
    }

    /// glibc's `__restore_rt` describes the kernel's `ucontext_t` at sp: gregs begin at 40, so
    /// rsp is at 160 and rip at 168.
    fn signal_frame(&self) -> Option<Rule> {
        let cfa = CfaExpression::Deref {
            register: RSP,
            offset: 160,
            addend: 0,
        };
        let matches = self.cfa == Cfa::Expression(cfa)
            && self.ra == Slot::AtRegister(RSP, 168)
            && self.bp == Slot::AtRegister(RSP, 120);
        matches.then_some(Rule::bare(Kind::Signal))
    }

    fn of_x86_64(&self) -> Option<Rule> {
        match self.ra {
            Slot::Undefined | Slot::Unspecified => return Some(Rule::bare(Kind::End)),
            Slot::AtCfa(-8) => {}
            _ => return None,
        }
        let (kind, cfa, extra) = self.cfa_parts(Arch::X86_64)?;
        let (bp_saved, bp) = slot_parts(self.bp);
        let (bx_saved, bx) = slot_parts(self.bx);
        let cfa = i32::try_from(cfa).ok()?;
        Some(Rule {
            kind,
            bp_saved,
            bx_saved,
            extra,
            cfa,
            bp,
            bx,
        })
    }

    /// Here the place of the return address is what `bx` holds; unsaved, it is in x30.
    fn of_aarch64(&self) -> Option<Rule> {
        if self.ra == Slot::Undefined {
            return Some(Rule::bare(Kind::End));
        }
        let (kind, cfa, extra) = self.cfa_parts(Arch::Aarch64)?;
        let (bp_saved, bp) = slot_parts(self.bp);
        let (bx_saved, bx) = slot_parts(self.ra);
        let known = |saved| matches!(saved, Saved::Same | Saved::AtCfa);
        (known(bx_saved) && bp_saved != Saved::AtBp).then_some(())?;
        Some(Rule {
            kind,
            bp_saved,
            bx_saved,
            extra,
            cfa: i32::try_from(cfa).ok()?,
            bp,
            bx,
        })
    }

    fn cfa_parts(&self, arch: Arch) -> Option<(Kind, i64, i8)> {
        let [fp, bx, _] = arch.followed();
        Some(match self.cfa {
            Cfa::Register { register, offset } => match register {
                r if r == arch.stack_pointer() => (Kind::Sp, offset, 0),
                r if r == fp => (Kind::Bp, offset, 0),
                r if r == bx => (Kind::Bx, offset, 0),
                _ => return None,
            },
            Cfa::Expression(_) if arch != Arch::X86_64 => return None,
            Cfa::Expression(CfaExpression::Deref {
                register,
                offset,
                addend,
            }) => {
                let kind = match register {
                    RSP => Kind::DerefSp,
                    RBP => Kind::DerefBp,
                    _ => return None,
                };
                (kind, offset, i8::try_from(addend).ok()?)
            }
            Cfa::Expression(CfaExpression::Plt { offset, threshold }) => {
                (Kind::Plt, offset, i8::try_from(threshold).ok()?)
            }
            Cfa::Unknown => return None,
        })
    }
}

/// A slot as a rule can say it.
fn slot_parts(slot: Slot) -> (Saved, i16) {
    let in_words = |offset: i64| (offset % 8 == 0).then(|| i16::try_from(offset / 8).ok())?;
    match slot {
        Slot::Unspecified | Slot::Same => (Saved::Same, 0),
        Slot::AtCfa(offset) => in_words(offset).map_or((Saved::Lost, 0), |w| (Saved::AtCfa, w)),
        Slot::AtRegister(RBP, offset) => {
            in_words(offset).map_or((Saved::Lost, 0), |w| (Saved::AtBp, w))
        }
        _ => (Saved::Lost, 0),
    }
}
