//! Walks over copied stacks: registers and the bytes above the stack pointer, as a sampler took them.

use pilotlight_unwind::{Cache, End, Kind, Modules, Registers, Stack, unwind_with};
use std::sync::OnceLock;

/// Bytes of a stack, copied.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The frame pointer. In a function's last instructions its rule may still name the place below the stack pointer
    /// that the frame pointer was popped from: what was there is in the register again.
    pub bp: u64,
}

/// How far below the stack pointer rules may look: the red zone.
pub(crate) const RED_ZONE: u64 = 128;

impl Stack for Copied<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        if (1..=RED_ZONE).contains(&self.start.wrapping_sub(address)) {
            return Some(self.bp);
        }
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        address
            .is_multiple_of(8)
            .then_some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// A walked stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Leaf first; return addresses minus 1.
    pub frames: Vec<u64>,
    /// Why the root was not reached, when it was not.
    pub cut: Option<&'static str>,
}

/// Walks from `registers` to the root.
///
/// `in_kernel`: the thread was in the kernel; then its instruction pointer is behind a `syscall` instruction, which may
/// be the last one of its function.
pub fn walk<S: Stack>(
    registers: Registers,
    in_kernel: bool,
    modules: &Modules,
    stack: &S,
    limit: usize,
) -> Walked {
    let mut registers = registers;
    if in_kernel && is_gap(registers.ip, modules) && !is_gap(registers.ip.wrapping_sub(1), modules)
    {
        registers.ip = registers.ip.wrapping_sub(1);
    }
    let mut frames = vec![0; limit.min(crate::limits::FRAMES)];
    let unwound = unwind_with(registers, modules, no_cache(), stack, &mut frames);
    frames.truncate(unwound.frames);
    for (index, frame) in frames.iter_mut().enumerate() {
        if !unwound.is_exact(index) {
            *frame = frame.wrapping_sub(1);
        }
    }
    Walked {
        frames,
        cut: reason(unwound.end),
    }
}

fn is_gap(address: u64, modules: &Modules) -> bool {
    let kind = modules
        .find(address)
        .map(|module| module.rule_at(address).kind);
    kind.is_none_or(|kind| kind == Kind::FramePointer)
}

/// A cache is bound to one set of modules and takes 64 KiB: too much for every process. One that fits no set is ignored.
fn no_cache() -> &'static Cache {
    static NONE: OnceLock<Cache> = OnceLock::new();
    NONE.get_or_init(|| Cache::new(&Modules::new(Vec::new())))
}

/// `None` for the root.
pub fn reason(end: End) -> Option<&'static str> {
    Some(match end {
        End::Root => return None,
        End::Truncated => "too_deep",
        End::NoModule => "unknown_code",
        End::NoRule => "no_rule",
        End::BadFramePointer => "bad_frame_pointer",
        End::BadStack => "bad_stack",
        _ => "other",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_words_of_the_copy_are_read() {
        let bytes: Vec<u8> = (0..24).collect();
        let stack = Copied {
            start: 0x1000,
            bytes: &bytes,
            bp: 77,
        };
        assert_eq!(stack.word(0x1008), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(stack.word(0xff8), Some(77));
        for address in [0xf78, 0x1004, 0x1018, u64::MAX - 7, 0] {
            assert_eq!(stack.word(address), None, "{address:#x}");
        }
    }
}
