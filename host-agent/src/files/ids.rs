//! By what a file is known to the server: its GNU build id, else Go's, else a hash of its ends.
//!
//! Program headers do not tell all: Go's linker covers its own note by one, and not the GNU one beside it.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;
const PT_NOTE: u64 = 4;
const SHT_NOTE: u64 = 7;
const GNU_BUILD_ID: u64 = 3;
const GO_BUILD_ID: u64 = 4;
/// Headers of one table that are looked at.
const HEADERS: usize = 4096;
/// Bytes of one note section; honest ones have less than a page.
const NOTES: u64 = 64 << 10;
/// Note sections of one file that are read.
const SECTIONS: usize = 64;
/// Bytes of an id.
const ID: usize = 256;

/// The id of an ELF file as text: a GNU build id in hexadecimal, else Go's text, else OpenTelemetry's `htlhash`.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn id(file: &File, size: u64) -> io::Result<String> {
    let mut header = [0; EHDR];
    file.read_exact_at(&mut header, 0)?;
    let mut go = None;
    for (offset, length) in note_places(file, &header, size) {
        let mut notes = vec![0; length.min(NOTES) as usize];
        if file.read_exact_at(&mut notes, offset).is_err() {
            continue;
        }
        if let Some(id) = note(&notes, b"GNU\0", GNU_BUILD_ID) {
            return Ok(hex(id));
        }
        go = go.or_else(|| go_text(note(&notes, b"Go\0\0", GO_BUILD_ID)?));
    }
    go.map_or_else(|| htlhash(file, size), Ok)
}

/// Offsets and lengths of notes, by program headers and by sections.
fn note_places(file: &File, header: &[u8], size: u64) -> Vec<(u64, u64)> {
    let programs = table(file, number(header, 32, 8), number(header, 56, 2), PHDR);
    let sections = table(file, number(header, 40, 8), number(header, 60, 2), SHDR);
    let of_programs = programs
        .chunks_exact(PHDR)
        .filter(|h| number(h, 0, 4) == PT_NOTE)
        .map(|h| (number(h, 8, 8), number(h, 32, 8)));
    let of_sections = sections
        .chunks_exact(SHDR)
        .filter(|h| number(h, 4, 4) == SHT_NOTE)
        .map(|h| (number(h, 24, 8), number(h, 32, 8)));
    of_programs
        .chain(of_sections)
        .filter(|(offset, length)| offset.checked_add(*length).is_some_and(|end| end <= size))
        .take(SECTIONS)
        .collect()
}

fn table(file: &File, offset: u64, count: u64, entry: usize) -> Vec<u8> {
    let mut bytes = vec![0; (count as usize).min(HEADERS) * entry];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

/// The data of the first note of this owner and kind.
fn note<'a>(mut notes: &'a [u8], owner: &[u8], kind: u64) -> Option<&'a [u8]> {
    while notes.len() >= 12 {
        let name = number(notes, 0, 4) as usize;
        let data = 12 + name.checked_next_multiple_of(4)?;
        let end = data.checked_add(number(notes, 4, 4) as usize)?;
        if number(notes, 8, 4) == kind && notes.get(12..12 + name)? == owner {
            return notes
                .get(data..end)
                .filter(|id| !id.is_empty() && id.len() <= ID);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

/// A program may write anything there; the server takes no control characters.
fn go_text(id: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(id).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// The first half of the SHA-256 of the first 4,096 bytes, the last 4,096 and the length.
fn htlhash(file: &File, size: u64) -> io::Result<String> {
    const PAGE: u64 = 4096;
    let mut hash = Sha256::new();
    let mut part = vec![0; size.min(PAGE) as usize];
    for offset in [0, size - size.min(PAGE)] {
        file.read_exact_at(&mut part, offset)?;
        hash.update(&part);
    }
    hash.update(size.to_be_bytes());
    Ok(hex(&hash.finalize()[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A little-endian number; what is not there is 0.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or(&[]);
    let add = |sum, &byte: &u8| sum << 8 | u64::from(byte);
    bytes.iter().rev().fold(0, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of one note section, which no program header covers.
    fn with_notes(name: &str, notes: &[u8]) -> String {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(EHDR, 0);
        bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
        bytes[60..62].copy_from_slice(&1u16.to_le_bytes());
        let mut section = [0; SHDR];
        section[4..8].copy_from_slice(&7u32.to_le_bytes());
        section[24..32].copy_from_slice(&128u64.to_le_bytes());
        section[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        bytes.extend(section);
        bytes.extend(notes);
        let path =
            std::env::temp_dir().join(format!("pilotlight-id-{name}-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let found = id(&File::open(&path).unwrap(), bytes.len() as u64);
        std::fs::remove_file(&path).unwrap();
        found.unwrap()
    }

    fn note_of(owner: &[u8; 4], kind: u32, data: &[u8]) -> Vec<u8> {
        let mut note = [4, data.len() as u32, kind].map(u32::to_le_bytes).concat();
        note.extend(owner);
        note.extend(data);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn gnu_comes_before_go_and_both_before_the_hash() {
        let go = note_of(b"Go\0\0", 4, b"abc/def_-=");
        let both = [go.clone(), note_of(b"GNU\0", 3, &[0xab, 0xcd])].concat();
        assert_eq!(with_notes("both", &both), "abcd");
        assert_eq!(with_notes("go", &go), "abc/def_-=");
        let hash = with_notes("none", &[]);
        assert_eq!(hash.len(), 32);
        assert_ne!(with_notes("other", &note_of(b"XYZ\0", 9, b"..")), hash);
    }

    #[test]
    fn forged_notes_are_no_ids() {
        let hash = |name, notes: &[u8]| assert_eq!(with_notes(name, notes).len(), 32, "{name}");
        hash("control", &note_of(b"Go\0\0", 4, b"a\nb"));
        hash("empty", &note_of(b"GNU\0", 3, b""));
        hash("long", &note_of(b"GNU\0", 3, &[1; 300]));
        let mut beyond = note_of(b"GNU\0", 3, &[1; 20]);
        beyond[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        hash("beyond", &beyond);
    }
}
