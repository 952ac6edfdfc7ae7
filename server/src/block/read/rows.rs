//! Rows of the samples file.

use std::sync::OnceLock;

use bytes::Bytes;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::schema::types::ColumnDescPtr;

use super::super::manifest::{Chunk, RowGroup};
use super::super::schema::{self, FIRST_VALUE, LABELS, STACK};
use super::{SAMPLES, checked, column, content, guarded, parquet_error};
use crate::segment::Damage;

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
