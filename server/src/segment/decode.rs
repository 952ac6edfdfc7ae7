//! Bytes → segment in memory. Every index is checked here, so that nothing after it has to.

use super::symbols::{Function, Label, Lines, Locations, Mapping, Strings, Symbols};
use super::wire::{Damage, Reader};
use super::{
    Header, Part, PartHeader, ProfileRow, Profiles, Section, SeriesEntry, TypeSet, VERSION,
};

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

/// Checks and inflates the stored bytes of a section.
fn inflate(stored: &[u8], section: &Section, name: &'static str) -> Result<Vec<u8>, Damage> {
    if stored.len() as u64 != section.stored {
        let (have, want) = (stored.len() as u64, section.stored);
        return Err(Damage::Length {
            what: name,
            have,
            want,
        });
    }
    if crc32fast::hash(stored) != section.crc {
        return Err(Damage::Checksum(name));
    }
    let raw =
        zstd::bulk::decompress(stored, section.raw as usize).map_err(|_| Damage::Inflate(name))?;
    if raw.len() as u64 != section.raw {
        return Err(Damage::Inflate(name));
    }
    Ok(raw)
}

/// Reads the profiles section alone, given its stored bytes.
///
/// # Errors
/// When a bit of it changed.
pub fn decode_profiles(header: &PartHeader, stored: &[u8]) -> Result<Profiles, Damage> {
    let raw = inflate(stored, &header.sections[0], "profiles")?;
    let mut reader = Reader::new(&raw, "profiles");
    let count = reader.count()?;
    let blank = ProfileRow {
        series: 0,
        type_set: 0,
        time_ns: 0,
        duration_ns: 0,
        period: 0,
        id: 0,
        first_sample: 0,
        samples: 0,
        first_value: 0,
        first_total: 0,
    };
    let mut rows = vec![blank; count];
    for row in &mut rows {
        row.series = reader.index(header.series.len(), "no such series")?;
    }
    for row in &mut rows {
        row.type_set = reader.index(header.type_sets.len(), "no such type set")?;
    }
    let mut last = 0_i64;
    for row in &mut rows {
        last = last.wrapping_add(reader.int()?);
        row.time_ns = last;
    }
    for row in &mut rows {
        row.duration_ns = reader.int()?;
    }
    for row in &mut rows {
        row.period = reader.int()?;
    }
    for row in &mut rows {
        let mut id = [0; 16];
        id.copy_from_slice(reader.take(16)?);
        row.id = u128::from_le_bytes(id);
    }
    let (mut samples, mut values, mut totals) = (0_u64, 0_u64, 0_u64);
    for row in &mut rows {
        row.samples = reader.u32()?;
        let width = header.type_sets[row.type_set as usize].values.len() as u64;
        (row.first_sample, row.first_value) = (samples as u32, values as u32);
        row.first_total = totals as u32;
        samples += u64::from(row.samples);
        values += u64::from(row.samples) * width;
        totals += width;
        if values > u64::from(u32::MAX) || samples > u64::from(u32::MAX) {
            return reader.fail("more samples than a part can hold");
        }
    }
    if samples != header.samples {
        return reader.fail("sample count differs from the header's");
    }
    let mut sums = Vec::new();
    for _ in 0..totals {
        sums.push(reader.int()?);
    }
    reader.end()?;
    Ok(Profiles { rows, totals: sums })
}

/// Reads a part, given the stored bytes of its three sections in order.
///
/// # Errors
/// When a bit of it changed.
pub fn decode_part(header: &PartHeader, stored: [&[u8]; 3]) -> Result<Part, Damage> {
    let profiles = decode_profiles(header, stored[0])?;
    let symbols = decode_symbols(&inflate(stored[2], &header.sections[2], "symbols")?)?;
    let raw = inflate(stored[1], &header.sections[1], "samples")?;
    let mut reader = Reader::new(&raw, "samples");
    if header.samples > raw.len() as u64 {
        return reader.fail("fewer samples than the header says");
    }
    let nodes = symbols.parents.len() as u64;
    let mut stacks = Vec::with_capacity(header.samples as usize);
    let mut width = 0;
    for row in &profiles.rows {
        let mut last = 0_u64;
        for _ in 0..row.samples {
            last = last.saturating_add(reader.uint()?);
            if last >= nodes {
                return reader.fail("no such stack");
            }
            stacks.push(last as u32);
        }
        width += row.samples as usize * header.type_sets[row.type_set as usize].values.len();
    }
    let mut label_sets = Vec::new();
    if reader.take(1)?[0] != 0 {
        label_sets.reserve(stacks.len());
        for _ in 0..stacks.len() {
            label_sets.push(reader.index(symbols.label_set_ends.len(), "no such label set")?);
        }
    }
    if width > raw.len() {
        return reader.fail("fewer values than the profiles say");
    }
    let mut values = Vec::with_capacity(width);
    for _ in 0..width {
        values.push(reader.int()?);
    }
    reader.end()?;
    Ok(Part {
        profiles,
        stacks,
        label_sets,
        values,
        symbols,
    })
}

fn decode_symbols(raw: &[u8]) -> Result<Symbols, Damage> {
    let mut reader = Reader::new(raw, "symbols");
    let strings = decode_strings(&mut reader)?;
    let texts = strings.count();
    let functions = list(&mut reader, |reader| {
        Ok(Function {
            name: reader.index(texts, NO_STRING)?,
            system_name: reader.index(texts, NO_STRING)?,
            filename: reader.index(texts, NO_STRING)?,
            start_line: reader.int()?,
        })
    })?;
    let mappings = list(&mut reader, |reader| {
        Ok(Mapping {
            start: reader.uint()?,
            limit: reader.uint()?,
            offset: reader.uint()?,
            filename: reader.index(texts, NO_STRING)?,
            build_id: reader.index(texts, NO_STRING)?,
            flags: reader.u32()?,
        })
    })?;
    let locations = decode_locations(&mut reader, functions.len(), &mappings)?;
    let count = reader.count()?;
    let mut parents = vec![0];
    for node in 1..=count as u64 {
        let distance = reader.uint()?;
        if distance == 0 || distance > node {
            return reader.fail("a stack node must come after its parent");
        }
        parents.push((node - distance) as u32);
    }
    let mut node_locations = vec![0];
    for _ in 0..count {
        node_locations.push(reader.index(locations.count(), "no such location")?);
    }
    let (label_set_ends, labels) = decode_label_sets(&mut reader, texts)?;
    reader.end()?;
    Ok(Symbols {
        strings,
        functions,
        mappings,
        locations,
        parents,
        node_locations,
        label_set_ends,
        labels,
    })
}

const NO_STRING: &str = "no such string";

fn decode_strings(reader: &mut Reader) -> Result<Strings, Damage> {
    let count = reader.count()?;
    let mut end = 0_u64;
    let mut ends = Vec::with_capacity(count);
    for at in 0..count {
        end = end.saturating_add(reader.uint()?);
        if end > MAX_RAW || (at == 0 && end != 0) {
            return reader.fail("string lengths make no sense");
        }
        ends.push(end as u32);
    }
    if ends.is_empty() {
        return reader.fail("the empty string is missing");
    }
    Ok(Strings {
        bytes: reader.take(end as usize)?.to_vec(),
        ends,
    })
}

fn decode_locations(
    reader: &mut Reader,
    functions: usize,
    mappings: &[Mapping],
) -> Result<Locations, Damage> {
    let count = reader.count()?;
    let mut columns = Locations::default();
    for _ in 0..count {
        let head = reader.u32()?;
        let mapping = head >> 1;
        let base = match mapping {
            0 => 0,
            id if id as usize <= mappings.len() => mappings[id as usize - 1].start,
            _ => return reader.fail("no such mapping"),
        };
        columns.mapping.push(mapping);
        columns.folded.push(head & 1 != 0);
        columns.address.push(base.wrapping_add(reader.uint()?));
        for _ in 0..reader.count()? {
            columns.lines.push(Lines {
                function: reader.index(functions, "no such function")?,
                line: reader.int()?,
                column: reader.int()?,
            });
        }
        columns.line_ends.push(columns.lines.len() as u32);
    }
    Ok(columns)
}

fn decode_label_sets(reader: &mut Reader, texts: usize) -> Result<(Vec<u32>, Vec<Label>), Damage> {
    let count = reader.count()?;
    let (mut ends, mut labels) = (vec![0], Vec::new());
    for _ in 0..count {
        for _ in 0..reader.count()? {
            labels.push(Label {
                key: reader.index(texts, NO_STRING)?,
                text: reader.index(texts, NO_STRING)?,
                number: reader.int()?,
                unit: reader.index(texts, NO_STRING)?,
            });
        }
        ends.push(labels.len() as u32);
    }
    Ok((ends, labels))
}
