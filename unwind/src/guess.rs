//! Code without CFI: stubs, code with frame pointers, C libraries built without tables (musl).

use crate::modules::Modules;
use crate::rule::Kind;
use crate::stack::Stack;
use crate::walk::{End, Frame, Registers};

/// Bounds of a stack may be older than the stack, and what lies behind its true end not be mapped. A
/// walk by CFI stays where frames are; a guess reads the page that sp is on, and nothing else.
fn same_page(sp: u64, address: u64) -> bool {
    sp >> 12 == address >> 12
}

/// The caller of a frame whose code has no CFI.
pub(crate) fn caller<S: Stack>(frame: &Frame, modules: &Modules, stack: &S) -> Result<Frame, End> {
    // In an image that has CFI, code without it is mostly a stub that pushes nothing, or a C library
    // without frame pointers; in one that has none (Go, JIT), code keeps frame pointers.
    let has_cfi = modules
        .find(frame.pc())
        .is_some_and(|module| !module.table.is_empty());
    if frame.exact
        && has_cfi
        && let Some(ip) = stack.word(frame.regs.sp).filter(|ip| is_code(*ip, modules))
    {
        return Ok(returned_to(frame, ip, frame.regs.sp));
    }
    let by_frame_pointer = match same_page(frame.regs.sp, frame.regs.bp.wrapping_add(8)) {
        // Only a guess that bp is a frame pointer at all.
        false if has_cfi && frame.regs.bp != 0 => Err(End::BadFramePointer),
        _ => by_frame_pointer(frame, modules, stack),
    };
    match by_frame_pointer {
        Err(End::Root | End::BadFramePointer) if has_cfi => {
            scan(frame, modules, stack).unwrap_or(by_frame_pointer)
        }
        found => found,
    }
}

pub(crate) fn is_code(return_address: u64, modules: &Modules) -> bool {
    modules.find(return_address.wrapping_sub(1)).is_some()
}

/// The frame whose return address was at `address`; what else was saved is not known.
fn returned_to(frame: &Frame, ip: u64, address: u64) -> Frame {
    Frame::returned(Registers {
        ip,
        sp: address.wrapping_add(8),
        ..frame.regs
    })
}

fn by_frame_pointer<S: Stack>(frame: &Frame, modules: &Modules, stack: &S) -> Result<Frame, End> {
    let Registers { sp, bp, bx, .. } = frame.regs;
    if bp == 0 {
        return Err(End::Root);
    }
    if bp < sp {
        return Err(End::BadFramePointer);
    }
    let word = |at: u64| stack.word(at).ok_or(End::BadFramePointer);
    let ip = word(bp.wrapping_add(8))?;
    let caller = Registers {
        ip,
        sp: bp.wrapping_add(16),
        bp: word(bp)?,
        bx,
    };
    let frame = Frame::returned(caller).unless_root()?;
    if is_code(ip, modules) {
        Ok(frame)
    } else {
        Err(End::BadFramePointer)
    }
}

/// The nearest word that looks like a return address into code with CFI, whose own caller is there
/// too. `Some(Err(Root))` when there is none up to the end of the stack, or above code that was itself
/// returned to: that is how a C library starts a thread. `None` when nothing can be said.
fn scan<S: Stack>(frame: &Frame, modules: &Modules, stack: &S) -> Option<Result<Frame, End>> {
    let sp = frame.regs.sp;
    let words = (0..512).map(|n| sp.wrapping_add(n * 8));
    for at in words.take_while(|at| same_page(sp, *at)) {
        let Some(ip) = stack.word(at) else {
            return Some(Err(End::Root));
        };
        let found = returned_to(frame, ip, at);
        if is_caller(&found, modules, stack) {
            return Some(Ok(found));
        }
    }
    (!frame.exact).then_some(Err(End::Root))
}

fn is_caller<S: Stack>(found: &Frame, modules: &Modules, stack: &S) -> bool {
    let Some(module) = modules.find(found.pc()) else {
        return false;
    };
    let rule = module.rule_at(found.pc());
    if matches!(
        rule.kind,
        Kind::FramePointer | Kind::Unsupported | Kind::Signal
    ) {
        return false;
    }
    // Every word that this caller's own rule reads.
    let near = Near {
        stack,
        sp: found.regs.sp.wrapping_sub(8),
    };
    match found.caller(&rule, modules, &near) {
        Ok(next) => is_code(next.regs.ip, modules),
        Err(end) => end == End::Root,
    }
}

/// The part of a stack that is on one page.
struct Near<'a> {
    /// Of any kind, or each would make one more kind.
    stack: &'a dyn Stack,
    sp: u64,
}

impl Stack for Near<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        same_page(self.sp, address)
            .then(|| self.stack.word(address))
            .flatten()
    }
}
