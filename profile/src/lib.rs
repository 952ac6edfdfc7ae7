//! The profile model of pilotlight: decode, encode, validate, merge and query pprof profiles.
//!
//! ```
//! use pilotlight_profile::{Limits, Mode, ProfileBuilder, decode, top};
//!
//! # let mut b = ProfileBuilder::new();
//! # b.sample_type("cpu", "nanoseconds");
//! # let name = b.string(b"main");
//! # let main = b.function(name, name, Default::default(), 0);
//! # let location = b.location(None, 0x1000, &[(main, 12)]);
//! # let stack = b.stack(&[location]);
//! # b.sample(stack, Default::default(), &[10_000_000]);
//! # let body = b.finish().to_pprof_gz();
//! let decoded = decode(&body, Mode::Tolerant, &Limits::default())?;
//! let cpu = decoded.profile.value_index(Some("cpu")).unwrap_or(0);
//! for row in top(&decoded.profile, cpu) {
//!     println!("{:>12} {:>12} {}", row.self_value, row.total_value, row.name);
//! }
//! # Ok::<(), pilotlight_profile::DecodeError>(())
//! ```
//!
//! # Who is responsible for what
//!
//! This crate:
//! - reads pprof protobuf (plain, gzip of one or several members, zstd by feature) into flat columns,
//!   and writes it;
//! - gives google/pprof's verdict on every input in [`Mode::Strict`]; keeps, repairs and counts in
//!   [`Mode::Tolerant`];
//! - stays inside [`Limits`], whatever the input: memory is taken after the check, not before;
//! - merges by google/pprof's keys, and derives top tables, trees and collapsed text.
//!
//! The caller:
//! - reads and writes bytes (no I/O here), and chooses limits for its entrance;
//! - symbolizes: frames without functions appear as `binary+0xoffset`;
//! - applies drop and keep frames when showing: they are carried, not applied.
//!
//! # Map
//!
//! `model` holds the central types ([`Profile`] and its columns), `strings` the byte string table.
//! `decode` goes from bytes to columns (`inflate`, then `parse` over `wire` into `columns`, then `link`
//! from `ids` to indices, and `repair`); `encode` goes back, `otlp` to OpenTelemetry's; `fields` has the field numbers of both. `builder` makes profiles
//! from parts, `merge` adds them up with it; `intern` is the hash table of both. `tree`, `top` and
//! `collapsed` are views; `names` names their frames. `limits`, `report` and `error` say what is
//! accepted, changed and refused.

#![forbid(unsafe_code)]

mod builder;
mod collapsed;
mod decode;
mod encode;
mod error;
mod fields;
mod intern;
mod limits;
mod merge;
mod model;
mod names;
mod otlp;
mod report;
mod strings;
mod top;
mod tree;

pub use builder::ProfileBuilder;
pub use collapsed::to_collapsed;
pub use decode::{Decoded, Mode, decode, inflate};
pub use error::{DecodeError, Invalid, MergeError, Table};
pub use limits::Limits;
pub use merge::merge;
pub use model::{
    Function, FunctionId, Label, LabelSetId, LabelSets, LabelValue, Line, Lists, Location,
    LocationId, Locations, Mapping, MappingId, NO_MAPPING, Profile, Sample, Samples, SourceIds,
    StackId, ValueType,
};
pub use report::{Outcome, Reason, Report};
pub use strings::{StrId, Strings};
pub use top::{TopRow, top};
pub use tree::{Nodes, Tree, TreeBuilder};
