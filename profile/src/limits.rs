//! How much an entrance accepts.

/// Limits that every decoder takes. Counts are checked while decoding, before memory is taken.
///
/// The defaults are those of ingest: a hundred times what honest profiles need, small enough that
/// a bomb is an error and not an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes as they come over the wire, compressed or not.
    pub wire_bytes: u64,
    /// Bytes after decompression.
    pub inflated_bytes: u64,
    /// Inflated bytes per wire byte, applied above [`ratio_free_bytes`](Self::ratio_free_bytes).
    /// Honest profiles have a median of 3 and a maximum of 9; a deflate bomb reaches 1,030.
    pub inflation_ratio: u64,
    /// Inflated bytes below which the ratio does not matter.
    pub ratio_free_bytes: u64,
    /// Samples.
    pub samples: u64,
    /// Value columns.
    pub sample_types: u64,
    /// Values of all samples together.
    pub values: u64,
    /// Frames of all stacks together.
    pub stack_frames: u64,
    /// Frames of all stacks together, inlined ones counted: what trees and tops walk over.
    pub inlined_frames: u64,
    /// Frames of one stack.
    pub stack_depth: u64,
    /// Labels of all samples together.
    pub labels: u64,
    /// Mappings.
    pub mappings: u64,
    /// Functions.
    pub functions: u64,
    /// Locations.
    pub locations: u64,
    /// Lines of all locations together.
    pub lines: u64,
    /// Strings.
    pub strings: u64,
    /// Comments.
    pub comments: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            wire_bytes: 16 << 20,
            inflated_bytes: 64 << 20,
            inflation_ratio: 30,
            ratio_free_bytes: 1 << 20,
            samples: 1 << 20,
            sample_types: 64,
            values: 8 << 20,
            stack_frames: 16 << 20,
            inlined_frames: 64 << 20,
            stack_depth: 16 << 10,
            labels: 4 << 20,
            mappings: 64 << 10,
            functions: 1 << 20,
            locations: 1 << 20,
            lines: 1 << 20,
            strings: 1 << 20,
            comments: 1 << 10,
        }
    }
}

impl Limits {
    /// For input that is trusted, such as one's own files: only what the columns can address.
    pub fn unlimited() -> Self {
        let most = u64::from(u32::MAX) - 1;
        Limits {
            wire_bytes: most,
            inflated_bytes: most,
            inflation_ratio: u64::MAX,
            ratio_free_bytes: most,
            samples: most,
            sample_types: most,
            values: most,
            stack_frames: most,
            inlined_frames: most,
            stack_depth: most,
            labels: most,
            mappings: most,
            functions: most,
            locations: most,
            lines: most,
            strings: most,
            comments: most,
        }
    }
}
