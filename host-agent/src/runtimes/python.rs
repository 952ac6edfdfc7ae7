//! CPython: from what a file exports to its structures, and from a code object to its function.

use super::frames::Function;
use super::known::Found;
use super::memory::Memory;
use super::offsets;
use pilotlight_agent_bpf::{Interpreted, Offsets, Runtime, check};

/// Bytes of a name or a path.
const TEXT_BYTES: usize = 1024;
/// Bytes of the table of lines of one code object.
const LINES_BYTES: usize = 256 << 10;

/// Where things are in one version's structures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `_PyRuntime`: pointer to the first interpreter.
    pub interpreters: u32,
    /// What the BPF programs follow.
    pub walk: Offsets,
    /// Code object: first line.
    pub code_first_line: u32,
    /// Bytes object: how many.
    pub bytes_size: u32,
    /// Bytes object: the first.
    pub bytes_data: u32,
    /// Text: characters.
    pub text_length: u32,
    /// Text: what kind it is.
    pub text_state: u32,
    /// Text of ASCII: its first character.
    pub text_ascii: u32,
    /// Other text: its first character.
    pub text_other: u32,
}

/// An interpreter in a process.
#[derive(Debug)]
pub struct Python {
    memory: Memory,
    layout: Layout,
    runtime: Runtime,
}

impl Python {
    /// The interpreter that was found in a file that `pid` mapped with `bias`.
    pub fn open(pid: u32, found: &Found, bias: u64) -> Option<Python> {
        Python::of(Memory::open(pid)?, found, bias)
    }

    /// As [`Python::open`], of memory that is open already.
    pub(super) fn of(memory: Memory, found: &Found, bias: u64) -> Option<Python> {
        let root = found.root.wrapping_add(bias);
        let version = found.version?;
        // What the interpreter says of itself is right for every build of it.
        let layout = debug_offsets(&memory, root, version).or_else(|| offsets::layout(version))?;
        let runtime = Runtime {
            interpreters: root.wrapping_add(u64::from(layout.interpreters)),
            loop_start: found.executor.address.wrapping_add(bias),
            loop_bytes: found.executor.size,
            offsets: layout.walk,
        };
        Some(Python {
            memory,
            layout,
            runtime,
        })
    }

    /// What the BPF programs are told.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// File, name, qualified name and table of lines of a code object: pointers.
    pub(super) fn names_of(&self, code: u64) -> Option<[u64; 4]> {
        let mut bytes = [0; 32];
        let at = code.wrapping_add(u64::from(self.layout.walk.code_names));
        self.memory.read(at, &mut bytes)?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        Some([word(0).ok()?, word(8).ok()?, word(16).ok()?, word(24).ok()?])
    }

    /// The function of a frame; `None` when its code object is gone, or was none.
    pub fn function(&self, frame: &Interpreted) -> Option<Function> {
        let layout = &self.layout;
        let field = |offset: u32| frame.code.wrapping_add(u64::from(offset));
        let before = self
            .names_of(frame.code)
            .filter(|found| check(*found) == frame.check)?;
        let [file, name, qualified, lines] = before;
        let mut first_line = [0; 4];
        self.memory
            .read(field(layout.code_first_line), &mut first_line)?;
        let function = Function {
            name: self.text(qualified).or_else(|| self.text(name))?,
            file: self.text(file)?,
            first_line: u32::from_le_bytes(first_line),
            lines: self.bytes(lines).unwrap_or_default().into(),
        };
        // The same still after it was read.
        (self.names_of(frame.code)? == before).then_some(function)
    }

    fn bytes(&self, object: u64) -> Option<Vec<u8>> {
        let field = |offset: u32| object.wrapping_add(u64::from(offset));
        let size = self.memory.word(field(self.layout.bytes_size))?;
        self.memory
            .bytes(field(self.layout.bytes_data), size, LINES_BYTES)
    }

    /// `str`, in its compact form: all that the compiler makes are. Long ones are cut.
    fn text(&self, object: u64) -> Option<String> {
        let layout = &self.layout;
        let field = |offset: u32| object.wrapping_add(u64::from(offset));
        let length = self.memory.word(field(layout.text_length))?;
        let mut state = [0; 4];
        self.memory.read(field(layout.text_state), &mut state)?;
        let state = u32::from_le_bytes(state);
        // interned: 2 bits, then kind: 3, compact: 1, ascii: 1
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
        if is_compact == 0 || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let data = if is_ascii == 1 {
            layout.text_ascii
        } else {
            layout.text_other
        };
        let length = length.min(TEXT_BYTES as u64 / u64::from(width)) * u64::from(width);
        let bytes = self.memory.bytes(field(data), length, TEXT_BYTES)?;
        Some(decode(&bytes, width))
    }
}

/// Characters of 1, 2 or 4 bytes.
fn decode(bytes: &[u8], width: u32) -> String {
    let value = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u32::from(*byte))
    };
    let characters = bytes.chunks_exact(width as usize).map(value);
    characters
        .map(|value| char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// `_Py_DebugOffsets`, at the begin of `_PyRuntime` since 3.13: words in the order of `pycore_runtime.h`.
fn debug_offsets(memory: &Memory, root: u64, version: (u8, u8)) -> Option<Layout> {
    let bytes = memory.bytes(root, 71 * 8, 4096)?;
    parse_debug_offsets(&bytes, version)
}

fn parse_debug_offsets(bytes: &[u8], version: (u8, u8)) -> Option<Layout> {
    if !bytes.starts_with(b"xdebugpy") {
        return None;
    }
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok())
        .map(u64::from_le_bytes)
        .collect();
    let word = |index: usize| words.get(index).copied();
    let told = word(1)?;
    if ((told >> 24) as u8, (told >> 16) as u8) != version {
        return None;
    }
    // A place of `size` bytes inside a structure whose size stands in `structure`.
    let at = |index: usize, structure: usize, size: u64| {
        let (at, whole) = (word(index)?, word(structure)?);
        let fits = whole <= 16 << 20 && at.checked_add(size)? <= whole && at % size.min(8) == 0;
        fits.then_some(at as u32)
    };
    let frame_word = |index| at(index, 28, 8).filter(|at| *at <= 72);
    let names = at(35, 34, 32)?;
    let in_a_row = (36..=38).all(|index| at(index, 34, 8) == Some(names + 8 * (index as u32 - 35)));
    let ascii = at(70, 67, 8)?;
    let layout = Layout {
        interpreters: at(5, 3, 8)?,
        walk: Offsets {
            interpreter_next: at(8, 6, 8)?,
            interpreter_threads: at(9, 6, 8)?,
            thread_next: at(21, 19, 8)?,
            thread_id: at(24, 19, 8)?,
            thread_frame: at(23, 19, 8)?,
            runs: 0,
            run_frame: 0,
            run_previous: 0,
            frame_code: frame_word(30)?,
            frame_previous: frame_word(29)?,
            frame_instruction: frame_word(31)?,
            frame_kind: at(33, 28, 1).filter(|at| *at < 80)?,
            last_kind: 3,
            code_names: names,
            code_instructions: at(43, 34, 1)?,
        },
        code_first_line: at(39, 34, 4)?,
        bytes_size: at(65, 64, 8)?,
        bytes_data: at(66, 64, 1)?,
        text_length: at(69, 67, 8)?,
        text_state: at(68, 67, 4)?,
        text_ascii: word(70)
            .filter(|size| *size <= 256)
            .map(|size| size as u32)?,
        text_other: ascii + 16,
    };
    in_a_row.then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_each_width_are_read() {
        assert_eq!(decode(b"f\xe9", 1), "f\u{e9}");
        assert_eq!(decode(&[0x3b, 0x04, 0x61, 0], 2), "\u{43b}a");
        assert_eq!(
            decode(&[0x00, 0xf6, 0x01, 0, 0, 0, 0, 0xff], 4),
            "\u{1f600}\u{fffd}"
        );
    }
}
