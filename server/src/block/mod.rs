//! The block: immutable Parquet files made from segments, which any Parquet engine reads.
//!
//! Three files of one name: `.symbols.parquet` (one row a service: profiles, stacks and their
//! names), `.samples.parquet` (one row a sample), and the manifest `.plblk`, written last: it says
//! that the block counts, what it replaces, and where each column chunk stands with its checksum.
//! The bytes are described in `docs/formats/block.md`.

pub(crate) mod compact;
mod manifest;
mod read;
mod schema;
mod write;

pub use compact::{from_blocks, from_parts, roll_up, roll_up_of};
pub use manifest::{Chunk, Files, PartFiles, RowGroup, decode_manifest, encode_manifest};
pub use read::{
    BlockRow, Profiles, Rows, Sidecar, id_chunk, profile_chunks, read_ids, read_profiles,
    read_sidecar, span,
};
pub use schema::Layout;
pub use write::{Block, BlockWriter, Stacks};

use crate::segment::{Labels, TypeSet};

/// Version that this server writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// Ends of the three names, in the order in which the files are written.
pub const SYMBOLS: &str = ".symbols.parquet";
/// See [`SYMBOLS`].
pub const SAMPLES: &str = ".samples.parquet";
/// See [`SYMBOLS`].
pub const MANIFEST: &str = ".plblk";

/// Name of a block's manifest: sorts by time.
pub fn file_name(created_ns: i64, level: u32, random: u64) -> String {
    format!("{:020}-{level}-{random:016x}{MANIFEST}", created_ns.max(0))
}

/// Name of another file of the block.
pub fn sibling(manifest: &str, end: &str) -> String {
    let stem = manifest.strip_suffix(MANIFEST).unwrap_or(manifest);
    format!("{stem}{end}")
}

/// Labels as they stand in the column `series`: `{a="b",c="d"}`.
pub fn series_text(labels: &Labels) -> String {
    let mut out = String::from("{");
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(name);
        out.push_str("=\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    out.push('}');
    out
}

/// A type set as it stands in the column `profile`:
/// `process_cpu:samples:count,cpu:nanoseconds:cpu:nanoseconds`. Pair n is column `value_n`.
pub fn profile_text(set: &TypeSet) -> String {
    let values: Vec<String> = set
        .values
        .iter()
        .map(|(kind, unit)| format!("{kind}:{unit}"))
        .collect();
    format!(
        "{}:{}:{}:{}",
        set.name,
        values.join(","),
        set.period_type,
        set.period_unit
    )
}
