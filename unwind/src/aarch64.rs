//! The walk on aarch64, over the same tables.
//!
//! Return addresses are in x30 until a function saves it, and may be signed (pointer authentication):
//! a signature is stripped, not checked.

use crate::guess::is_code;
use crate::modules::Code;
use crate::rule::{Class, Kind, Packed, Rule, Saved};
use crate::stack::{Live, Stack};
use crate::{Cache, End, Modules, Unwound};
use std::ops::Range;

/// What a walk needs of the interrupted registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registers {
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, x29.
    pub fp: u64,
    /// Link register, x30.
    pub lr: u64,
}

/// User addresses take 48 bits; what lies above is a signature or a tag.
const ADDRESS: u64 = (1 << 48) - 1;

/// Where the kernel's `rt_sigframe` keeps x29, x30, sp and pc: a siginfo of 128 bytes, then a
/// `ucontext` whose machine context begins at 176 (`arch/arm64/include/uapi/asm/ucontext.h`).
const SIGNAL_FRAME: [u64; 4] = [544, 552, 560, 568];

/// As [`crate::unwind`].
///
/// # Safety
/// Memory in `stack` must be readable during the call.
pub unsafe fn unwind(
    regs: Registers,
    modules: &Modules,
    cache: &Cache,
    stack: Range<usize>,
    out: &mut [u64],
) -> Unwound {
    // SAFETY: passed on to the caller.
    let stack = unsafe { Live::new(stack) };
    unwind_with(regs, modules, cache, &stack, out)
}

/// As [`crate::unwind_with`].
pub fn unwind_with<S: Stack>(
    regs: Registers,
    modules: &Modules,
    cache: &Cache,
    stack: &S,
    out: &mut [u64],
) -> Unwound {
    let mut walk = Walk {
        modules,
        cache: cache.is_for(modules).then_some(cache),
        stack,
        last: Code::default(),
        unwound: Unwound::new(),
    };
    walk.run(Frame { regs, exact: true }, out);
    walk.unwound
}

#[derive(Clone, Copy)]
struct Frame {
    regs: Registers,
    /// `pc` is an instruction, not a return address.
    exact: bool,
}

impl Frame {
    /// The address whose rule holds: the call, not what follows it.
    fn looked_up(&self) -> u64 {
        self.regs.pc.wrapping_sub(if self.exact { 0 } else { 4 })
    }

    /// What called this frame, if that is an address and the stack shrinks.
    fn returned(self, pc: u64, sp: u64, fp: u64) -> Result<Frame, End> {
        // A function that saved nothing leaves sp as it is; only the interrupted one can be that.
        if sp < self.regs.sp || (sp == self.regs.sp && !self.exact) {
            return Err(End::BadStack);
        }
        let pc = pc & ADDRESS;
        let regs = Registers { pc, sp, fp, lr: pc };
        (pc != 0)
            .then_some(Frame { regs, exact: false })
            .ok_or(End::Root)
    }
}

struct Walk<'a, S> {
    modules: &'a Modules,
    cache: Option<&'a Cache>,
    stack: &'a S,
    /// Where the last rule was looked up.
    last: Code,
    unwound: Unwound,
}

impl<S: Stack> Walk<'_, S> {
    fn run(&mut self, mut frame: Frame, out: &mut [u64]) {
        self.unwound.end = End::Truncated;
        for slot in out {
            *slot = frame.regs.pc;
            self.unwound.frames += 1;
            match self.caller(frame) {
                Ok(caller) => frame = caller,
                Err(end) => {
                    self.unwound.end = end;
                    break;
                }
            }
        }
    }

    fn caller(&mut self, frame: Frame) -> Result<Frame, End> {
        let packed = self.packed(&frame)?;
        match packed.class() {
            Class::Plain => self.plain(frame, packed, frame.regs.sp),
            Class::PlainBp => self.plain(frame, packed, frame.regs.fp),
            Class::End => Err(End::Root),
            Class::Unsupported => Err(End::NoRule),
            Class::Signal => self.interrupted(&frame),
            Class::Gap => {
                self.unwound.guessed = self.unwound.guessed.saturating_add(1);
                self.guess(frame)
            }
            Class::Full => self.full(frame),
        }
    }

    fn packed(&mut self, frame: &Frame) -> Result<Packed, End> {
        let pc = frame.looked_up();
        // Instructions are four bytes: so 48 bits of address fit a key.
        if let Some(packed) = self.cache.and_then(|cache| cache.get(pc >> 2)) {
            return Ok(packed);
        }
        let module = self
            .modules
            .find_near(pc, &mut self.last)
            .ok_or(End::NoModule)?;
        let packed = Packed::aarch64(&module.rule_at(pc));
        if let Some(cache) = self.cache {
            cache.put(pc >> 2, packed);
        }
        Ok(packed)
    }

    fn word(&self, address: u64) -> Result<u64, End> {
        self.stack.word(address).ok_or(End::BadStack)
    }

    fn plain(&self, frame: Frame, packed: Packed, base: u64) -> Result<Frame, End> {
        let (cfa, depth) = (packed.cfa(base), packed.bp_depth());
        let saved = cfa.wrapping_sub(depth);
        let (pc, fp) = match depth {
            0 => (self.unsaved(&frame)?, frame.regs.fp),
            _ if packed.is_alone() => (self.word(saved)?, frame.regs.fp),
            _ => (self.word(saved.wrapping_add(8))?, self.word(saved)?),
        };
        frame.returned(pc, cfa, fp)
    }

    /// x30 holds the return address only where nothing was called since: in the interrupted function.
    fn unsaved(&self, frame: &Frame) -> Result<u64, End> {
        frame.exact.then_some(frame.regs.lr).ok_or(End::Root)
    }

    fn full(&mut self, frame: Frame) -> Result<Frame, End> {
        let pc = frame.looked_up();
        let module = self.modules.find(pc).ok_or(End::NoModule)?;
        self.by_rule(frame, &module.rule_at(pc))
    }

    fn by_rule(&self, frame: Frame, rule: &Rule) -> Result<Frame, End> {
        let base = match rule.kind {
            Kind::Sp => frame.regs.sp,
            Kind::Bp => frame.regs.fp,
            _ => return Err(End::NoRule),
        };
        let cfa = base.wrapping_add_signed(i64::from(rule.cfa));
        let saved = |words: i16| self.word(cfa.wrapping_add_signed(i64::from(words) * 8));
        let pc = match rule.bx_saved {
            Saved::AtCfa => saved(rule.bx)?,
            _ => self.unsaved(&frame)?,
        };
        let fp = match rule.bp_saved {
            Saved::Same => frame.regs.fp,
            Saved::AtCfa => saved(rule.bp)?,
            // Unaligned, so that no later rule can use it.
            _ => 1,
        };
        frame.returned(pc, cfa, fp)
    }

    fn interrupted(&mut self, frame: &Frame) -> Result<Frame, End> {
        let [fp, lr, sp, pc] = SIGNAL_FRAME;
        let at = |offset| self.word(frame.regs.sp.wrapping_add(offset));
        let regs = Registers {
            pc: at(pc)?,
            sp: at(sp)?,
            fp: at(fp)?,
            lr: at(lr)?,
        };
        self.unwound.add_trampoline();
        Ok(Frame { regs, exact: true })
    }

    /// No CFI: a stub that has not saved x30, or code with frame records.
    fn guess(&self, frame: Frame) -> Result<Frame, End> {
        let Registers { sp, fp, lr, .. } = frame.regs;
        let is_record = fp != 0 && fp >= sp;
        let record = is_record.then(|| (self.stack.word(fp), self.stack.word(fp.wrapping_add(8))));
        let by_record = match record {
            Some((Some(caller_fp), Some(pc))) if is_code(pc & ADDRESS, self.modules) => {
                Some((pc, fp.wrapping_add(16), caller_fp))
            }
            _ => None,
        };
        let has_cfi = || {
            let module = self.modules.find(frame.looked_up());
            module.is_some_and(|module| !module.table.is_empty())
        };
        if frame.exact && has_cfi() && is_code(lr & ADDRESS, self.modules) {
            return frame.returned(lr, sp, fp);
        }
        match by_record {
            Some((pc, sp, fp)) => frame.returned(pc, sp, fp),
            None if fp == 0 => Err(End::Root),
            None => Err(End::BadFramePointer),
        }
    }
}
