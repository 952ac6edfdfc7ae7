//! The sections of a part.

use super::super::wire::{Damage, Reader};
use super::super::{Part, PartHeader, ProfileRow, Profiles, Section};
use super::symbols::decode_symbols;

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
