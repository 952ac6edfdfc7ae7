//! Segment in memory → bytes.

use super::symbols::Symbols;
use super::wire::{put_bytes, put_int, put_uint};
use super::{Header, Part, PartHeader, Profiles, Section, SeriesEntry, TypeSet, VERSION};

/// Header fields that the parts do not give.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// See [`Header::level`].
    pub level: u32,
    /// See [`Header::created_ns`].
    pub created_ns: i64,
    /// See [`Header::replaces`].
    pub replaces: Vec<String>,
}

/// Encodes a segment; `zstd_level` trades CPU for bytes.
///
/// # Errors
/// Only when zstd fails to allocate.
pub fn encode(
    about: About,
    parts: Vec<(PartHeader, Part)>,
    zstd_level: i32,
) -> std::io::Result<(Header, Vec<u8>)> {
    let mut body = Vec::new();
    let mut headers = Vec::with_capacity(parts.len());
    // Making a context costs as much as compressing a small part.
    let mut zstd = zstd::bulk::Compressor::new(zstd_level)?;
    for (mut header, part) in parts {
        let raws = [
            encode_profiles(&part.profiles),
            encode_samples(&part),
            symbols(&part.symbols),
        ];
        for (section, raw) in header.sections.iter_mut().zip(raws) {
            let stored = zstd.compress(&raw)?;
            *section = Section {
                offset: body.len() as u64,
                stored: stored.len() as u64,
                raw: raw.len() as u64,
                crc: crc32fast::hash(&stored),
            };
            body.extend_from_slice(&stored);
        }
        headers.push(header);
    }
    let mut header = Header {
        level: about.level,
        created_ns: about.created_ns,
        replaces: about.replaces,
        parts: headers,
        file_len: 0,
    };
    let index = encode_header(&header, 0);
    let base = (super::FIXED_LEN + index.len()) as u64;
    header.file_len = base + body.len() as u64;
    let mut file = with_fixed(&index, header.file_len);
    file.extend_from_slice(&body);
    // Offsets are written relative to the end of the header; in memory they count from the start.
    for section in header.parts.iter_mut().flat_map(|part| &mut part.sections) {
        section.offset += base;
    }
    Ok((header, file))
}

/// The first bytes of the segment's file again, from its header in memory.
pub fn header_bytes(header: &Header) -> Vec<u8> {
    // The first section begins where the header ends.
    let base = header
        .parts
        .first()
        .map_or(0, |part| part.sections[0].offset);
    with_fixed(&encode_header(header, base), header.file_len)
}

fn with_fixed(index: &[u8], file_len: u64) -> Vec<u8> {
    fixed(super::MAGIC, VERSION, index, file_len)
}

/// The start that segments and the manifests of blocks share: magic, version, lengths, checksum.
pub(crate) fn fixed(magic: &[u8; 4], version: u32, index: &[u8], file_len: u64) -> Vec<u8> {
    let mut file = Vec::with_capacity(super::FIXED_LEN + index.len());
    file.extend_from_slice(magic);
    file.extend_from_slice(&version.to_le_bytes());
    file.extend_from_slice(&file_len.to_le_bytes());
    file.extend_from_slice(&(index.len() as u32).to_le_bytes());
    // The checksum covers the fixed part too, so that no bit of the file is unguarded.
    let mut crc = crc32fast::Hasher::new();
    crc.update(&file);
    crc.update(index);
    file.extend_from_slice(&crc.finalize().to_le_bytes());
    file.extend_from_slice(index);
    file
}

/// `base`: where the header ends, which section offsets count from on disk.
fn encode_header(header: &Header, base: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_uint(&mut out, header.level.into());
    put_int(&mut out, header.created_ns);
    put_uint(&mut out, header.replaces.len() as u64);
    header
        .replaces
        .iter()
        .for_each(|name| put_bytes(&mut out, name.as_bytes()));
    put_uint(&mut out, header.parts.len() as u64);
    for part in &header.parts {
        part_about(&mut out, part);
        for section in &part.sections {
            put_uint(&mut out, section.offset - base);
            put_uint(&mut out, section.stored);
            put_uint(&mut out, section.raw);
            out.extend_from_slice(&section.crc.to_le_bytes());
        }
    }
    out
}

/// What a part is about: everything of its header but where its bytes stand.
pub(crate) fn part_about(out: &mut Vec<u8>, part: &PartHeader) {
    put_bytes(out, part.service.as_bytes());
    put_uint(out, part.type_sets.len() as u64);
    part.type_sets.iter().for_each(|set| type_set(out, set));
    put_uint(out, part.series.len() as u64);
    part.series.iter().for_each(|entry| series(out, entry));
    put_uint(out, part.samples);
}

fn type_set(out: &mut Vec<u8>, set: &TypeSet) {
    for text in [&set.name, &set.period_type, &set.period_unit] {
        put_bytes(out, text.as_bytes());
    }
    put_uint(out, set.values.len() as u64);
    for (kind, unit) in &set.values {
        put_bytes(out, kind.as_bytes());
        put_bytes(out, unit.as_bytes());
    }
}

fn series(out: &mut Vec<u8>, entry: &SeriesEntry) {
    put_uint(out, entry.labels.len() as u64);
    for (name, value) in &entry.labels {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
    put_uint(out, entry.type_sets.len() as u64);
    entry
        .type_sets
        .iter()
        .for_each(|&set| put_uint(out, set.into()));
    put_int(out, entry.min_time_ns);
    put_int(out, entry.max_time_ns);
    put_uint(out, entry.profiles);
}

fn encode_profiles(profiles: &Profiles) -> Vec<u8> {
    let rows = &profiles.rows;
    let mut out = Vec::with_capacity(rows.len() * 40);
    put_uint(&mut out, rows.len() as u64);
    rows.iter()
        .for_each(|row| put_uint(&mut out, row.series.into()));
    rows.iter()
        .for_each(|row| put_uint(&mut out, row.type_set.into()));
    let mut last = 0;
    for row in rows {
        put_int(&mut out, row.time_ns.wrapping_sub(last));
        last = row.time_ns;
    }
    rows.iter()
        .for_each(|row| put_int(&mut out, row.duration_ns));
    rows.iter().for_each(|row| put_int(&mut out, row.period));
    rows.iter()
        .for_each(|row| out.extend_from_slice(&row.id.to_le_bytes()));
    rows.iter()
        .for_each(|row| put_uint(&mut out, row.samples.into()));
    profiles
        .totals
        .iter()
        .for_each(|&total| put_int(&mut out, total));
    out
}

fn encode_samples(part: &Part) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.stacks.len() * 2 + part.values.len() * 2);
    for row in &part.profiles.rows {
        let mut last = 0;
        for &stack in part.row_stacks(row) {
            put_uint(&mut out, (stack - last).into());
            last = stack;
        }
    }
    out.push(u8::from(!part.label_sets.is_empty()));
    part.label_sets
        .iter()
        .for_each(|&set| put_uint(&mut out, set.into()));
    part.values
        .iter()
        .for_each(|&value| put_int(&mut out, value));
    out
}

fn symbols(symbols: &Symbols) -> Vec<u8> {
    let mut out = Vec::with_capacity(symbols.heap_bytes() / 2);
    let strings = &symbols.strings;
    put_uint(&mut out, strings.count() as u64);
    (0..strings.count() as u32).for_each(|id| put_uint(&mut out, strings.get(id).len() as u64));
    out.extend_from_slice(&strings.bytes);
    put_uint(&mut out, symbols.functions.len() as u64);
    for function in &symbols.functions {
        put_uint(&mut out, function.name.into());
        put_uint(&mut out, function.system_name.into());
        put_uint(&mut out, function.filename.into());
        put_int(&mut out, function.start_line);
    }
    put_uint(&mut out, symbols.mappings.len() as u64);
    for mapping in &symbols.mappings {
        put_uint(&mut out, mapping.start);
        put_uint(&mut out, mapping.limit);
        put_uint(&mut out, mapping.offset);
        put_uint(&mut out, mapping.filename.into());
        put_uint(&mut out, mapping.build_id.into());
        put_uint(&mut out, mapping.flags.into());
    }
    locations(&mut out, symbols);
    // Nodes: distance to the parent is small, because children follow their parents.
    put_uint(&mut out, symbols.parents.len() as u64 - 1);
    for (node, &parent) in symbols.parents.iter().enumerate().skip(1) {
        put_uint(&mut out, node as u64 - u64::from(parent));
    }
    symbols.node_locations[1..]
        .iter()
        .for_each(|&location| put_uint(&mut out, location.into()));
    label_sets(&mut out, symbols);
    out
}

fn locations(out: &mut Vec<u8>, symbols: &Symbols) {
    let columns = &symbols.locations;
    put_uint(out, columns.count() as u64 - 1);
    for at in 1..columns.count() {
        let lines = columns.lines(at as u32);
        put_uint(
            out,
            u64::from(columns.mapping[at]) << 1 | u64::from(columns.folded[at]),
        );
        // Relative to the mapping: shorter, and the same wherever the file was mapped.
        let base = match columns.mapping[at] {
            0 => 0,
            mapping => symbols.mappings[mapping as usize - 1].start,
        };
        put_uint(out, columns.address[at].wrapping_sub(base));
        put_uint(out, lines.len() as u64);
        for line in lines {
            put_uint(out, line.function.into());
            put_int(out, line.line);
            put_int(out, line.column);
        }
    }
}

fn label_sets(out: &mut Vec<u8>, symbols: &Symbols) {
    put_uint(out, symbols.label_set_ends.len() as u64 - 1);
    for set in 1..symbols.label_set_ends.len() as u32 {
        let labels = symbols.label_set(set);
        put_uint(out, labels.len() as u64);
        for label in labels {
            put_uint(out, label.key.into());
            put_uint(out, label.text.into());
            put_int(out, label.number);
            put_uint(out, label.unit.into());
        }
    }
}
