//! Bytes of column chunks → rows and symbols. Every checksum and index is checked here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::manifest::{Chunk, PartFiles, RowGroup};
use super::schema::{self, FIRST_VALUE, LABELS, LISTS, PROFILE_LISTS, STACK};
use crate::segment::{
    Damage, Function, Label, Lines, Locations, Mapping, PartHeader, Strings, Symbols,
};

/// A profile of a block; in a roll-up, all profiles of one series and one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockRow {
    /// Index into the part's series.
    pub series: u32,
    /// Index into the part's type sets.
    pub type_set: u32,
    /// Start (of the first), Unix nanoseconds.
    pub time_ns: i64,
    /// Nanoseconds (summed); 0 = unknown.
    pub duration_ns: i64,
    /// Sampling period in period units (the largest); 0 = unknown.
    pub period: i64,
    /// Identity of the push; 0 = none.
    pub id: u128,
    /// Profiles in it: 1, or more in a roll-up.
    pub profiles: u32,
    /// Samples of these profiles as they were pushed.
    pub samples: u64,
    /// First row of the part.
    pub first_row: u64,
    /// Rows.
    pub rows: u32,
    /// First entry in [`Profiles::totals`]; one a value column.
    pub first_total: u32,
}

/// The profiles of a part, in the order of their rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profiles {
    /// Sorted by (type set, series, time).
    pub rows: Vec<BlockRow>,
    /// Sum of each value column of each profile.
    pub totals: Vec<i64>,
}

/// What the symbols file says of a service: every index in it is valid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sidecar {
    /// Profiles.
    pub profiles: Profiles,
    /// Node of each stack id.
    pub stack_nodes: Vec<u32>,
    /// Names.
    pub symbols: Symbols,
}

impl Sidecar {
    /// Heap bytes, for the cache's budget.
    pub fn heap_bytes(&self) -> usize {
        self.profiles.rows.len() * size_of::<BlockRow>()
            + self.profiles.totals.len() * 8
            + self.stack_nodes.len() * 4
            + self.symbols.heap_bytes()
    }
}

const SYMBOLS: &str = "symbols";
const SAMPLES: &str = "samples";

fn content<T>(section: &'static str, offset: usize, what: &'static str) -> Result<T, Damage> {
    Err(Damage::Content {
        section,
        offset,
        what,
    })
}

fn parquet_error(section: &'static str) -> impl Fn(ParquetError) -> Damage {
    move |_| Damage::Content {
        section,
        offset: 0,
        what: "a column does not decode, though its checksum holds",
    }
}

/// The library panics on some bytes that it did not write; a checksum that holds makes these
/// unlikely, not impossible.
fn guarded<T>(
    section: &'static str,
    work: impl FnOnce() -> Result<T, Damage>,
) -> Result<T, Damage> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| content(section, 0, "decoding a column panicked"))
}

/// Where the bytes of several chunks stand that are neighbours in the file.
pub fn span(chunks: &[Chunk]) -> std::ops::Range<u64> {
    let start = chunks.first().map_or(0, |chunk| chunk.offset);
    let end = chunks.last().map_or(0, |chunk| chunk.offset + chunk.len);
    start..end.max(start)
}

/// Chunks of the profiles alone, a front part of [`PartFiles::symbols`].
pub fn profile_chunks(part: &PartFiles) -> &[Chunk] {
    &part.symbols[..=PROFILE_LISTS]
}

fn checked(
    chunk: &Chunk,
    bytes: &Bytes,
    base: u64,
    section: &'static str,
) -> Result<Bytes, Damage> {
    let from = chunk.offset.wrapping_sub(base) as usize;
    let to = from.saturating_add(chunk.len as usize);
    if to > bytes.len() {
        let (have, want) = (bytes.len() as u64, to as u64);
        return Err(Damage::Length {
            what: section,
            have,
            want,
        });
    }
    let slice = bytes.slice(from..to);
    if crc32fast::hash(&slice) != chunk.crc {
        return Err(Damage::Checksum(section));
    }
    Ok(slice)
}

/// A reader over one chunk that was read and checked. What the file's footer says of it is known:
/// the schema is that of the version, and each chunk is zstd.
fn column<T: DataType>(
    descr: ColumnDescPtr,
    chunk: Bytes,
    rows: u64,
) -> Result<ColumnReaderImpl<T>, ParquetError> {
    let meta = ColumnChunkMetaData::builder(descr.clone())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_num_values(rows as i64)
        .set_data_page_offset(0)
        .set_total_compressed_size(chunk.len() as i64)
        .build()?;
    let pages = SerializedPageReader::new(Arc::new(chunk), &meta, rows as usize, None)?;
    Ok(ColumnReaderImpl::new(descr, Box::new(pages)))
}

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
        let fail = parquet_error(SYMBOLS);
        let mut reader = column::<T>(symbols_columns()?[at].clone(), bytes, 1).map_err(&fail)?;
        let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
        reader
            .read_records(1, Some(&mut defined), Some(&mut repeated), &mut values)
            .map_err(&fail)?;
        Ok(values)
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
        let mut id = [0; 16];
        let bytes = ids[at].data();
        if bytes.len() != id.len() {
            return content(SYMBOLS, at, "an identity is not 16 bytes long");
        }
        id.copy_from_slice(bytes);
        rows.push(BlockRow {
            series: series[at],
            type_set: sets[at],
            time_ns: times[at],
            duration_ns: durations[at],
            period: periods[at],
            id: u128::from_le_bytes(id),
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

/// Reads rows of one row group, forwards. Give it the bytes of the columns that are wanted.
pub struct Rows {
    stack: ColumnReaderImpl<Int32Type>,
    labels: Option<ColumnReaderImpl<Int32Type>>,
    values: Vec<ColumnReaderImpl<Int64Type>>,
    /// Stack ids of the last [`Rows::read`].
    pub stacks: Vec<i32>,
    /// Label sets of the last read; empty when they were not asked for.
    pub label_sets: Vec<i32>,
    /// Values of the last read, a vector a column that was asked for.
    pub columns: Vec<Vec<i64>>,
}

fn samples_columns() -> Result<&'static [ColumnDescPtr], Damage> {
    static COLUMNS: OnceLock<Vec<ColumnDescPtr>> = OnceLock::new();
    if let Some(columns) = COLUMNS.get() {
        return Ok(columns);
    }
    // All value columns are of one kind: the first stands for each.
    let root = schema::samples(1).map_err(parquet_error(SAMPLES))?;
    Ok(COLUMNS.get_or_init(|| schema::leaves(root).columns().to_vec()))
}

impl Rows {
    /// Chunks to read for label sets (if wanted) and some value columns; stacks are always read.
    pub fn wanted(group: &RowGroup, labels: bool, values: &[usize]) -> Vec<Chunk> {
        let labels = labels.then_some(LABELS);
        let values = values.iter().map(|value| FIRST_VALUE + value);
        let columns = std::iter::once(STACK).chain(labels).chain(values);
        columns.map(|column| group.chunks[column]).collect()
    }

    /// Opens a row group, given the bytes of each of [`Rows::wanted`].
    ///
    /// # Errors
    /// When a bit of them changed.
    pub fn open(
        group: &RowGroup,
        labels: bool,
        values: usize,
        chunks: Vec<(Chunk, Vec<u8>)>,
    ) -> Result<Self, Damage> {
        let descr = samples_columns()?;
        let mut chunks = chunks
            .into_iter()
            .map(|(chunk, bytes)| checked(&chunk, &Bytes::from(bytes), chunk.offset, SAMPLES));
        let mut next = || {
            chunks
                .next()
                .unwrap_or(content(SAMPLES, 0, "a column is missing"))
        };
        let fail = parquet_error(SAMPLES);
        let stack = column(descr[STACK].clone(), next()?, group.rows).map_err(&fail)?;
        let labels = if labels {
            Some(column(descr[LABELS].clone(), next()?, group.rows).map_err(&fail)?)
        } else {
            None
        };
        let mut readers = Vec::with_capacity(values);
        for _ in 0..values {
            let reader = column(descr[FIRST_VALUE].clone(), next()?, group.rows);
            readers.push(reader.map_err(&fail)?);
        }
        Ok(Self {
            stack,
            labels,
            columns: vec![Vec::new(); readers.len()],
            values: readers,
            stacks: Vec::new(),
            label_sets: Vec::new(),
        })
    }

    /// Reads the next `n` rows in the place of those read before.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn read(&mut self, n: usize) -> Result<(), Damage> {
        self.stacks.clear();
        self.label_sets.clear();
        guarded(SAMPLES, || {
            fill(&mut self.stack, n, &mut self.stacks)?;
            if let Some(labels) = &mut self.labels {
                fill(labels, n, &mut self.label_sets)?;
            }
            for (reader, column) in self.values.iter_mut().zip(&mut self.columns) {
                column.clear();
                fill(reader, n, column)?;
            }
            Ok(())
        })
    }

    /// Reads the next `n` rows in pieces that fit the processor's cache.
    ///
    /// # Errors
    /// When there are fewer, or what `visit` answers.
    pub fn each(
        &mut self,
        mut n: u64,
        mut visit: impl FnMut(&Self) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        while n > 0 {
            let now = n.min(schema::PIECE_ROWS as u64);
            self.read(now as usize)?;
            visit(self)?;
            n -= now;
        }
        Ok(())
    }

    /// Passes over the next `n` rows; whole pages are not even inflated.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn skip(&mut self, n: usize) -> Result<(), Damage> {
        if n == 0 {
            return Ok(());
        }
        guarded(SAMPLES, || {
            skip(&mut self.stack, n)?;
            if let Some(labels) = &mut self.labels {
                skip(labels, n)?;
            }
            self.values
                .iter_mut()
                .try_for_each(|reader| skip(reader, n))
        })
    }
}

fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    out: &mut Vec<T::T>,
) -> Result<(), Damage> {
    let read = reader.read_records(n, None, None, out);
    let (records, _, _) = read.map_err(parquet_error(SAMPLES))?;
    if records != n {
        return content(
            SAMPLES,
            records,
            "a column has fewer rows than its row group",
        );
    }
    Ok(())
}

fn skip<T: DataType>(reader: &mut ColumnReaderImpl<T>, n: usize) -> Result<(), Damage> {
    let skipped = reader.skip_records(n).map_err(parquet_error(SAMPLES))?;
    if skipped != n {
        return content(
            SAMPLES,
            skipped,
            "a column has fewer rows than its row group",
        );
    }
    Ok(())
}
