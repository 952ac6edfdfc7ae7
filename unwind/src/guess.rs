//! Code without CFI: stubs, code with frame pointers, C libraries built without tables (musl).

use crate::modules::Modules;
use crate::rule::Kind;
use crate::stack::Stack;
use crate::walk::{End, Frame, Registers};

/// Words of the stack that are looked through for a return address.
const SCANNED: u64 = 512;

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
    let by_frame_pointer = by_frame_pointer(frame, modules, stack);
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
/// too. `Some(Err(Root))` when there is none up to the end of the stack, or far above code that was
/// itself returned to: that is how a C library starts a thread. `None` when nothing can be said.
fn scan<S: Stack>(frame: &Frame, modules: &Modules, stack: &S) -> Option<Result<Frame, End>> {
    for at in (0..SCANNED).map(|n| frame.regs.sp.wrapping_add(n * 8)) {
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
    match found.caller(&rule, modules, stack) {
        Ok(next) => is_code(next.regs.ip, modules),
        Err(end) => end == End::Root,
    }
}
