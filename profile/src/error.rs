//! Why a profile was refused.

use std::fmt;

/// Why [`decode`](crate::decode()) refused its input. Offsets count bytes of the protobuf, after
/// decompression unless said otherwise. Texts begin with google/pprof's words where it refuses the
/// same input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// No bytes, or nothing inside the compression.
    Empty,
    /// More of something than [`Limits`](crate::Limits) allow.
    Limit {
        /// The field of `Limits`.
        what: &'static str,
        /// Its value.
        limit: u64,
        /// Where the limit was passed.
        offset: u64,
    },
    /// Inflates to more than `ratio` times its size on the wire: a bomb, or a profile that must be
    /// sent with less compression.
    InflationRatio {
        /// Bytes on the wire.
        wire_bytes: u64,
        /// `Limits::inflation_ratio`.
        ratio: u64,
        /// Inflated bytes at which inflating stopped.
        offset: u64,
    },
    /// The compression is damaged or cut off.
    Decompress {
        /// `gzip` or `zstd`.
        format: &'static str,
        /// Inflated bytes before the damage.
        offset: u64,
        /// What the decompressor says.
        reason: String,
    },
    /// Compressed by a format that this build leaves out.
    NotBuiltIn {
        /// The cargo feature to switch on.
        feature: &'static str,
    },
    /// Something else than a profile, most likely an error page.
    NotPprof {
        /// What the first bytes look like.
        looks_like: &'static str,
    },
    /// Not valid protobuf, or not pprof's.
    Malformed {
        /// Where.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// Two profiles written behind each other.
    Concatenated {
        /// Where the second start time stands.
        offset: u64,
    },
    /// Well-formed, but its parts do not fit each other.
    Invalid {
        /// Where the part stands.
        offset: u64,
        /// What does not fit.
        cause: Invalid,
    },
}

/// Parts of a profile that do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// Samples, but no sample types.
    NoSampleTypes,
    /// A sample with another number of values than there are sample types.
    ValueCount {
        /// Number of the sample, from 0.
        sample: usize,
        /// Its values.
        values: usize,
        /// Sample types.
        types: usize,
    },
    /// A sample names a location that does not exist.
    NilLocation {
        /// Number of the sample, from 0.
        sample: usize,
    },
    /// An entry with id 0, which means "none".
    ReservedId {
        /// Which table.
        table: Table,
    },
    /// Two entries with one id.
    DuplicateId {
        /// Which table.
        table: Table,
        /// The id.
        id: u64,
    },
    /// A line names a function that does not exist.
    NilFunction {
        /// Id of the location.
        location: u64,
    },
}

/// Tables whose entries have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Mappings.
    Mapping,
    /// Functions.
    Function,
    /// Locations.
    Location,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Empty => f.write_str(
                "parsing profile: empty input file; check that the source had a profile to give",
            ),
            DecodeError::Limit {
                what,
                limit,
                offset,
            } => write!(
                f,
                "profile passes the limit {what} = {limit} at byte {offset}; profile for a shorter \
                 time, or raise `Limits::{what}` if the source is trusted"
            ),
            DecodeError::InflationRatio {
                wire_bytes,
                ratio,
                offset,
            } => write!(
                f,
                "decompressing profile: {wire_bytes} bytes inflate to more than {ratio} times as \
                 many (stopped at byte {offset}); send it uncompressed, or raise \
                 `Limits::inflation_ratio` if the source is trusted"
            ),
            DecodeError::Decompress {
                format,
                offset,
                reason,
            } => write!(
                f,
                "decompressing profile: {format}: {reason} after {offset} inflated bytes; the \
                 transfer was probably cut off, fetch it again"
            ),
            DecodeError::NotBuiltIn { feature } => write!(
                f,
                "decompressing profile: {feature} is not part of this build; send gzip, or switch \
                 on the cargo feature `{feature}`"
            ),
            DecodeError::NotPprof { looks_like } => write!(
                f,
                "parsing profile: unrecognized profile format: looks like {looks_like}; check the \
                 address that it came from"
            ),
            DecodeError::Malformed { offset, reason } => write!(
                f,
                "parsing profile: unrecognized profile format: {reason} at byte {offset}; check \
                 that the source sends pprof and that nothing was cut off"
            ),
            DecodeError::Concatenated { offset } => write!(
                f,
                "parsing profile: concatenated profiles detected at byte {offset}; send them one \
                 by one"
            ),
            DecodeError::Invalid { offset, cause } => {
                write!(f, "malformed profile: {cause} (at byte {offset})")?;
                f.write_str("; the writer of this profile has a bug, report it there")
            }
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::NoSampleTypes => f.write_str("missing sample type information"),
            Invalid::ValueCount {
                sample,
                values,
                types,
            } => write!(
                f,
                "mismatch: sample has {values} values vs. {types} types: sample number {sample}"
            ),
            Invalid::NilLocation { sample } => {
                write!(f, "sample has nil location: sample number {sample}")
            }
            Invalid::ReservedId { table } => match table {
                // google/pprof writes it both ways.
                Table::Location => f.write_str("found location with reserved id=0"),
                _ => write!(f, "found {} with reserved ID=0", table.name()),
            },
            Invalid::DuplicateId { table, id } => {
                write!(f, "multiple {}s with same id: {id}", table.name())
            }
            Invalid::NilFunction { location } => {
                write!(f, "location id: {location} has a line with nil function")
            }
        }
    }
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Mapping => "mapping",
            Table::Function => "function",
            Table::Location => "location",
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why [`merge`](crate::merge()) refused to add profiles up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// An empty list.
    NothingToMerge,
    /// Period types differ.
    PeriodTypes {
        /// `type/unit` of the first profile.
        first: String,
        /// `type/unit` of the one that differs.
        other: String,
    },
    /// Sample types differ.
    SampleTypes {
        /// Those of the first profile.
        first: String,
        /// Those of the one that differs.
        other: String,
    },
    /// More frames than 32 bits address.
    TooLarge {
        /// Frames of all profiles.
        frames: u64,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::NothingToMerge => f.write_str("no profiles to merge"),
            MergeError::PeriodTypes { first, other } => write!(
                f,
                "incompatible period types {first} and {other}; merge profiles of one kind"
            ),
            MergeError::SampleTypes { first, other } => write!(
                f,
                "incompatible sample types {first} and {other}; merge profiles of one kind"
            ),
            MergeError::TooLarge { frames } => write!(
                f,
                "{frames} frames are more than one profile can hold (2^32); merge fewer profiles"
            ),
        }
    }
}

impl std::error::Error for MergeError {}
