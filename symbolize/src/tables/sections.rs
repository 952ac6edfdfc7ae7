//! The debug sections of a file, as they are or inflated.

use super::Limits;
use crate::Error;
use crate::elf::{Elf, Fields};
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use std::io::Read;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

const ZLIB: u32 = 1;
const ZSTD: u32 = 2;
/// `Elf64_Chdr`.
const COMPRESSED_HEADER: usize = 24;

/// Inflated sections of one file; the others are read where they are.
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    pub elf: &'a Elf,
    inflated: Vec<(String, Box<[u8]>)>,
}

impl<'a> Sections<'a> {
    /// Inflates what is stored compressed, as far as `left_bytes` allows.
    pub fn load(
        bytes: &'a [u8],
        elf: &'a Elf,
        limits: &Limits,
        left_bytes: &mut u64,
    ) -> Result<Sections<'a>, Error> {
        let mut inflated = Vec::new();
        for section in &elf.sections {
            let raw = bytes.get(section.file.clone()).unwrap_or(&[]);
            let gnu = section.name.starts_with(".zdebug_");
            if raw.is_empty() || !(gnu || section.compressed && section.name.starts_with(".debug_"))
            {
                continue;
            }
            if !used(
                section
                    .name
                    .trim_start_matches(".zdebug_")
                    .trim_start_matches(".debug_"),
            ) {
                continue;
            }
            let data = if gnu {
                inflate_gnu(raw, *left_bytes)
            } else {
                inflate(raw, *left_bytes)
            };
            let data = data.ok_or(Error::Inflate {
                offset: section.file.start as u64,
            })?;
            if data.len() as u64 > *left_bytes {
                return Err(Error::Limit {
                    what: "bytes of inflated sections",
                    limit: limits.inflated_bytes,
                });
            }
            *left_bytes -= data.len() as u64;
            inflated.push((
                section.name.replace(".zdebug_", ".debug_"),
                data.into_boxed_slice(),
            ));
        }
        Ok(Sections {
            bytes,
            elf,
            inflated,
        })
    }

    /// Contents of a section; empty where there is none.
    pub fn get(&self, name: &str) -> &[u8] {
        if let Some((_, data)) = self.inflated.iter().find(|(n, _)| n == name) {
            return data;
        }
        let section = self.elf.section(name).filter(|s| !s.compressed);
        section
            .and_then(|s| self.bytes.get(s.file.clone()))
            .unwrap_or(&[])
    }

    fn slice(&self, name: &str) -> Slice<'_> {
        EndianSlice::new(self.get(name), LittleEndian)
    }

    /// The DWARF of an executable or a debug file.
    pub fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let load = |id: SectionId| Ok::<_, std::convert::Infallible>(self.slice(id.name()));
        match Dwarf::load(load) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }

    /// A section of a `.dwo` or `.dwp` file.
    pub fn split(&self, id: SectionId) -> Slice<'_> {
        id.dwo_name()
            .map_or_else(EndianSlice::default, |name| self.slice(name))
    }
}

/// Sections that name functions and lines; the rest stays as it is.
fn used(name: &str) -> bool {
    !matches!(
        name,
        "loc"
            | "loclists"
            | "frame"
            | "pubnames"
            | "pubtypes"
            | "gnu_pubnames"
            | "gnu_pubtypes"
            | "macro"
            | "macinfo"
            | "names"
            | "types"
            | "gdb_scripts"
    )
}

/// `SHF_COMPRESSED`. One byte more than allowed tells the caller that it is too much.
fn inflate(raw: &[u8], limit: u64) -> Option<Vec<u8>> {
    let size = Fields(raw).u64(8).min(limit.saturating_add(1));
    let data = raw.get(COMPRESSED_HEADER..)?;
    match Fields(raw).u32(0) {
        ZLIB => read(flate2::read::ZlibDecoder::new(data), size),
        ZSTD => read(zstd::stream::read::Decoder::new(data).ok()?, size),
        _ => None,
    }
}

/// `.zdebug_`: the magic and a big-endian size before zlib.
fn inflate_gnu(raw: &[u8], limit: u64) -> Option<Vec<u8>> {
    let size = raw.strip_prefix(b"ZLIB")?.get(..8)?;
    let size = u64::from_be_bytes(size.try_into().ok()?).min(limit.saturating_add(1));
    read(flate2::read::ZlibDecoder::new(raw.get(12..)?), size)
}

fn read(reader: impl Read, size: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // A lying size reserves no more than the data can be.
    out.try_reserve(usize::try_from(size).ok()?.min(64 << 20))
        .ok()?;
    reader.take(size).read_to_end(&mut out).ok()?;
    Some(out)
}
