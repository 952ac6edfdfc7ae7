//! What a file is and how much it can name, from its headers.

use crate::Error;
use crate::elf::{Elf, Fields, named_note, string};
use sha2::{Digest, Sha256};

/// How much a file can name: a better one replaces a worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Quality {
    /// No names.
    Nothing,
    /// Function names in `.gnu_debugdata`.
    MiniDebuginfo,
    /// Exported function names.
    Dynsym,
    /// Function names.
    Symtab,
    /// Functions, inlined ones too, and lines of a Go program.
    Pclntab,
    /// DWARF that needs another file: split, or shared by dwz.
    Split,
    /// All of DWARF.
    Full,
}

impl Quality {
    /// A number that is kept on disk; greater is better.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self {
            Quality::Nothing => 0,
            Quality::MiniDebuginfo => 10,
            Quality::Dynsym => 20,
            Quality::Symtab => 30,
            Quality::Pclntab => 40,
            Quality::Split => 50,
            Quality::Full => 60,
        }
    }

    /// The quality of this [`Quality::rank`].
    #[must_use]
    pub fn from_rank(rank: u8) -> Option<Quality> {
        let all = [
            Quality::Nothing,
            Quality::MiniDebuginfo,
            Quality::Dynsym,
            Quality::Symtab,
            Quality::Pclntab,
            Quality::Split,
            Quality::Full,
        ];
        all.into_iter().find(|q| q.rank() == rank)
    }
}

/// What an ELF file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An executable or a shared library, with its code.
    Code,
    /// Debug information alone (`objcopy --only-keep-debug`, Debian's `-dbgsym`).
    Debug,
    /// What dwz took out of several debug files.
    Supplementary,
    /// Split DWARF: `.dwo` or `.dwp`.
    Split,
    /// Not linked yet: `.o`, a kernel module.
    Relocatable,
}

/// What [`inspect`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// `NT_GNU_BUILD_ID`.
    pub gnu_build_id: Option<Vec<u8>>,
    /// Go's build id, as text.
    pub go_build_id: Option<String>,
    /// OpenTelemetry's id of a file's contents; see [`htlhash`].
    pub htlhash: [u8; 16],
    /// How much the file can name.
    pub quality: Quality,
    /// `e_machine`: 62 is x86-64, 183 is aarch64.
    pub machine: u16,
    /// What the file is for.
    pub kind: Kind,
    /// `.gnu_debuglink`: name (without a folder) and CRC-32 of the separate debug file.
    pub debuglink: Option<(String, u32)>,
    /// `.gnu_debugaltlink`, or DWARF 5's `.debug_sup`: path and build id of the file that dwz made. The
    /// path is input: look it up below folders of your own.
    pub supplementary: Option<(String, Vec<u8>)>,
}

/// Reads the headers of a 64-bit little-endian ELF file: no DWARF, no symbols.
///
/// # Errors
/// As [`crate::Object::parse`].
///
/// ```
/// use pilotlight_symbolize::tables::{Kind, inspect};
///
/// let found = inspect(&std::fs::read("/proc/self/exe")?)?;
/// assert_eq!(found.kind, Kind::Code);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect(object: &[u8]) -> Result<Inspection, Error> {
    let elf = Elf::parse(object)?;
    let sup = debug_sup(object, &elf);
    let own = sup.filter(|sup| sup.is_supplementary);
    Ok(Inspection {
        gnu_build_id: elf.build_id.clone().or(own.map(|sup| sup.id.to_vec())),
        go_build_id: go_build_id(object, &elf),
        htlhash: htlhash(object),
        quality: quality(object, &elf),
        machine: elf.kind.1,
        kind: kind(&elf),
        debuglink: debuglink(object, &elf),
        supplementary: supplementary(object, &elf),
    })
}

/// OpenTelemetry's `htlhash`: the first half of the SHA-256 of first 4,096 bytes, last 4,096 bytes
/// and length (big-endian).
#[must_use]
pub fn htlhash(object: &[u8]) -> [u8; 16] {
    const PAGE: usize = 4096;
    let mut hash = Sha256::new();
    hash.update(&object[..object.len().min(PAGE)]);
    hash.update(&object[object.len().saturating_sub(PAGE)..]);
    hash.update((object.len() as u64).to_be_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    half
}

pub(super) fn contents<'a>(object: &'a [u8], elf: &Elf, name: &str) -> &'a [u8] {
    let section = elf.section(name);
    section
        .and_then(|s| object.get(s.file.clone()))
        .unwrap_or(&[])
}

fn has(elf: &Elf, name: &str) -> bool {
    elf.section(name).is_some_and(|s| !s.file.is_empty())
}

pub(super) fn quality(object: &[u8], elf: &Elf) -> Quality {
    const SYMTAB: u32 = 2;
    const DYNSYM: u32 = 11;
    /// One symbol is the empty one.
    const TWO: usize = 48;
    let table = |kind| {
        elf.sections
            .iter()
            .any(|s| s.kind == kind && s.file.len() >= TWO)
    };
    // Of small programs dwz shares strings alone.
    let strings = has(elf, ".debug_str") && kind(elf) == Kind::Supplementary;
    let dwarf = has(elf, ".debug_info") || has(elf, ".zdebug_info") || strings;
    let shared = supplementary(object, elf).is_some() || is_split(object, elf);
    if dwarf && shared || has(elf, ".debug_info.dwo") {
        Quality::Split
    } else if dwarf {
        Quality::Full
    } else if super::go::is_there(object, elf) {
        Quality::Pclntab
    } else if table(SYMTAB) {
        Quality::Symtab
    } else if table(DYNSYM) {
        Quality::Dynsym
    } else if has(elf, ".gnu_debugdata") {
        Quality::MiniDebuginfo
    } else {
        Quality::Nothing
    }
}

/// One of the first units is the skeleton of a split one.
fn is_split(object: &[u8], elf: &Elf) -> bool {
    const UNITS: usize = 64;
    const DW_UT_SKELETON: u8 = 4;
    const LONG: u32 = u32::MAX;
    let compressed = elf.section(".debug_info").is_none_or(|s| s.compressed);
    let info = contents(object, elf, ".debug_info");
    if compressed || !has(elf, ".debug_addr") {
        return false;
    }
    let mut at = 0usize;
    for _ in 0..UNITS {
        let (length, version, kind) = (
            Fields(info).u32(at),
            Fields(info).u16(at + 4),
            Fields(info).u8(at + 6),
        );
        if length == 0 || length == LONG {
            return false;
        }
        // Before DWARF 5 only split units used `.debug_addr`.
        if version >= 5 && kind == DW_UT_SKELETON || version == 4 {
            return true;
        }
        at = at.saturating_add(length as usize + 4);
    }
    false
}

pub(super) fn kind(elf: &Elf) -> Kind {
    const ET_REL: u16 = 1;
    const NOBITS: u32 = 8;
    let mut code = elf.sections.iter().filter(|s| s.executable);
    if has(elf, ".debug_info.dwo") || has(elf, ".debug_cu_index") {
        Kind::Split
    } else if elf.kind.0 == ET_REL && code.clone().next().is_some() {
        Kind::Relocatable
    } else if elf.segments.iter().all(|s| !s.executable) {
        // dwz says that it made something to be linked.
        Kind::Supplementary
    } else if code.clone().next().is_some() && code.all(|s| s.kind == NOBITS) {
        Kind::Debug
    } else {
        Kind::Code
    }
}

fn go_build_id(object: &[u8], elf: &Elf) -> Option<String> {
    const GO_BUILD_ID: u32 = 4;
    let notes = contents(object, elf, ".note.go.buildid");
    let id = named_note(notes, b"Go\0\0", GO_BUILD_ID)?;
    Some(String::from_utf8_lossy(id).into_owned())
}

fn debuglink(object: &[u8], elf: &Elf) -> Option<(String, u32)> {
    let section = contents(object, elf, ".gnu_debuglink");
    let name = string(section, 0);
    let crc = (name.len() + 1).next_multiple_of(4);
    section.get(crc..crc + 4)?;
    // A path could lead anywhere.
    let plain = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
    let name = std::str::from_utf8(name).ok().filter(|_| plain)?;
    Some((name.to_owned(), Fields(section).u32(crc)))
}

/// The file that this one shares DWARF with, as it names it.
fn supplementary(object: &[u8], elf: &Elf) -> Option<(String, Vec<u8>)> {
    let section = contents(object, elf, ".gnu_debugaltlink");
    let path = string(section, 0);
    let gnu = section.get(path.len() + 1..).map(|id| (path, id));
    let standard = || debug_sup(object, elf).filter(|sup| !sup.is_supplementary);
    let (path, id) = gnu.or_else(|| standard().map(|sup| (sup.path, sup.id)))?;
    let known = !path.is_empty() && !id.is_empty();
    known.then(|| (String::from_utf8_lossy(path).into_owned(), id.to_vec()))
}

/// `.debug_sup` (DWARF 5, 7.3.6): in the shared file and in those that share it.
#[derive(Clone, Copy)]
struct DebugSup<'a> {
    is_supplementary: bool,
    path: &'a [u8],
    id: &'a [u8],
}

fn debug_sup<'a>(object: &'a [u8], elf: &Elf) -> Option<DebugSup<'a>> {
    const VERSION: usize = 2;
    let section = contents(object, elf, ".debug_sup");
    let is_supplementary = *section.get(VERSION)? != 0;
    let path = string(section, VERSION + 1);
    let at = VERSION + 1 + path.len() + 1;
    // A checksum has 20 bytes: its length is one of LEB128.
    let len = usize::from(*section.get(at).filter(|len| **len < 0x80)?);
    let id = section.get(at + 1..at + 1 + len)?;
    Some(DebugSup {
        is_supplementary,
        path,
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_qualities_are_greater_and_keep_their_numbers() {
        for rank in 0..=u8::MAX {
            let quality = Quality::from_rank(rank);
            assert!(quality.is_none_or(|q| q.rank() == rank));
        }
        assert!(Quality::Full > Quality::Split && Quality::Split > Quality::Symtab);
        assert!(Quality::Symtab > Quality::Dynsym && Quality::Dynsym > Quality::MiniDebuginfo);
    }

    #[test]
    fn htlhash_takes_both_ends_and_the_length() {
        // Short files are hashed twice, and no byte beyond.
        assert_ne!(htlhash(b""), htlhash(b"a"));
        let mut long = vec![0; 10_000];
        let before = htlhash(&long);
        long[5000] = 1;
        assert_eq!(htlhash(&long), before);
        long[9999] = 1;
        assert_ne!(htlhash(&long), before);
    }
}
