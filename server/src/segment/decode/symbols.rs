//! The symbols section.

use super::super::symbols::{Function, Label, Lines, Locations, Mapping, Strings, Symbols};
use super::super::wire::{Damage, Reader};
use super::{MAX_RAW, list};

/// Names of a part, given the inflated section.
pub(super) fn decode_symbols(raw: &[u8]) -> Result<Symbols, Damage> {
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
