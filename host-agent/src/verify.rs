//! The standing truth check: a share of the samples that the kernel walked is walked a second time here, from the same
//! registers and a copy of the same stack, by the tables that the kernel's were made from and by other code.

use crate::unwind::{Copied, walk};
use pilotlight_agent_bpf::{Check, StackFrames, is_interpreted};
use pilotlight_unwind::{Modules, Stack};
use std::cell::Cell;

/// Frames that the kernel keeps of one stack.
const FRAMES: usize = 1024;

/// What came of walking twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same frames, as far as the copy of the stack goes.
    Same,
    /// Others.
    Different,
    /// The process has changed or gone since, or its stack is deeper than what is kept of it.
    Unknown,
}

impl Verdict {
    /// As events are named.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Same => "verified_same",
            Verdict::Different => "verified_different",
            Verdict::Unknown => "verified_unknown",
        }
    }
}

/// A copy of a stack that remembers whether more of it was asked for.
struct Watched<'a> {
    copied: Copied<'a>,
    went_beyond: Cell<bool>,
}

impl Stack for Watched<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let word = self.copied.word(address);
        let end = self.copied.start + self.copied.bytes.len() as u64;
        let inside = (self.copied.start..end).contains(&address);
        if word.is_none() && !inside && address.is_multiple_of(8) {
            self.went_beyond.set(true);
        }
        word
    }
}

/// Walks `check` again over `modules`, those of its process.
pub fn verdict(check: &Check, modules: &Modules) -> Verdict {
    let raw = &check.raw;
    let theirs = native(&check.walked);
    if check.walked.missing.is_some() || theirs.len() > FRAMES {
        return Verdict::Unknown;
    }
    let stack = Watched {
        copied: Copied {
            start: raw.stack_start,
            bytes: &raw.stack,
            bp: raw.registers.bp,
        },
        went_beyond: Cell::new(false),
    };
    let walked = walk(raw.registers, !raw.exact, modules, &stack, FRAMES);
    let ours = walked.frames;
    let (Some((our_leaf, ours)), Some((their_leaf, theirs))) =
        (ours.split_first(), theirs.split_first())
    else {
        return Verdict::Unknown;
    };
    // Behind a system call's instruction, or in it.
    let leaf = our_leaf == their_leaf || !raw.exact && our_leaf.wrapping_sub(1) == *their_leaf;
    // Up to where one of them could not go on for want of something.
    let copy_ended = stack.went_beyond.get() && walked.cut.is_some();
    let table_missed = matches!(check.walked.cut, Some("unknown_code" | "no_table"));
    let same = ours == theirs && walked.cut.is_some() == check.walked.cut.is_some()
        || copy_ended && theirs.starts_with(ours)
        || table_missed && ours.starts_with(theirs);
    if leaf && same {
        Verdict::Same
    } else {
        Verdict::Different
    }
}

/// Frames of interpreters are not on the stack.
fn native(walked: &StackFrames) -> Vec<u64> {
    let words = walked.frames.iter().copied();
    words.filter(|&word| !is_interpreted(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::RED_ZONE;

    #[test]
    fn a_copy_knows_whether_it_was_too_short() {
        let bytes = [1; 64];
        let ask = |address| {
            let stack = Watched {
                copied: Copied {
                    start: 0x1000,
                    bytes: &bytes,
                    bp: 7,
                },
                went_beyond: Cell::new(false),
            };
            (stack.word(address).is_some(), stack.went_beyond.get())
        };
        assert_eq!(ask(0x1008), (true, false));
        assert_eq!(ask(0x1000 - RED_ZONE), (true, false));
        assert_eq!(ask(0x1040), (false, true));
        assert_eq!(ask(0x1004), (false, false));
    }
}
