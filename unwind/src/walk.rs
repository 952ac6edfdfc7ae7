//! The walk from the interrupted instruction to the root of the stack.

use crate::modules::Code;
use crate::rule::{Class, Kind, Packed, Rule, Saved};
use crate::stack::{Live, Stack};
use crate::{Cache, Modules, guess};
use std::ops::Range;

/// What a walk needs of the interrupted registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction pointer (`REG_RIP`).
    pub ip: u64,
    /// Stack pointer (`REG_RSP`).
    pub sp: u64,
    /// Frame pointer (`REG_RBP`).
    pub bp: u64,
    /// `rbx` (`REG_RBX`), the CFA base of glibc's lazy-binding resolver.
    pub bx: u64,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// At the thread's outermost frame: the stack is complete.
    Root,
    /// `out` is full and there are more frames.
    Truncated,
    /// The last frame lies outside every module.
    NoModule,
    /// The last frame has CFI that no rule expresses.
    NoRule,
    /// The last frame has no CFI and its frame pointer leads nowhere sensible.
    BadFramePointer,
    /// A stack word was out of bounds or unaligned, or the stack pointer did not rise.
    BadStack,
}

/// How many nested signal frames a walk remembers.
const SIGNALS: usize = 8;

/// The outcome of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// Frames written, the interrupted one included.
    pub frames: usize,
    /// Why the walk ended.
    pub end: End,
    /// Frames found by the frame-pointer guess.
    pub guessed: u16,
    /// Indices of signal trampolines in the output.
    trampolines: [u16; SIGNALS],
    signals: u8,
}

impl Unwound {
    /// `out[frame]` is the address of an instruction that was interrupted (the leaf, a signal
    /// trampoline, and the frame below it), not a return address. Of a return address subtract 1
    /// before looking up its function and line.
    pub fn is_exact(&self, frame: usize) -> bool {
        let near = |&t: &u16| frame == usize::from(t) || frame == usize::from(t) + 1;
        frame == 0
            || self.trampolines[..usize::from(self.signals)]
                .iter()
                .any(near)
    }

    pub(crate) fn new() -> Unwound {
        let trampolines = [0; SIGNALS];
        Unwound {
            frames: 0,
            end: End::BadStack,
            guessed: 0,
            trampolines,
            signals: 0,
        }
    }

    pub(crate) fn add_trampoline(&mut self) {
        if let Some(slot) = self.trampolines.get_mut(usize::from(self.signals)) {
            *slot = (self.frames - 1).min(usize::from(u16::MAX)) as u16;
            self.signals += 1;
        }
    }
}

/// Walks the stack of the current thread: `out[0]` is the interrupted instruction, then return
/// addresses, leaf first.
///
/// Async-signal-safe: no allocation, no lock, no libc, no TLS, under 1 KiB of stack.
///
/// # Safety
/// Memory in `stack` must be readable during the call. Typically from 128 bytes (the red zone)
/// below `regs.sp` to the end of the thread's stack.
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

/// [`unwind`] over any stack memory: a copy, another process, a test's model.
pub fn unwind_with<S: Stack>(
    regs: Registers,
    modules: &Modules,
    cache: &Cache,
    stack: &S,
    out: &mut [u64],
) -> Unwound {
    let cache = cache.is_for(modules).then_some(cache);
    let frame = Frame { regs, exact: true };
    let mut walk = Walk {
        modules,
        cache,
        stack,
        checkpoint: (frame, 0),
        last: Code::default(),
        unwound: Unwound::new(),
    };
    walk.run(frame, out);
    walk.unwound
}

/// One step from a frame to its caller with the full rule; for executors and tests that need the
/// caller's registers. `exact`: `regs.ip` is an instruction, not a return address.
///
/// # Errors
/// The reason why there is no caller.
pub fn step<S: Stack>(
    regs: Registers,
    exact: bool,
    modules: &Modules,
    stack: &S,
) -> Result<Registers, End> {
    let frame = Frame { regs, exact };
    let module = modules.find(frame.pc()).ok_or(End::NoModule)?;
    frame
        .caller(&module.rule_at(frame.pc()), modules, stack)
        .map(|f| f.regs)
}

#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub regs: Registers,
    pub exact: bool,
}

impl Frame {
    /// A frame that a call left.
    pub fn returned(regs: Registers) -> Frame {
        Frame { regs, exact: false }
    }

    /// The address whose rule holds: a return address may be the first byte of another function.
    #[inline(always)]
    pub fn pc(&self) -> u64 {
        self.regs.ip.wrapping_sub(u64::from(!self.exact))
    }

    /// What the cache knows this frame by: for return addresses, the address itself.
    #[inline(always)]
    fn key(&self) -> u64 {
        self.regs.ip.wrapping_add(u64::from(self.exact))
    }

    /// The caller by a whole rule, all registers restored.
    pub fn caller<S: Stack>(
        &self,
        rule: &Rule,
        modules: &Modules,
        stack: &S,
    ) -> Result<Frame, End> {
        let Registers { ip, sp, bp, bx } = self.regs;
        let at = |base: u64| base.wrapping_add_signed(i64::from(rule.cfa));
        let deref = |address: u64| {
            let word = stack.word(address).ok_or(End::BadStack)?;
            Ok(word.wrapping_add_signed(i64::from(rule.extra)))
        };
        let cfa = match rule.kind {
            Kind::Sp => at(sp),
            Kind::Bp => at(bp),
            Kind::Bx => at(bx),
            Kind::DerefSp => deref(at(sp))?,
            Kind::DerefBp => deref(at(bp))?,
            Kind::Plt => sp.wrapping_add_signed(i64::from(rule.plt_cfa(ip))),
            Kind::End => return Err(End::Root),
            Kind::Unsupported => return Err(End::NoRule),
            Kind::Signal => return self.interrupted(stack),
            Kind::FramePointer => return guess::caller(self, modules, stack),
        };
        if cfa <= sp {
            return Err(End::BadStack);
        }
        let restore = |saved, register: u64, words: i16| {
            let base = match saved {
                Saved::Same => return Ok(register),
                // Unaligned, so that no later rule can use it.
                Saved::Lost => return Ok(1),
                Saved::AtCfa => cfa,
                Saved::AtBp => bp,
            };
            stack
                .word(base.wrapping_add_signed(i64::from(words) * 8))
                .ok_or(End::BadStack)
        };
        let regs = Registers {
            ip: stack.word(cfa.wrapping_sub(8)).ok_or(End::BadStack)?,
            sp: cfa,
            bp: restore(rule.bp_saved, bp, rule.bp)?,
            bx: restore(rule.bx_saved, bx, rule.bx)?,
        };
        Frame { regs, exact: false }.unless_root()
    }

    /// Threads of some C libraries begin with a zero return address.
    pub fn unless_root(self) -> Result<Frame, End> {
        if self.regs.ip == 0 {
            Err(End::Root)
        } else {
            Ok(self)
        }
    }

    /// The frame that a signal interrupted: sp points at the kernel's `ucontext_t`, whose gregs
    /// begin at byte 40 (`arch/x86/include/uapi/asm/sigcontext.h`).
    fn interrupted<S: Stack>(&self, stack: &S) -> Result<Frame, End> {
        let greg = |offset| {
            stack
                .word(self.regs.sp.wrapping_add(offset))
                .ok_or(End::BadStack)
        };
        let regs = Registers {
            bp: greg(120)?,
            bx: greg(128)?,
            sp: greg(160)?,
            ip: greg(168)?,
        };
        Frame { regs, exact: true }.unless_root()
    }
}

struct Walk<'a, S> {
    modules: &'a Modules,
    cache: Option<&'a Cache>,
    stack: &'a S,
    /// The last frame whose rbx is known, and its index in the output.
    checkpoint: (Frame, usize),
    /// Where the last rule was looked up.
    last: Code,
    unwound: Unwound,
}

/// The caller of a return address whose plain rule is cached. Whatever is unusual is left to
/// [`Walk::slow`].
///
/// The only chain of dependent instructions is: address → slot → CFA → return address.
#[inline(always)]
fn fast<S: Stack>(cache: Option<&Cache>, stack: &S, regs: Registers) -> Option<Registers> {
    let (rule, base) = cache?.plain(regs.ip, regs.sp, regs.bp)?;
    plain(rule, base, stack, regs).ok()
}

/// CFA from `base`, sp or bp; rbp kept, or saved below the CFA.
#[inline(always)]
fn plain<S: Stack>(rule: Packed, base: u64, stack: &S, regs: Registers) -> Result<Registers, End> {
    let cfa = rule.cfa(base);
    // Where rbp is kept, the return address is read twice: no branch.
    let saved = cfa.wrapping_sub(rule.bp_depth());
    let (ip, word) = stack
        .words(cfa.wrapping_sub(8), saved)
        .ok_or(End::BadStack)?;
    if cfa <= regs.sp {
        return Err(End::BadStack);
    }
    if ip == 0 {
        return Err(End::Root);
    }
    let bp = std::hint::select_unpredictable(rule.bp_kept(), regs.bp, word);
    Ok(Registers {
        ip,
        sp: cfa,
        bp,
        bx: 0,
    })
}

impl<S: Stack> Walk<'_, S> {
    /// Writes frame after frame; [`Self::slow`] takes every step that [`fast`] does not.
    #[inline(always)]
    fn run(&mut self, frame: Frame, out: &mut [u64]) {
        self.unwound.end = End::Truncated;
        let (cache, stack) = (self.cache, self.stack);
        // Scalars, so that they stay in registers; rbx is not followed (see `recover_bx`).
        let (mut ip, mut sp, mut bp, mut exact) =
            (frame.regs.ip, frame.regs.sp, frame.regs.bp, frame.exact);
        let mut frames = 0;
        for slot in out {
            *slot = ip;
            frames += 1;
            let regs = Registers { ip, sp, bp, bx: 0 };
            if !exact && let Some(caller) = fast(cache, stack, regs) {
                (ip, sp, bp) = (caller.ip, caller.sp, caller.bp);
                continue;
            }
            self.unwound.frames = frames;
            match self.slow(Frame { regs, exact }) {
                Ok(Frame { regs, exact: e }) => {
                    (ip, sp, bp, exact) = (regs.ip, regs.sp, regs.bp, e)
                }
                Err(end) => {
                    self.unwound.end = end;
                    break;
                }
            }
        }
        self.unwound.frames = frames;
    }

    #[cold]
    #[inline(never)]
    fn slow(&mut self, frame: Frame) -> Result<Frame, End> {
        let packed = self.rule(&frame)?;
        match packed.class() {
            Class::Plain => {
                plain(packed, frame.regs.sp, self.stack, frame.regs).map(Frame::returned)
            }
            Class::PlainBp => {
                plain(packed, frame.regs.bp, self.stack, frame.regs).map(Frame::returned)
            }
            Class::End => Err(End::Root),
            Class::Unsupported => Err(End::NoRule),
            Class::Signal => self.signal(&frame),
            Class::Gap => {
                self.unwound.guessed = self.unwound.guessed.saturating_add(1);
                guess::caller(&frame, self.modules, self.stack)
            }
            Class::Full => self.full(frame),
        }
    }

    /// The packed rule of a frame, from the cache or from its module's table.
    fn rule(&mut self, frame: &Frame) -> Result<Packed, End> {
        if let Some(packed) = self.cache.and_then(|c| c.get(frame.key())) {
            return Ok(packed);
        }
        let module = self
            .modules
            .find_near(frame.pc(), &mut self.last)
            .ok_or(End::NoModule)?;
        let packed = Packed::new(&module.rule_at(frame.pc()), frame.pc());
        if let Some(cache) = self.cache {
            cache.put(frame.key(), packed);
        }
        Ok(packed)
    }

    fn signal(&mut self, frame: &Frame) -> Result<Frame, End> {
        let frame = frame.interrupted(self.stack)?;
        self.unwound.add_trampoline();
        self.checkpoint = (frame, self.unwound.frames);
        Ok(frame)
    }

    fn full(&mut self, mut frame: Frame) -> Result<Frame, End> {
        let module = self.modules.find(frame.pc()).ok_or(End::NoModule)?;
        let rule = module.rule_at(frame.pc());
        if rule.kind == Kind::Bx {
            frame.regs.bx = self.recover_bx()?;
            self.checkpoint = (frame, self.unwound.frames - 1);
        }
        frame.caller(&rule, self.modules, self.stack)
    }

    /// rbx is not followed on the fast path. The few rules that need it walk again from where it
    /// was known, with whole rules.
    fn recover_bx(&self) -> Result<u64, End> {
        let (mut frame, from) = self.checkpoint;
        for _ in from..self.unwound.frames - 1 {
            let module = self.modules.find(frame.pc()).ok_or(End::NoModule)?;
            frame = frame.caller(&module.rule_at(frame.pc()), self.modules, self.stack)?;
        }
        Ok(frame.regs.bx)
    }
}
