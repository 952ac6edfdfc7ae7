//! The columns as they stand in the file: ids are not resolved and strings not checked yet, since
//! their tables may stand behind what refers to them.

use crate::error::DecodeError;
use crate::fields as f;
use crate::limits::Limits;
use crate::model::{Function, LabelSets, Line, Lists, Mapping};
use crate::strings::{SHORT, StrId, Strings};

use super::ids::Ids;
use super::wire::{Fault, Reader};

/// Columns as they stand in the file.
pub struct Columns {
    pub strings: Strings,
    pub sample_types: Vec<(StrId, StrId)>,
    pub header: Header,
    pub comments: Vec<StrId>,
    pub mappings: Vec<Mapping>,
    pub mapping_ids: Ids,
    pub functions: Vec<Function>,
    pub function_ids: Ids,
    pub location_ids: Ids,
    /// References to mappings.
    pub location_mapping: Vec<u32>,
    pub location_address: Vec<u64>,
    pub location_is_folded: Vec<bool>,
    pub line_offsets: Vec<u32>,
    /// Lines; `function` is a reference until it is resolved.
    pub lines: Vec<Line>,
    /// References to locations, a list per sample.
    pub stacks: Lists,
    pub label_sets: LabelSets,
    pub sample_labels: Vec<u32>,
    pub values: Values,
    /// Labels that hold nothing.
    pub empty_labels: u64,
    pub string_check: StringCheck,
}

/// Fields that stand once.
#[derive(Default)]
pub struct Header {
    pub drop_frames: u64,
    pub keep_frames: u64,
    pub time_ns: i64,
    pub duration_ns: i64,
    pub period_type: (u64, u64),
    pub period: i64,
    pub default_sample_type: u64,
    pub doc_url: u64,
}

/// Values of all samples.
#[derive(Default)]
pub struct Values {
    pub all: Vec<i64>,
    /// Values of the first sample.
    pub width: usize,
    /// Where each sample's values end, once one had another number of values than the first.
    pub ends: Vec<u32>,
}

impl Values {
    /// Notes that sample number `sample` (from 0) has all its values since `start`.
    #[inline(always)]
    pub fn end_sample(&mut self, sample: usize, start: usize) {
        let count = self.all.len() - start;
        if sample == 0 {
            self.width = count;
        } else if count != self.width || !self.ends.is_empty() {
            self.end_irregular(sample);
        }
    }

    #[cold]
    fn end_irregular(&mut self, sample: usize) {
        if self.ends.is_empty() {
            let width = self.width;
            self.ends.extend((1..=sample).map(|i| (i * width) as u32));
        }
        self.ends.push(self.all.len() as u32);
    }
}

/// The largest string index met, for one check at the end instead of one each.
#[derive(Default)]
pub struct StringCheck {
    pub largest: u64,
    pub offset: usize,
}

impl StringCheck {
    #[inline(always)]
    pub fn note(&mut self, index: u64, offset: usize) -> StrId {
        if index > self.largest {
            self.largest = index;
            self.offset = offset;
        }
        // No table reaches u32::MAX, so an index that does not fit stays out of range.
        StrId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// How many entries of each kind the input has, counted before memory is taken.
#[derive(Default)]
pub struct Census {
    sample_types: u64,
    samples: u64,
    mappings: u64,
    locations: u64,
    functions: u64,
    strings: u64,
    string_bytes: u64,
}

impl Census {
    /// Counts up to the first fault; the real pass will meet it again and name it.
    pub fn take(raw: &[u8], limits: &Limits) -> Result<Census, Fault> {
        let mut census = Census::default();
        let mut reader = Reader::new(raw);
        while reader.more().is_ok_and(|more| more) {
            let offset = reader.pos();
            let Ok(key) = reader.varint() else { break };
            if key & 7 != f::BYTES {
                if reader.skip(key).is_err() {
                    break;
                }
                continue;
            }
            let Ok(body) = reader.message() else { break };
            let (count, what, limit) = match key >> 3 {
                f::SAMPLE => (&mut census.samples, "samples", limits.samples),
                f::LOCATION => (&mut census.locations, "locations", limits.locations),
                f::STRING_TABLE => {
                    census.string_bytes += body.left() as u64;
                    (&mut census.strings, "strings", limits.strings)
                }
                f::FUNCTION => (&mut census.functions, "functions", limits.functions),
                f::MAPPING => (&mut census.mappings, "mappings", limits.mappings),
                f::SAMPLE_TYPE => (
                    &mut census.sample_types,
                    "sample_types",
                    limits.sample_types,
                ),
                _ => continue,
            };
            *count += 1;
            if *count > limit {
                return Err(passed(what, limit, offset));
            }
        }
        Ok(census)
    }
}

#[cold]
pub fn passed(what: &'static str, limit: u64, offset: usize) -> Fault {
    let offset = offset as u64;
    Box::new(DecodeError::Limit {
        what,
        limit,
        offset,
    })
}

impl Columns {
    /// Empty columns with room for what was counted.
    pub fn with_capacity(census: &Census, limits: &Limits) -> Columns {
        let samples = census.samples as usize;
        let locations = census.locations as usize;
        let mut columns = Columns {
            strings: Strings::bare(),
            sample_types: Vec::new(),
            header: Header::default(),
            comments: Vec::new(),
            mappings: Vec::with_capacity(census.mappings as usize),
            mapping_ids: Ids::new("mappings", limits.mappings),
            functions: Vec::with_capacity(census.functions as usize),
            function_ids: Ids::new("functions", limits.functions),
            location_ids: Ids::new("locations", limits.locations),
            location_mapping: Vec::with_capacity(locations),
            location_address: Vec::with_capacity(locations),
            location_is_folded: Vec::with_capacity(locations),
            line_offsets: Vec::with_capacity(locations + 1),
            lines: Vec::with_capacity(locations),
            stacks: Lists {
                offsets: Vec::with_capacity(samples + 1),
                items: Vec::with_capacity(samples * 8),
            },
            label_sets: LabelSets::default(),
            sample_labels: Vec::with_capacity(samples),
            values: Values {
                all: Vec::with_capacity(samples * (census.sample_types as usize).min(8)),
                ..Values::default()
            },
            empty_labels: 0,
            string_check: StringCheck::default(),
        };
        columns.strings.reserve(
            census.strings as usize + 1,
            census.string_bytes as usize + SHORT,
        );
        columns.line_offsets.push(0);
        columns.stacks.offsets.push(0);
        columns
    }
}
