//! Where the leaf keeps its return address in a register, a blocked thread's stack and instruction
//! pointer are not enough: it is asked by a signal.

use pilotlight_unwind::{End, Modules};

use super::memory::StackCopy;

/// Stacks of blocked threads cannot be walked here.
pub(super) const CAN_READ: bool = false;

/// Where a walk would begin.
pub(super) struct Pointers {
    pub(super) sp: u64,
    pub(super) ip: u64,
    pub(super) kept_bp: Option<u64>,
}

#[derive(Default)]
pub(super) struct Walker;

impl Walker {
    pub(super) fn forget_code(&mut self) {}

    pub(super) fn walk(
        &mut self,
        from: Pointers,
        _modules: &Modules,
        _stack: &StackCopy,
        _max_depth: usize,
        frames: &mut Vec<u64>,
    ) -> End {
        let Pointers { sp, ip, kept_bp } = from;
        debug_assert!(sp != 0 && kept_bp != Some(ip));
        frames.clear();
        End::NoRule
    }
}
