//! What a process may forge of an interpreter: its file, its memory, its tables of lines.

use super::known::{Found, find};
use super::memory::Memory;
use super::python::Python;
use super::{frames, line_of, offsets};
use pilotlight_agent_bpf::{Interpreted, check};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;

/// Any bytes as an ELF file, as the memory of each CPython, as a table of lines, and as a stack.
pub(crate) fn hostile(input: &[u8]) -> io::Result<()> {
    let _ = find(&file_of(input)?);
    for version in offsets::VERSIONS {
        read_python(file_of(input)?, version, input);
    }
    for unit in [0, 1, 7, u32::MAX] {
        let _ = line_of(input, 1, unit);
    }
    let words: Vec<u64> = words(input).collect();
    assert!(frames::without_names(&words).len() <= words.len());
    Ok(())
}

fn words(input: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let words = input
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok());
    words.map(u64::from_le_bytes)
}

/// Code objects lie at each of the first words, and where these point.
fn read_python(memory: File, version: (u8, u8), input: &[u8]) {
    let found = Found::of_python(version);
    let Some(python) = Python::of(Memory::of(memory), &found, 0) else {
        return;
    };
    let places = (0..64).map(|word| word * 8).chain(words(input).take(16));
    for code in places {
        // What the frame carries is made to fit, so that reading goes on.
        let Some(names) = python.names_of(code) else {
            continue;
        };
        let frame = Interpreted {
            code,
            check: check(names),
            unit: 3,
        };
        if let Some(function) = python.function(&frame) {
            assert!(function.name.len() <= 4096 && function.file.len() <= 4096);
        }
    }
}

/// A file in memory.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: a text that ends with NUL.
    let made = unsafe { libc::memfd_create(c"pilotlight-hostile".as_ptr(), libc::MFD_CLOEXEC) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let mut file = unsafe { File::from_raw_fd(made) };
    file.write_all(bytes)?;
    Ok(file)
}

/// Memory of a CPython 3.11 with one code object at 0, its texts and its lines.
#[cfg(test)]
pub(crate) fn memory_of_python() -> Vec<u8> {
    let Some(layout) = offsets::layout((3, 11)) else {
        return Vec::new();
    };
    let mut memory = vec![0; 1024];
    let mut put = |at: u32, bytes: &[u8]| {
        memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    let text = |put: &mut dyn FnMut(u32, &[u8]), at: u32, text: &[u8]| {
        put(at + layout.text_length, &(text.len() as u64).to_le_bytes());
        // Kind 1, compact, ASCII.
        put(
            at + layout.text_state,
            &(1_u32 << 2 | 1 << 5 | 1 << 6).to_le_bytes(),
        );
        put(at + layout.text_ascii, text);
    };
    let (file, name, lines) = (256_u32, 384_u32, 512_u32);
    for (index, place) in [file, name, name, lines].into_iter().enumerate() {
        let at = layout.walk.code_names + 8 * index as u32;
        put(at, &u64::from(place).to_le_bytes());
    }
    put(layout.code_first_line, &7_u32.to_le_bytes());
    text(&mut put, file, b"/app/hot.py");
    text(&mut put, name, b"hot");
    put(lines + layout.bytes_size, &4_u64.to_le_bytes());
    put(lines + layout.bytes_data, &[0xd8, 0x03, 0x00, 0x01]);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_damaged_elsewhere_holds_a_function() {
        let memory = memory_of_python();
        let python = Python::of(
            Memory::of(file_of(&memory).unwrap()),
            &Found::of_python((3, 11)),
            0,
        );
        let python = python.unwrap();
        let frame = Interpreted {
            code: 0,
            check: check(python.names_of(0).unwrap()),
            unit: 0,
        };
        let function = python.function(&frame).unwrap();
        assert_eq!(
            (&*function.name, &*function.file, function.first_line),
            ("hot", "/app/hot.py", 7)
        );
    }
}
