//! Lines and inlined frames from DWARF, borrowed from the object's bytes.

use crate::elf::{Elf, Fields, Section};
use crate::memory::Share;
use addr2line::{Context, gimli};
use gimli::Section as _;
use gimli::{EndianSlice, LittleEndian};
use std::collections::HashSet;
use std::io::Read;
use std::sync::Mutex;

type Slice = EndianSlice<'static, LittleEndian>;

/// A frame as DWARF tells it.
pub(crate) struct Found {
    pub name: Option<Vec<u8>>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// What [`Dwarf::frames`] says.
pub(crate) enum Answer {
    /// Frames, innermost first; empty when DWARF does not know the address.
    Found(Vec<Found>),
    /// The unit of the address does not fit the memory.
    Refused,
}

/// The file has DWARF, whether it can be read or not.
pub(crate) fn is_there(elf: &Elf) -> bool {
    elf.section(".debug_info")
        .is_some_and(|s| !s.file.is_empty())
}

/// A parsed DWARF context. It borrows from the object's bytes and from `_inflated`, both of which
/// outlive it: fields drop in order, and [`crate::Object`] drops this before its bytes.
pub(crate) struct Dwarf {
    context: Mutex<Context<Slice>>,
    /// Offsets of the units that were read.
    units: Mutex<HashSet<usize>>,
    _inflated: Vec<Box<[u8]>>,
}

impl Dwarf {
    /// `None` when there is no usable DWARF, or no memory for it.
    ///
    /// # Safety
    /// `bytes` must stay in place and unchanged until the result is dropped.
    pub unsafe fn parse(bytes: &[u8], elf: &Elf, share: &Share) -> Option<Dwarf> {
        if !is_there(elf) || !share.take(inflated_bytes(bytes, elf)) {
            return None;
        }
        let mut inflated: Vec<Box<[u8]>> = Vec::new();
        let mut section = |id: gimli::SectionId| {
            let Some(section) = elf.section(id.name()) else {
                return EndianSlice::default();
            };
            let raw = &bytes[section.file.clone()];
            let data: &[u8] = if section.compressed {
                inflated.push(inflate(raw, section).unwrap_or_default());
                inflated.last().map_or(&[], |b| b)
            } else {
                raw
            };
            // SAFETY: `bytes` outlives the result by this function's contract; the contents of a
            // boxed slice do not move when the vector of boxes grows, and are kept with the
            // context that borrows them.
            let data = unsafe { std::slice::from_raw_parts(data.as_ptr(), data.len()) };
            EndianSlice::new(data, LittleEndian)
        };
        let load = |id| Ok::<Slice, gimli::Error>(section(id));
        let dwarf = gimli::Dwarf::load(load).ok()?;
        if !share.take(index_bytes(&dwarf)) {
            return None;
        }
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Dwarf {
            context: Mutex::new(context),
            units: Mutex::default(),
            _inflated: inflated,
        })
    }

    /// Frames at `svma`.
    pub fn frames(&self, svma: u64, share: &Share) -> Answer {
        // A panic inside addr2line leaves only unfilled caches behind.
        let context = self
            .context
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if !self.may_read(&context, svma, share) {
            return Answer::Refused;
        }
        let mut found = Vec::new();
        // Split DWARF is not loaded: skeleton units still give lines.
        let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else {
            return Answer::Found(found);
        };
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location;
            found.push(Found {
                name: frame.function.map(|f| f.name.slice().to_vec()),
                file: location.as_ref().and_then(|l| l.file).map(str::to_owned),
                line: location.and_then(|l| l.line),
            });
        }
        Answer::Found(found)
    }

    /// Takes the memory for the unit that `svma` lies in, unless it is read already.
    fn may_read(&self, context: &Context<Slice>, svma: u64, share: &Share) -> bool {
        let Some(unit) = context.find_dwarf_and_unit(svma).skip_all_loads() else {
            return true;
        };
        let offset = unit
            .header
            .debug_info_offset()
            .map_or(usize::MAX, |offset| offset.0);
        let mut units = self
            .units
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if units.contains(&offset) {
            return true;
        }
        let lines = unit.line_program.as_ref();
        let lines = lines.map_or(0, |program| program.header().raw_program_buf().len());
        let fits = share.take(unit_bytes(unit.header.unit_length(), lines));
        if fits {
            units.insert(offset);
        }
        fits
    }
}

/// Bytes of all debug sections that are stored compressed.
fn inflated_bytes(bytes: &[u8], elf: &Elf) -> usize {
    let debug = elf
        .sections
        .iter()
        .filter(|s| s.name.starts_with(".debug_") && s.compressed);
    debug.map(|s| inflated_size(&bytes[s.file.clone()])).sum()
}

/// Bytes that the index of all units takes: each has its header and its own copy of its
/// abbreviations, and stands in a table by address ranges of 32 bytes each.
fn index_bytes(dwarf: &gimli::Dwarf<Slice>) -> usize {
    const UNIT: usize = 1024;
    let mut tables = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        tables.push(unit.debug_abbrev_offset().0);
    }
    let count = tables.len();
    tables.sort_unstable();
    // A table reaches to the next one.
    let mut abbreviations = 0usize;
    let mut end = dwarf.debug_abbrev.reader().len();
    for same in tables.chunk_by(|a, b| a == b).rev() {
        let start = same.first().copied().unwrap_or(end);
        let length = end.saturating_sub(start);
        abbreviations = abbreviations.saturating_add(length.saturating_mul(same.len()));
        end = start;
    }
    // Bytes in memory for one in the file.
    (count * UNIT)
        .saturating_add(abbreviations.saturating_mul(12))
        .saturating_add(dwarf.debug_aranges.reader().len() * 2)
        .saturating_add(dwarf.ranges.debug_ranges().reader().len() * 2)
        .saturating_add(dwarf.ranges.debug_rnglists().reader().len() * 8)
}

/// Bytes that functions and lines of one unit take, from their bytes in the file.
fn unit_bytes(info: usize, lines: usize) -> usize {
    const INFO: usize = 4;
    const LINES: usize = 4;
    4096 + info * INFO + lines * LINES
}

/// What a compressed section says of its size. Deflate cannot exceed 1,032:1, so a lying size
/// reserves and inflates no more than that.
fn inflated_size(raw: &[u8]) -> usize {
    let most = raw.len().saturating_mul(1032);
    usize::try_from(Fields(raw).u64(8))
        .unwrap_or(most)
        .min(most)
}

/// `SHF_COMPRESSED` with zlib (Go's default); zstd would need a C build or another crate.
fn inflate(raw: &[u8], _section: &Section) -> Option<Box<[u8]>> {
    const ZLIB: u32 = 1;
    const HEADER: usize = 24;
    if Fields(raw).u32(0) != ZLIB {
        return None;
    }
    let size = inflated_size(raw) as u64;
    let mut out = Vec::new();
    let reader = flate2::read::ZlibDecoder::new(raw.get(HEADER..)?);
    reader.take(size).read_to_end(&mut out).ok()?;
    Some(out.into())
}
