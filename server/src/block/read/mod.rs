//! Bytes of column chunks → rows and symbols. Every checksum and index is checked here.

mod rows;
mod sidecar;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::manifest::{Chunk, PartFiles};
use super::schema::{PROFILE_ID, PROFILE_LISTS};
use crate::segment::{Damage, Symbols};

pub use rows::Rows;
pub use sidecar::{read_ids, read_profiles, read_sidecar};

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

/// The chunk of the profiles' identities.
pub fn id_chunk(part: &PartFiles) -> &[Chunk] {
    &part.symbols[PROFILE_ID..=PROFILE_ID]
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
