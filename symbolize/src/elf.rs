//! Sections, segments and notes of an ELF64 little-endian file.

use crate::Error;
use std::ops::Range;

const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHN_XINDEX: u64 = 0xffff;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const SHF_COMPRESSED: u64 = 0x800;
#[cfg(feature = "tables")]
const SHF_ALLOC: u64 = 2;
#[cfg(feature = "tables")]
const SHF_EXECINSTR: u64 = 4;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;

/// Little-endian fields at byte offsets; zero outside the bytes.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let found = at.checked_add(N).and_then(|end| self.0.get(at..end));
        found.and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }

    pub fn u8(self, at: usize) -> u8 {
        u8::from_le_bytes(self.array(at))
    }

    pub fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

/// One section header.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub name: String,
    pub kind: u32,
    pub compressed: bool,
    pub link: usize,
    /// Code lives here.
    #[cfg(feature = "tables")]
    pub executable: bool,
    /// Stated virtual address, and bytes in memory.
    #[cfg(feature = "tables")]
    pub svma: Range<u64>,
    /// Bytes in the file.
    pub file: Range<usize>,
}

/// One `PT_LOAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Stated virtual address.
    pub svma: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Code may run here.
    pub executable: bool,
}

impl Segment {
    /// The stated address of the byte at `file_offset`, if it is in this segment. Sizes in a file
    /// may be any numbers.
    #[must_use]
    pub fn svma_of(&self, file_offset: u64) -> Option<u64> {
        let inside = file_offset.checked_sub(self.file_offset)?;
        (inside < self.file_size).then(|| self.svma.wrapping_add(inside))
    }
}

/// The headers of a file, as owned values.
#[derive(Debug)]
pub(crate) struct Elf {
    pub sections: Vec<Section>,
    pub segments: Vec<Segment>,
    pub build_id: Option<Vec<u8>>,
    /// `e_type` and `e_machine`.
    #[cfg(feature = "tables")]
    pub kind: (u16, u16),
}

impl Elf {
    pub fn parse(bytes: &[u8]) -> Result<Elf, Error> {
        if bytes.get(..4) != Some(b"\x7fELF") {
            return Err(Error::NotElf);
        }
        if bytes.get(4..6) != Some(&[2, 1]) {
            return Err(Error::Unsupported);
        }
        let header = Fields(bytes);
        let (mut segments, mut build_id) = (Vec::new(), None);
        for h in table(bytes, header.u64(32), 56, u64::from(header.u16(56)))? {
            let h = Fields(h);
            match h.u32(0) {
                PT_LOAD => segments.push(Segment {
                    file_offset: h.u64(8),
                    file_size: h.u64(32),
                    svma: h.u64(16),
                    memory_size: h.u64(40),
                    executable: h.u32(4) & PF_X != 0,
                }),
                PT_NOTE if build_id.is_none() => {
                    build_id = range(bytes, h.u64(8), h.u64(32)).and_then(|r| note(&bytes[r]));
                }
                _ => {}
            }
        }
        let sections = sections(bytes)?;
        // Objects of `objcopy --only-keep-debug` have program headers without contents.
        let notes = || sections.iter().filter(|s| s.kind == SHT_NOTE);
        let build_id = build_id.or_else(|| notes().find_map(|s| note(&bytes[s.file.clone()])));
        Ok(Elf {
            segments,
            build_id: build_id.map(<[u8]>::to_vec),
            sections,
            #[cfg(feature = "tables")]
            kind: (header.u16(16), header.u16(18)),
        })
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }
}

fn sections(bytes: &[u8]) -> Result<Vec<Section>, Error> {
    let header = Fields(bytes);
    let offset = header.u64(40);
    if offset == 0 {
        return Ok(Vec::new());
    }
    let first = table(bytes, offset, 64, 1)?.next().map(Fields);
    // More than 65,279 sections: count and name index move to the first header.
    let real = |short: u16, long: u64, escape: u64| match u64::from(short) {
        n if n == escape => long,
        n => n,
    };
    let count = real(header.u16(60), first.map_or(0, |f| f.u64(32)), 0);
    let names = real(
        header.u16(62),
        first.map_or(0, |f| u64::from(f.u32(40))),
        SHN_XINDEX,
    );
    let headers: Vec<Fields<'_>> = table(bytes, offset, 64, count)?.map(Fields).collect();
    let names = usize::try_from(names).ok().and_then(|n| headers.get(n));
    let names = names
        .and_then(|h| range(bytes, h.u64(24), h.u64(32)))
        .unwrap_or(0..0);
    let names = &bytes[names];
    let section = |h: &Fields<'_>| {
        let size = if h.u32(4) == SHT_NOBITS { 0 } else { h.u64(32) };
        Section {
            name: String::from_utf8_lossy(string(names, h.u32(0) as usize)).into_owned(),
            kind: h.u32(4),
            compressed: h.u64(8) & SHF_COMPRESSED != 0,
            link: h.u32(40) as usize,
            #[cfg(feature = "tables")]
            executable: h.u64(8) & SHF_EXECINSTR != 0 && h.u64(8) & SHF_ALLOC != 0,
            #[cfg(feature = "tables")]
            svma: h.u64(16)..h.u64(16).saturating_add(h.u64(32)),
            file: range(bytes, h.u64(24), size).unwrap_or(0..0),
        }
    };
    Ok(headers.iter().map(section).collect())
}

/// `count` entries of `size` bytes at `offset`.
fn table(
    bytes: &[u8],
    offset: u64,
    size: usize,
    count: u64,
) -> Result<std::slice::ChunksExact<'_, u8>, Error> {
    let length = count
        .checked_mul(size as u64)
        .ok_or(Error::Truncated { offset })?;
    let range = range(bytes, offset, length).ok_or(Error::Truncated { offset })?;
    Ok(bytes[range].chunks_exact(size))
}

/// A byte range of the file, when it is inside.
fn range(bytes: &[u8], offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

/// The NUL-terminated string at `at`; empty outside.
pub(crate) fn string(bytes: &[u8], at: usize) -> &[u8] {
    let rest = bytes.get(at..).unwrap_or(&[]);
    rest.split(|&b| b == 0).next().unwrap_or(&[])
}

/// The GNU build id among notes.
fn note(notes: &[u8]) -> Option<&[u8]> {
    named_note(notes, b"GNU\0", NT_GNU_BUILD_ID)
}

/// Contents of the note of this owner and kind.
pub(crate) fn named_note<'a>(mut notes: &'a [u8], owner: &[u8], kind: u32) -> Option<&'a [u8]> {
    while notes.len() >= 12 {
        let f = Fields(notes);
        let data = 12usize.checked_add((f.u32(0) as usize).checked_next_multiple_of(4)?)?;
        let end = data.checked_add(f.u32(4) as usize)?;
        if f.u32(8) == kind && notes.get(12..data)? == owner {
            return notes.get(data..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Segment;

    #[test]
    fn a_segment_without_end_holds_nothing_before_it() {
        let forged = Segment {
            file_offset: 10,
            file_size: u64::MAX,
            svma: u64::MAX - 1,
            memory_size: u64::MAX,
            executable: true,
        };
        assert_eq!(forged.svma_of(9), None);
        assert_eq!(forged.svma_of(11), Some(u64::MAX));
        assert_eq!(forged.svma_of(13), Some(1));
    }
}
