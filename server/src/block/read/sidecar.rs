//! Profiles and names of the symbols file.

use std::sync::OnceLock;

use bytes::Bytes;
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::schema::types::ColumnDescPtr;

use super::super::manifest::{Chunk, PartFiles};
use super::super::schema::{self, LISTS, PROFILE_ID};
use super::{
    BlockRow, Profiles, SYMBOLS, Sidecar, checked, column, content, guarded, parquet_error,
};
use crate::segment::{
    Damage, Function, Label, Lines, Locations, Mapping, PartHeader, Strings, Symbols,
};

fn symbols_columns() -> Result<&'static [ColumnDescPtr], Damage> {
    static COLUMNS: OnceLock<Vec<ColumnDescPtr>> = OnceLock::new();
    if let Some(columns) = COLUMNS.get() {
        return Ok(columns);
    }
    let root = schema::symbols().map_err(parquet_error(SYMBOLS))?;
    Ok(COLUMNS.get_or_init(|| schema::leaves(root).columns().to_vec()))
}

/// Lists of one row of the symbols file.
struct Lists<'a> {
    chunks: &'a [Chunk],
    bytes: Bytes,
    at: usize,
}

impl Lists<'_> {
    fn list<T: DataType>(&mut self) -> Result<Vec<T::T>, Damage> {
        let at = self.at;
        self.at += 1;
        let base = self.chunks[0].offset;
        let bytes = checked(&self.chunks[at], &self.bytes, base, SYMBOLS)?;
        list_of::<T>(symbols_columns()?[at].clone(), bytes)
    }

    fn u32s(&mut self) -> Result<Vec<u32>, Damage> {
        let values = self.list::<Int32Type>()?;
        Ok(values.into_iter().map(|value| value as u32).collect())
    }

    /// Numbers below `limit`.
    fn ids(&mut self, limit: usize, what: &'static str) -> Result<Vec<u32>, Damage> {
        let values = self.u32s()?;
        match values.iter().position(|&value| value as usize >= limit) {
            Some(at) => content(SYMBOLS, at, what),
            None => Ok(values),
        }
    }

    fn i64s(&mut self) -> Result<Vec<i64>, Damage> {
        self.list::<Int64Type>()
    }

    /// Ends of ranges over a list of `len`: rising, the last one being the end.
    fn ends(&mut self) -> Result<Vec<u32>, Damage> {
        let ends = self.u32s()?;
        match ends.windows(2).position(|pair| pair[1] < pair[0]) {
            Some(at) => content(SYMBOLS, at, "ends of ranges do not rise"),
            None if ends.is_empty() => content(SYMBOLS, 0, "the first range is missing"),
            None => Ok(ends),
        }
    }
}

fn equal(lens: &[usize], len: usize) -> Result<(), Damage> {
    if lens.iter().all(|&other| other == len) {
        Ok(())
    } else {
        content(SYMBOLS, 0, "lists of one table differ in length")
    }
}

/// Reads the profiles of a part, given the bytes of [`profile_chunks`].
///
/// # Errors
/// When a bit of them changed.
pub fn read_profiles(
    header: &PartHeader,
    part: &PartFiles,
    bytes: Vec<u8>,
) -> Result<Profiles, Damage> {
    let mut lists = Lists {
        chunks: &part.symbols,
        bytes: bytes.into(),
        at: 1,
    };
    guarded(SYMBOLS, || profiles(header, part, &mut lists))
}

/// The identities of a part's profiles alone, given the bytes of [`id_chunk`](super::id_chunk).
///
/// # Errors
/// When a bit of them changed.
pub fn read_ids(part: &PartFiles, bytes: Vec<u8>) -> Result<Vec<u128>, Damage> {
    guarded(SYMBOLS, || {
        let chunk = &super::id_chunk(part)[0];
        let bytes = checked(chunk, &bytes.into(), chunk.offset, SYMBOLS)?;
        let descr = symbols_columns()?[PROFILE_ID].clone();
        let ids = list_of::<FixedLenByteArrayType>(descr, bytes)?;
        ids.iter()
            .enumerate()
            .map(|(at, id)| identity(at, id))
            .collect()
    })
}

fn identity(at: usize, id: &FixedLenByteArray) -> Result<u128, Damage> {
    match id.data().try_into() {
        Ok(bytes) => Ok(u128::from_le_bytes(bytes)),
        Err(_) => content(SYMBOLS, at, "an identity is not 16 bytes long"),
    }
}

fn list_of<T: DataType>(descr: ColumnDescPtr, bytes: Bytes) -> Result<Vec<T::T>, Damage> {
    let fail = parquet_error(SYMBOLS);
    let mut reader = column::<T>(descr, bytes, 1).map_err(&fail)?;
    let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
    reader
        .read_records(1, Some(&mut defined), Some(&mut repeated), &mut values)
        .map_err(&fail)?;
    Ok(values)
}

fn profiles(header: &PartHeader, part: &PartFiles, lists: &mut Lists) -> Result<Profiles, Damage> {
    let series = lists.ids(header.series.len(), "no such series")?;
    let sets = lists.ids(header.type_sets.len(), "no such type set")?;
    let times = lists.i64s()?;
    let durations = lists.i64s()?;
    let periods = lists.i64s()?;
    let ids: Vec<FixedLenByteArray> = lists.list::<FixedLenByteArrayType>()?;
    let counts = lists.u32s()?;
    let samples = lists.i64s()?;
    let row_counts = lists.u32s()?;
    let totals = lists.i64s()?;
    let n = series.len();
    let lens = [sets.len(), times.len(), durations.len(), periods.len()];
    equal(&lens, n)?;
    equal(
        &[ids.len(), counts.len(), samples.len(), row_counts.len()],
        n,
    )?;
    let (mut rows, mut first_row, mut first_total) = (Vec::with_capacity(n), 0_u64, 0_usize);
    for at in 0..n {
        rows.push(BlockRow {
            series: series[at],
            type_set: sets[at],
            time_ns: times[at],
            duration_ns: durations[at],
            period: periods[at],
            id: identity(at, &ids[at])?,
            profiles: counts[at],
            samples: samples[at] as u64,
            first_row,
            rows: row_counts[at],
            first_total: first_total as u32,
        });
        first_row += u64::from(row_counts[at]);
        first_total += header.type_sets[sets[at] as usize].values.len();
    }
    let stored: u64 = part.groups.iter().map(|group| group.rows).sum();
    if first_row != stored {
        return content(SYMBOLS, n, "the row groups hold another number of rows");
    }
    if first_total != totals.len() {
        return content(SYMBOLS, n, "another number of totals than of values");
    }
    Ok(Profiles { rows, totals })
}

/// Reads a part's row of the symbols file, given the bytes of all its chunks.
///
/// # Errors
/// When a bit of it changed.
pub fn read_sidecar(
    header: &PartHeader,
    part: &PartFiles,
    bytes: Vec<u8>,
) -> Result<Sidecar, Damage> {
    let mut lists = Lists {
        chunks: &part.symbols,
        bytes: bytes.into(),
        at: 0,
    };
    guarded(SYMBOLS, || {
        let base = part.symbols[0].offset;
        checked(&part.symbols[0], &lists.bytes, base, SYMBOLS)?;
        lists.at = 1;
        let profiles = profiles(header, part, &mut lists)?;
        let (stack_nodes, symbols) = symbols(&mut lists)?;
        Ok(Sidecar {
            profiles,
            stack_nodes,
            symbols,
        })
    })
}

fn symbols(lists: &mut Lists) -> Result<(Vec<u32>, Symbols), Damage> {
    debug_assert_eq!(lists.chunks.len(), LISTS.len() + 1);
    let stack_nodes = lists.u32s()?;
    let parents = lists.u32s()?;
    let node_locations = lists.u32s()?;
    equal(&[node_locations.len()], parents.len())?;
    let late = parents.iter().enumerate().skip(1);
    if let Some((at, _)) = late.clone().find(|(at, parent)| **parent as usize >= *at) {
        return content(SYMBOLS, at, "a stack node must come after its parent");
    }
    if parents.first() != Some(&0) {
        return content(SYMBOLS, 0, "the root is missing");
    }
    below(&stack_nodes, parents.len(), "no such stack node")?;
    let locations = locations(lists)?;
    below(&node_locations, locations.count(), "no such location")?;
    let functions = functions(lists)?;
    let lines = &locations.lines;
    if lines
        .iter()
        .any(|line| line.function as usize >= functions.len())
    {
        return content(SYMBOLS, 0, "no such function");
    }
    let mappings = mappings(lists)?;
    below(&locations.mapping, mappings.len() + 1, "no such mapping")?;
    let (label_set_ends, labels) = labels(lists)?;
    let strings = strings(&lists.list::<ByteArrayType>()?)?;
    let count = strings.count() as u32;
    let known = |ids: &[u32]| ids.iter().all(|&id| id < count);
    let named = functions
        .iter()
        .all(|f| known(&[f.name, f.system_name, f.filename]))
        && mappings.iter().all(|m| known(&[m.filename, m.build_id]))
        && labels.iter().all(|l| known(&[l.key, l.text, l.unit]));
    if !named {
        return content(SYMBOLS, 0, "no such string");
    }
    let symbols = Symbols {
        strings,
        functions,
        mappings,
        locations,
        parents,
        node_locations,
        label_set_ends,
        labels,
    };
    Ok((stack_nodes, symbols))
}

fn below(ids: &[u32], limit: usize, what: &'static str) -> Result<(), Damage> {
    match ids.iter().position(|&id| id as usize >= limit) {
        Some(at) => content(SYMBOLS, at, what),
        None => Ok(()),
    }
}

fn locations(lists: &mut Lists) -> Result<Locations, Damage> {
    let mapping = lists.u32s()?;
    let folded: Vec<bool> = lists
        .u32s()?
        .into_iter()
        .map(|folded| folded != 0)
        .collect();
    let address: Vec<u64> = lists.i64s()?.into_iter().map(|at| at as u64).collect();
    let line_ends = lists.ends()?;
    equal(
        &[folded.len(), address.len(), line_ends.len()],
        mapping.len(),
    )?;
    let (functions, numbers, columns) = (lists.u32s()?, lists.i64s()?, lists.i64s()?);
    let last = line_ends.last().map_or(0, |&end| end as usize);
    equal(&[numbers.len(), columns.len(), last], functions.len())?;
    let lines = functions.into_iter().zip(numbers).zip(columns);
    let lines = lines.map(|((function, line), column)| Lines {
        function,
        line,
        column,
    });
    Ok(Locations {
        mapping,
        address,
        folded,
        line_ends,
        lines: lines.collect(),
    })
}

fn functions(lists: &mut Lists) -> Result<Vec<Function>, Damage> {
    let (names, system) = (lists.u32s()?, lists.u32s()?);
    let (files, starts) = (lists.u32s()?, lists.i64s()?);
    equal(&[system.len(), files.len(), starts.len()], names.len())?;
    let rows = (0..names.len()).map(|at| Function {
        name: names[at],
        system_name: system[at],
        filename: files[at],
        start_line: starts[at],
    });
    Ok(rows.collect())
}

fn mappings(lists: &mut Lists) -> Result<Vec<Mapping>, Damage> {
    let (starts, limits, offsets) = (lists.i64s()?, lists.i64s()?, lists.i64s()?);
    let (files, build_ids, flags) = (lists.u32s()?, lists.u32s()?, lists.u32s()?);
    let n = starts.len();
    equal(&[limits.len(), offsets.len(), files.len()], n)?;
    equal(&[build_ids.len(), flags.len()], n)?;
    let rows = (0..n).map(|at| Mapping {
        start: starts[at] as u64,
        limit: limits[at] as u64,
        offset: offsets[at] as u64,
        filename: files[at],
        build_id: build_ids[at],
        flags: flags[at],
    });
    Ok(rows.collect())
}

fn labels(lists: &mut Lists) -> Result<(Vec<u32>, Vec<Label>), Damage> {
    let ends = lists.ends()?;
    let (keys, texts, numbers, units) =
        (lists.u32s()?, lists.u32s()?, lists.i64s()?, lists.u32s()?);
    let n = ends.last().map_or(0, |&end| end as usize);
    equal(&[keys.len(), texts.len(), numbers.len(), units.len()], n)?;
    let rows = (0..n).map(|at| Label {
        key: keys[at],
        text: texts[at],
        number: numbers[at],
        unit: units[at],
    });
    Ok((ends, rows.collect()))
}

fn strings(values: &[ByteArray]) -> Result<Strings, Damage> {
    let mut strings = Strings::default();
    if values.first().is_none_or(|first| !first.data().is_empty()) {
        return content(SYMBOLS, 0, "the empty string is missing");
    }
    for value in &values[1..] {
        strings.push(value.data());
    }
    Ok(strings)
}
