//! The walk over a blocked thread's stack from outside, where only its stack and instruction pointer
//! are known.

use pilotlight_unwind::{End, Kind, Modules, Registers, Rule, Saved, step};

use super::memory::StackCopy;
use super::prologue::FrameSizes;

/// Stacks of blocked threads can be walked here.
pub(super) const CAN_READ: bool = true;

/// A register whose value is not known: unaligned, so that no rule can use it.
const LOST: u64 = 1;

/// Where a walk begins.
pub(super) struct Pointers {
    pub(super) sp: u64,
    pub(super) ip: u64,
    /// The frame pointer that the thread once told of, with its stack at `sp`.
    pub(super) kept_bp: Option<u64>,
}

/// What walks have learned of the code.
#[derive(Default)]
pub(super) struct Walker {
    sizes: FrameSizes,
}

impl Walker {
    /// Code may have come and gone.
    pub(super) fn forget_code(&mut self) {
        self.sizes.forget();
    }

    /// Walks over `stack` into `frames`, leaf first; every address is inside its instruction.
    pub(super) fn walk(
        &mut self,
        from: Pointers,
        modules: &Modules,
        stack: &StackCopy,
        max_depth: usize,
        frames: &mut Vec<u64>,
    ) -> End {
        frames.clear();
        let Pointers { sp, ip, kept_bp } = from;
        let (bp, bx) = (LOST, LOST);
        let mut regs = Registers { ip, sp, bp, bx };
        let mut exact = true;
        loop {
            if frames.len() == max_depth {
                return End::Truncated;
            }
            let pc = regs.ip.wrapping_sub(u64::from(!exact));
            frames.push(pc);
            let Some(module) = modules.find(pc) else {
                return End::NoModule;
            };
            let rule = module.rule_at(pc);
            if regs.bp == LOST && needs_frame_pointer(&rule) {
                let found = self.sizes.frame_pointer(pc, regs.sp, &rule, modules, stack);
                // Nobody restored it yet: it is what the leaf had.
                match found.or(kept_bp) {
                    Some(bp) => regs.bp = bp,
                    None => return End::BadFramePointer,
                }
            }
            match step(regs, exact, modules, stack) {
                Ok(caller) => regs = caller,
                Err(end) => return end,
            }
            exact = rule.kind == Kind::Signal;
        }
    }
}

fn needs_frame_pointer(rule: &Rule) -> bool {
    matches!(rule.kind, Kind::Bp | Kind::DerefBp)
        || rule.bp_saved == Saved::AtBp
        || rule.bx_saved == Saved::AtBp
}
