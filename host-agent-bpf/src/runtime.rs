//! Interpreters: what the programs are told of one, and the words that they leave in stacks.

use crate::layout;

/// An interpreter in a process: where its loop is, and where in its structures things are, in bytes from their starts.
///
/// The names are CPython's; what has no such structure has no such offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Address of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Address of the function that executes frames.
    pub loop_start: u64,
    /// Its bytes.
    pub loop_bytes: u64,
    /// Places in structures.
    pub offsets: Offsets,
}

/// See [`Runtime`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// Interpreter: the next one.
    pub interpreter_next: u32,
    /// Interpreter: its first thread.
    pub interpreter_threads: u32,
    /// Thread: the next one.
    pub thread_next: u32,
    /// Thread: what `pthread_self` gave it.
    pub thread_id: u32,
    /// Thread: its youngest frame, or its youngest run of the loop.
    pub thread_frame: u32,
    /// 0: threads lead to frames, and the last frame of a run of the loop lies in its native frame and has no code. 1:
    /// they lead to runs (`_PyCFrame`) that lie in native frames, and those to frames; the last frame of a run has code.
    /// 2: they lead to runs, but otherwise as 0.
    pub runs: u32,
    /// Run: its youngest frame.
    pub run_frame: u32,
    /// Run: the one before.
    pub run_previous: u32,
    /// Frame: its code object.
    pub frame_code: u32,
    /// Frame: its caller.
    pub frame_previous: u32,
    /// Frame: address of the instruction.
    pub frame_instruction: u32,
    /// Frame: a byte that says whether it is the last of a run.
    pub frame_kind: u32,
    /// The value of that byte.
    pub last_kind: u32,
    /// Code object: four pointers in a row (file, name, qualified name, lines) that tell whether it is still the same.
    pub code_names: u32,
    /// Code object: the first instruction.
    pub code_instructions: u32,
}

impl From<Runtime> for layout::Runtime {
    fn from(runtime: Runtime) -> layout::Runtime {
        layout::Runtime {
            interpreters: runtime.interpreters,
            loop_start: runtime.loop_start,
            loop_bytes: runtime.loop_bytes,
            pointer_mask: !7,
            offsets: runtime.offsets,
            pad: 0,
        }
    }
}

/// A frame of an interpreter in [`crate::StackFrames::frames`], where it takes two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interpreted {
    /// Address of the code object.
    pub code: u64,
    /// [`check`] of the four pointers at [`Offsets::code_names`].
    pub check: u32,
    /// The instruction, in units of two bytes.
    pub unit: u32,
}

const KIND: u32 = 56;
const CODE: u64 = 0xc0;
const PLACE: u64 = 0xc1;

/// The word is one of two that stand for a frame of an interpreter, not an address.
pub fn is_interpreted(word: u64) -> bool {
    matches!(word >> KIND, CODE | PLACE)
}

impl Interpreted {
    /// The frame of two words that follow each other.
    pub fn of(code: u64, place: u64) -> Option<Interpreted> {
        (code >> KIND == CODE && place >> KIND == PLACE).then_some(Interpreted {
            code: code & ((1 << KIND) - 1),
            check: (place >> 32) as u32 & 0xff_ffff,
            unit: place as u32,
        })
    }
}

/// What the programs make of the four pointers at [`Offsets::code_names`].
pub fn check(pointers: [u64; 4]) -> u32 {
    // `mixed` in c/walk.h
    let mixed = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ (hash >> 29)
    };
    (pointers.into_iter().fold(0, mixed) & 0xff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_a_frame_and_halves_are_none() {
        let (code, place) = (0xc000_7f00_1234_5670, 0xc1ab_cdef_0000_0102);
        let frame = Interpreted::of(code, place).unwrap();
        assert_eq!(
            (frame.code, frame.check, frame.unit),
            (0x7f00_1234_5670, 0xab_cdef, 0x102)
        );
        assert_eq!(Interpreted::of(place, code), None);
        assert_eq!(Interpreted::of(code, code), None);
        assert!(is_interpreted(code) && is_interpreted(place));
        assert!(!is_interpreted(0x7fff_ffff_ffff) && !is_interpreted(u64::MAX));
    }
}
