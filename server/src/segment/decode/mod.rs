//! Bytes → segment in memory. Every index is checked here, so that nothing after it has to.

mod part;
mod symbols;

use super::wire::{Damage, Reader};
use super::{Header, PartHeader, Section, SeriesEntry, TypeSet, VERSION};

pub use part::{decode_part, decode_profiles};

/// Bytes before the header proper: magic, version, file length, header length, checksum.
pub const FIXED_LEN: usize = 24;

/// A section never inflates to more than this: a damaged length must not take the memory.
const MAX_RAW: u64 = 1 << 30;

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    let mut buffer = [0; 4];
    buffer.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(buffer)
}

/// How many bytes from the start of the file the whole header takes.
///
/// # Errors
/// When `start` (at least [`FIXED_LEN`] bytes of the file) is not the start of a segment.
pub fn header_len(start: &[u8]) -> Result<usize, Damage> {
    fixed_len(start, super::MAGIC, VERSION)
}

fn fixed_len(start: &[u8], magic: &[u8; 4], version: u32) -> Result<usize, Damage> {
    if start.len() < FIXED_LEN {
        let (have, want) = (start.len() as u64, FIXED_LEN as u64);
        return Err(Damage::Length {
            what: "file",
            have,
            want,
        });
    }
    if &start[..4] != magic {
        return Err(Damage::Magic);
    }
    match le_u32(start, 4) {
        known if known == version => Ok(FIXED_LEN + le_u32(start, 16) as usize),
        other => Err(Damage::Version(other)),
    }
}

/// Checks the start that segments and the manifests of blocks share; the answer is the header.
pub(crate) fn fixed<'a>(
    start: &'a [u8],
    magic: &[u8; 4],
    version: u32,
    file_len: u64,
) -> Result<&'a [u8], Damage> {
    let len = fixed_len(start, magic, version)?;
    if start.len() < len {
        let (have, want) = (start.len() as u64, len as u64);
        return Err(Damage::Length {
            what: "header",
            have,
            want,
        });
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&start[..20]);
    crc.update(&start[FIXED_LEN..len]);
    if crc.finalize() != le_u32(start, 20) {
        return Err(Damage::Checksum("header"));
    }
    let said = u64::from(le_u32(start, 8)) | u64::from(le_u32(start, 12)) << 32;
    if said != file_len {
        return Err(Damage::Length {
            what: "file",
            have: file_len,
            want: said,
        });
    }
    Ok(&start[FIXED_LEN..len])
}

/// Reads the header from the first bytes of a file of `file_len` bytes.
///
/// # Errors
/// When the file is no segment, was cut or grown, or a bit of the header changed.
pub fn decode_header(start: &[u8], file_len: u64) -> Result<Header, Damage> {
    let body = fixed(start, super::MAGIC, VERSION, file_len)?;
    let len = FIXED_LEN + body.len();
    let mut reader = Reader::new(body, "header");
    let mut header = Header {
        level: reader.u32()?,
        created_ns: reader.int()?,
        replaces: list(&mut reader, Reader::string)?,
        parts: list(&mut reader, part_header)?,
        file_len,
    };
    reader.end()?;
    for section in header.parts.iter_mut().flat_map(|part| &mut part.sections) {
        section.offset = section.offset.saturating_add(len as u64);
        if section.offset.saturating_add(section.stored) > file_len || section.raw > MAX_RAW {
            return reader.fail("a section reaches past the end of the file");
        }
    }
    Ok(header)
}

/// Reads a header that [`header_bytes`](super::header_bytes) wrote.
///
/// # Errors
/// When a bit of it changed.
pub fn header_from_index(bytes: &[u8]) -> Result<Header, Damage> {
    header_len(bytes)?;
    decode_header(
        bytes,
        u64::from(le_u32(bytes, 8)) | u64::from(le_u32(bytes, 12)) << 32,
    )
}

pub(crate) fn list<'a, T>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Damage>,
) -> Result<Vec<T>, Damage> {
    let count = reader.count()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}

fn part_header(reader: &mut Reader) -> Result<PartHeader, Damage> {
    let mut part = part_about(reader)?;
    for section in &mut part.sections {
        *section = Section {
            offset: reader.uint()?,
            stored: reader.uint()?,
            raw: reader.uint()?,
            crc: le_u32(reader.take(4)?, 0),
        };
    }
    Ok(part)
}

/// Everything of a part's header but where its bytes stand.
pub(crate) fn part_about(reader: &mut Reader) -> Result<PartHeader, Damage> {
    let service = reader.string()?;
    let type_sets = list(reader, type_set)?;
    let sets = type_sets.len();
    let series = list(reader, |reader| series(reader, sets))?;
    let samples = reader.uint()?;
    Ok(PartHeader {
        service,
        type_sets,
        series,
        samples,
        sections: [Section::default(); 3],
    })
}

fn type_set(reader: &mut Reader) -> Result<TypeSet, Damage> {
    Ok(TypeSet {
        name: reader.string()?,
        period_type: reader.string()?,
        period_unit: reader.string()?,
        values: list(reader, |reader| Ok((reader.string()?, reader.string()?)))?,
    })
}

fn series(reader: &mut Reader, type_sets: usize) -> Result<SeriesEntry, Damage> {
    Ok(SeriesEntry {
        labels: list(reader, |reader| Ok((reader.string()?, reader.string()?)))?,
        type_sets: list(reader, |reader| reader.index(type_sets, "no such type set"))?,
        min_time_ns: reader.int()?,
        max_time_ns: reader.int()?,
        profiles: reader.uint()?,
    })
}
