//! Rows and symbols in, the bytes of a block's two Parquet files out.

mod lists;

use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use self::lists::Lists;
use super::manifest::{Chunk, Files, PartFiles, RowGroup};
use super::read::{BlockRow, Profiles};
use super::schema::{self, GROUP_ROWS, Layout};
use super::{profile_text, series_text};
use crate::segment::{PartHeader, Symbols};

type FileWriter = SerializedFileWriter<Vec<u8>>;
type GroupWriter<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// A block in memory: its two Parquet files, and what the manifest says of them.
#[derive(Debug)]
pub struct Block {
    /// Bytes of the samples file.
    pub samples: Vec<u8>,
    /// Bytes of the symbols file.
    pub symbols: Vec<u8>,
    /// Parts, for the header.
    pub parts: Vec<PartHeader>,
    /// For the manifest.
    pub files: Files,
}

/// The rows of one profile, sorted by (stack, label set).
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    /// Stack ids: positions in the part's `stack_node`.
    pub stacks: Vec<i32>,
    /// Label sets; 0 = none.
    pub labels: Vec<i32>,
    /// One vector a value column of the profile's type set.
    pub values: Vec<Vec<i64>>,
}

/// Rows that wait for their row group.
#[derive(Default)]
struct Pending {
    type_set: u32,
    /// (series, time, rows) of each profile.
    runs: Vec<(u32, i64, usize)>,
    rows: Stacks,
}

/// The part under construction.
#[derive(Default)]
struct Open {
    service: ByteArray,
    series: Vec<ByteArray>,
    sets: Vec<ByteArray>,
    pending: Pending,
    profiles: Profiles,
    files: PartFiles,
    rows: u64,
}

/// Writes a block, part by part, profile by profile.
pub struct BlockWriter {
    samples: FileWriter,
    symbols: FileWriter,
    width: usize,
    open: Open,
    parts: Vec<PartHeader>,
    files: Vec<PartFiles>,
}

impl BlockWriter {
    /// A writer of an empty block with `width` value columns (at least 1).
    ///
    /// # Errors
    /// What the Parquet library says.
    pub fn new(layout: &Layout, width: usize) -> Result<Self> {
        let (rows, lists) = (schema::samples(width)?, schema::symbols()?);
        let properties = schema::samples_properties(layout, width)?;
        let symbols_properties = schema::symbols_properties(&lists)?;
        let mut writer = Self {
            samples: FileWriter::new(Vec::new(), rows, properties)?,
            symbols: FileWriter::new(Vec::new(), lists, symbols_properties)?,
            width,
            open: Open::default(),
            parts: Vec::new(),
            files: Vec::new(),
        };
        for file in [&mut writer.samples, &mut writer.symbols] {
            let version = Some(super::VERSION.to_string());
            file.append_key_value_metadata(KeyValue::new("pilotlight.block".to_owned(), version));
        }
        Ok(writer)
    }

    /// Begins a service. Its series and type sets must be complete and sorted.
    pub fn begin_part(&mut self, header: &PartHeader) {
        let series = header.series.iter().map(|entry| series_text(&entry.labels));
        let sets = header.type_sets.iter().map(profile_text);
        self.open = Open {
            service: header.service.as_str().into(),
            series: series.map(|text| text.as_str().into()).collect(),
            sets: sets.map(|text| text.as_str().into()).collect(),
            ..Open::default()
        };
    }

    /// Adds a profile; they come sorted by (type set, series, time). `row` says all but where its
    /// rows and totals stand.
    ///
    /// # Errors
    /// What the Parquet library says.
    pub fn add_profile(&mut self, row: &BlockRow, totals: &[i64], data: &Stacks) -> Result<()> {
        let count = data.stacks.len();
        let full = self.open.pending.rows.stacks.len() + count > GROUP_ROWS;
        if full || self.open.pending.type_set != row.type_set {
            self.flush()?;
        }
        let open = &mut self.open;
        open.pending.type_set = row.type_set;
        open.pending.runs.push((row.series, row.time_ns, count));
        let rows = &mut open.pending.rows;
        rows.stacks.extend_from_slice(&data.stacks);
        rows.labels.extend_from_slice(&data.labels);
        rows.values.resize(self.width, Vec::new());
        for (index, column) in rows.values.iter_mut().enumerate() {
            match data.values.get(index) {
                Some(values) => column.extend_from_slice(values),
                None => column.resize(column.len() + count, 0),
            }
        }
        open.files.labelled |= data.labels.iter().any(|&set| set != 0);
        open.profiles.rows.push(BlockRow {
            first_row: open.rows,
            rows: count as u32,
            first_total: open.profiles.totals.len() as u32,
            ..*row
        });
        open.profiles.totals.extend_from_slice(totals);
        open.rows += count as u64;
        Ok(())
    }

    /// Ends the service: `stack_nodes` gives the node of each stack id.
    ///
    /// # Errors
    /// What the Parquet library says.
    pub fn end_part(
        &mut self,
        header: PartHeader,
        symbols: &Symbols,
        stack_nodes: &[u32],
    ) -> Result<()> {
        self.flush()?;
        let open = std::mem::take(&mut self.open);
        let mut group = self.symbols.next_row_group()?;
        let mut lists = Lists::of(&mut group);
        lists.service(open.service)?;
        lists.profiles(&open.profiles)?;
        lists.symbols(symbols, stack_nodes)?;
        group.close()?;
        self.parts.push(header);
        self.files.push(open.files);
        Ok(())
    }

    /// Writes what is pending as a row group.
    fn flush(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.open.pending);
        if pending.rows.stacks.is_empty() {
            return Ok(());
        }
        let open = &mut self.open;
        let mut group = self.samples.next_row_group()?;
        let rows = pending.rows.stacks.len();
        repeated(&mut group, [(&open.service, rows)])?;
        let set = &open.sets[pending.type_set as usize];
        repeated(&mut group, [(set, rows)])?;
        let series = pending.runs.iter();
        repeated(
            &mut group,
            series.map(|&(series, _, n)| (&open.series[series as usize], n)),
        )?;
        let runs = pending.runs.iter();
        let times = runs.flat_map(|&(_, time, n)| std::iter::repeat_n(time, n));
        flat::<Int64Type>(&mut group, &times.collect::<Vec<_>>())?;
        flat::<Int32Type>(&mut group, &pending.rows.stacks)?;
        flat::<Int32Type>(&mut group, &pending.rows.labels)?;
        for column in &pending.rows.values {
            flat::<Int64Type>(&mut group, column)?;
        }
        group.close()?;
        open.files.groups.push(RowGroup {
            type_set: pending.type_set,
            rows: rows as u64,
            chunks: Vec::new(),
        });
        Ok(())
    }

    /// Bytes of both files so far.
    pub fn bytes(&self) -> usize {
        self.samples.bytes_written() + self.symbols.bytes_written()
    }

    /// Ends the block.
    ///
    /// # Errors
    /// What the Parquet library says.
    pub fn finish(mut self) -> Result<Block> {
        let (samples_meta, symbols_meta) = (self.samples.finish()?, self.symbols.finish()?);
        self.samples.flush()?;
        self.symbols.flush()?;
        let samples = std::mem::take(self.samples.inner_mut());
        let symbols = std::mem::take(self.symbols.inner_mut());
        let mut groups = groups(&samples_meta, &samples).into_iter();
        let mut symbol_groups = self::groups(&symbols_meta, &symbols).into_iter();
        for part in &mut self.files {
            for group in &mut part.groups {
                group.chunks = groups.next().unwrap_or_default();
            }
            part.symbols = symbol_groups.next().unwrap_or_default();
        }
        let files = Files {
            width: self.width as u32,
            samples_len: samples.len() as u64,
            symbols_len: symbols.len() as u64,
            parts: self.files,
            ..Files::default()
        };
        let parts = self.parts;
        Ok(Block {
            samples,
            symbols,
            parts,
            files,
        })
    }
}

/// Where the chunks of each row group stand, with their checksums.
fn groups(meta: &ParquetMetaData, file: &[u8]) -> Vec<Vec<Chunk>> {
    let chunks = |group: &RowGroupMetaData| {
        let columns = group.columns().iter().map(|column| {
            let (offset, len) = column.byte_range();
            let bytes = &file[offset as usize..(offset + len) as usize];
            let crc = crc32fast::hash(bytes);
            Chunk { offset, len, crc }
        });
        columns.collect()
    };
    meta.row_groups().iter().map(chunks).collect()
}

fn next<T: DataType>(
    group: &mut GroupWriter,
    write: impl FnOnce(&mut parquet::column::writer::ColumnWriterImpl<'_, T>) -> Result<()>,
) -> Result<()> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))?;
    write(column.typed::<T>())?;
    column.close()
}

fn flat<T: DataType>(group: &mut GroupWriter, values: &[T::T]) -> Result<()> {
    next::<T>(group, |column| {
        column.write_batch(values, None, None).map(drop)
    })
}

/// A text column given as runs of equal values.
fn repeated<'a>(
    group: &mut GroupWriter,
    runs: impl IntoIterator<Item = (&'a ByteArray, usize)>,
) -> Result<()> {
    const AT_ONCE: usize = 2048;
    let mut buffer: Vec<ByteArray> = Vec::new();
    let mut last: *const ByteArray = std::ptr::null();
    next::<ByteArrayType>(group, |column| {
        for (value, mut left) in runs {
            // One series has many profiles behind each other.
            if !std::ptr::eq(last, value) {
                buffer.clear();
                last = value;
            }
            let most = left.min(AT_ONCE);
            if buffer.len() < most {
                buffer.resize(most, value.clone());
            }
            while left > 0 {
                let n = left.min(buffer.len());
                column.write_batch(&buffer[..n], None, None)?;
                left -= n;
            }
        }
        Ok(())
    })
}
