//! The segment: one immutable, checksummed file that holds whole profiles with their symbols.
//!
//! A segment has a *header* (what is inside: series, types, times, where each section stands) and
//! *parts*, one a service, each of three sections: profiles, samples, symbols. The bytes are
//! described in `docs/formats/segment.md`; [`Header`] and [`Part`] are the same data in memory.

mod builder;
mod collect;
mod cut;
mod decode;
mod encode;
mod from_part;
mod from_profile;
mod known;
mod symbols;
pub(crate) mod wire;

/// What the manifests of blocks share with segments.
pub(crate) mod put {
    pub(crate) use super::encode::{fixed, part_about};
}
/// See [`put`].
pub(crate) mod read {
    pub(crate) use super::decode::{fixed, list, part_about};
}

pub use builder::PartBuilder;
pub use collect::{SegmentBuilder, service_of};
pub use decode::{
    FIXED_LEN, decode_header, decode_part, decode_profiles, header_from_index, header_len,
};
pub use encode::{About, encode, header_bytes};
pub use from_profile::{Kept, Pushed};
pub use symbols::{Function, Label, Lines, Locations, Mapping, Strings, Symbols};
pub use wire::Damage;

/// Version that this server writes, and the only one it reads.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 4] = b"PLSG";

/// File name of a segment: sorts by time of writing.
pub fn file_name(created_ns: i64, level: u32, random: u64) -> String {
    format!("{:020}-{level}-{random:016x}.plseg", created_ns.max(0))
}

/// Sorted label pairs; equal sets are equal vectors.
pub type Labels = Vec<(String, String)>;

/// What kind of numbers a pushed profile carries: its name, its period and its value columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeSet {
    /// Name given at the push, e.g. `process_cpu`.
    pub name: String,
    /// e.g. `cpu`.
    pub period_type: String,
    /// e.g. `nanoseconds`.
    pub period_unit: String,
    /// (type, unit) of each value column.
    pub values: Vec<(String, String)>,
}

impl TypeSet {
    /// The profile type id of value column `index`:
    /// `name:sample_type:sample_unit:period_type:period_unit`.
    pub fn id(&self, index: usize) -> String {
        let (kind, unit) = &self.values[index];
        format!(
            "{}:{kind}:{unit}:{}:{}",
            self.name, self.period_type, self.period_unit
        )
    }
}

/// One series of a part, with what of it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesEntry {
    /// Labels, without the profile name.
    pub labels: Labels,
    /// Indices into [`PartHeader::type_sets`], ascending.
    pub type_sets: Vec<u32>,
    /// Earliest profile time, Unix nanoseconds.
    pub min_time_ns: i64,
    /// Latest profile time, Unix nanoseconds.
    pub max_time_ns: i64,
    /// Profiles of this series here.
    pub profiles: u64,
}

/// Where a section stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Section {
    /// From the start of the file.
    pub offset: u64,
    /// Bytes in the file (zstd).
    pub stored: u64,
    /// Bytes inflated.
    pub raw: u64,
    /// CRC-32 of the stored bytes.
    pub crc: u32,
}

/// Index of a part: everything a query needs to decide whether to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHeader {
    /// Value of `service_name` shared by all series of the part.
    pub service: String,
    /// Kinds of profiles.
    pub type_sets: Vec<TypeSet>,
    /// Series.
    pub series: Vec<SeriesEntry>,
    /// Samples over all profiles.
    pub samples: u64,
    /// Profiles, samples, symbols.
    pub sections: [Section; 3],
}

/// Index of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 0 = written by a push; n + 1 = merged from segments of level n and below.
    pub level: u32,
    /// When it was written, Unix nanoseconds.
    pub created_ns: i64,
    /// Names of the segments whose content is in this one. Where both are present this one counts.
    pub replaces: Vec<String>,
    /// One a service, sorted by service.
    pub parts: Vec<PartHeader>,
    /// Length of the whole file in bytes.
    pub file_len: u64,
}

impl Header {
    /// Latest profile time of the segment, Unix nanoseconds.
    pub fn max_time_ns(&self) -> i64 {
        let series = self.parts.iter().flat_map(|part| &part.series);
        series
            .map(|entry| entry.max_time_ns)
            .max()
            .unwrap_or(self.created_ns)
    }

    /// Profiles in all parts.
    pub fn profiles(&self) -> u64 {
        self.parts
            .iter()
            .flat_map(|part| &part.series)
            .map(|entry| entry.profiles)
            .sum()
    }

    /// Samples in all parts.
    pub fn samples(&self) -> u64 {
        self.parts.iter().map(|part| part.samples).sum()
    }
}

/// One pushed profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileRow {
    /// Index into the part's series.
    pub series: u32,
    /// Index into the part's type sets.
    pub type_set: u32,
    /// Start, Unix nanoseconds.
    pub time_ns: i64,
    /// Nanoseconds; 0 = unknown.
    pub duration_ns: i64,
    /// Sampling period in period units; 0 = unknown.
    pub period: i64,
    /// Identity of the push; 0 = none.
    pub id: u128,
    /// First row in [`Part::stacks`].
    pub first_sample: u32,
    /// Rows.
    pub samples: u32,
    /// First entry in [`Part::values`]; the values stand type by type, each `samples` long.
    pub first_value: u32,
    /// First entry in [`Profiles::totals`]; one a value column.
    pub first_total: u32,
}

/// The profiles section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profiles {
    /// In the order in which they came.
    pub rows: Vec<ProfileRow>,
    /// Sum of each value column of each profile.
    pub totals: Vec<i64>,
}

/// One service's data in a segment, decoded and checked: every index in it is valid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Profiles.
    pub profiles: Profiles,
    /// Stack node of each sample; ascending inside a profile.
    pub stacks: Vec<u32>,
    /// Label set of each sample; empty when no sample of the part has labels.
    pub label_sets: Vec<u32>,
    /// Values, see [`ProfileRow::first_value`].
    pub values: Vec<i64>,
    /// Names for the stacks.
    pub symbols: Symbols,
}

impl Part {
    /// Values of column `index` of `row`, beside its [`Part::row_stacks`].
    pub fn row_values(&self, row: &ProfileRow, index: usize) -> &[i64] {
        let n = row.samples as usize;
        let start = row.first_value as usize + index * n;
        &self.values[start..start + n]
    }

    /// Stack nodes of `row`.
    pub fn row_stacks(&self, row: &ProfileRow) -> &[u32] {
        let start = row.first_sample as usize;
        &self.stacks[start..start + row.samples as usize]
    }

    /// Label sets of `row`; empty where the part has none.
    pub fn row_label_sets(&self, row: &ProfileRow) -> &[u32] {
        let start = row.first_sample as usize;
        self.label_sets
            .get(start..start + row.samples as usize)
            .unwrap_or(&[])
    }

    /// Heap bytes, for the cache's budget.
    pub fn heap_bytes(&self) -> usize {
        self.profiles.rows.len() * size_of::<ProfileRow>()
            + self.profiles.totals.len() * 8
            + (self.stacks.len() + self.label_sets.len()) * 4
            + self.values.len() * 8
            + self.symbols.heap_bytes()
    }
}
