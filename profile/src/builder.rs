//! Builds a profile from parts; equal parts get one id.

use crate::intern::{IdTable, Seed, StringInterner};
use crate::model::{
    Function, FunctionId, Label, LabelSetId, LabelSets, LabelValue, Line, Lists, LocationId,
    Locations, Mapping, MappingId, NO_MAPPING, Profile, Samples, StackId, ValueType,
};
use crate::strings::StrId;

/// Builds a [`Profile`]. Strings, mappings, functions, locations, stacks and label sets are
/// interned; samples with equal stack and labels are added up.
///
/// ```
/// use pilotlight_profile::ProfileBuilder;
///
/// let mut b = ProfileBuilder::new();
/// b.sample_type("cpu", "nanoseconds");
/// let name = b.string(b"main");
/// let main = b.function(name, name, Default::default(), 0);
/// let location = b.location(None, 0x1000, &[(main, 12)]);
/// let stack = b.stack(&[location]);
/// b.sample(stack, Default::default(), &[10_000_000]);
/// b.sample(stack, Default::default(), &[10_000_000]);
/// let profile = b.finish();
/// assert_eq!(profile.total(0), 20_000_000);
/// assert_eq!(profile.samples.len(), 1);
/// ```
///
/// Capacity: 2³² − 2 of each part, and 4 GiB of string bytes.
#[derive(Clone, Debug)]
pub struct ProfileBuilder {
    profile: Profile,
    strings: StringInterner,
    seed: Seed,
    mappings: IdTable,
    functions: IdTable,
    locations: IdTable,
    stacks: IdTable,
    label_sets: IdTable,
    samples: IdTable,
    scratch_words: Vec<u64>,
    scratch_ids: Vec<u32>,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        ProfileBuilder::new()
    }
}

impl ProfileBuilder {
    /// A builder of an empty profile.
    pub fn new() -> Self {
        let mut builder = ProfileBuilder {
            profile: Profile::default(),
            strings: StringInterner::default(),
            seed: Seed::default(),
            mappings: IdTable::default(),
            functions: IdTable::default(),
            locations: IdTable::default(),
            stacks: IdTable::default(),
            label_sets: IdTable::default(),
            samples: IdTable::default(),
            scratch_words: Vec::new(),
            scratch_ids: Vec::new(),
        };
        builder.note_empty_label_set();
        builder
    }

    fn note_empty_label_set(&mut self) {
        let hash = self.seed.words(&[]);
        self.label_sets.find_or_insert(hash, 0, |_| false);
    }

    /// The id of a string; bytes need not be UTF-8.
    pub fn string(&mut self, bytes: &[u8]) -> StrId {
        self.strings.intern(bytes)
    }

    /// Adds a value column. Call it before the first sample.
    pub fn sample_type(&mut self, ty: &str, unit: &str) {
        let value_type = self.value_type(ty, unit);
        self.profile.sample_types.push(value_type);
    }

    /// What a sample stands for: one every `period` units of this type.
    pub fn period(&mut self, ty: &str, unit: &str, period: i64) {
        self.profile.period_type = self.value_type(ty, unit);
        self.profile.period = period;
    }

    fn value_type(&mut self, ty: &str, unit: &str) -> ValueType {
        ValueType {
            ty: self.string(ty.as_bytes()),
            unit: self.string(unit.as_bytes()),
        }
    }

    /// Start in nanoseconds since the Unix epoch, and length in nanoseconds.
    pub fn time(&mut self, time_ns: i64, duration_ns: i64) {
        self.profile.time_ns = time_ns;
        self.profile.duration_ns = duration_ns;
    }

    /// Adds a comment.
    pub fn comment(&mut self, text: &str) {
        let id = self.string(text.as_bytes());
        self.profile.comments.push(id);
    }

    /// The value column to show first.
    pub fn default_sample_type(&mut self, ty: &str) {
        self.profile.default_sample_type = self.string(ty.as_bytes());
    }

    /// Regular expressions of frames to drop and to keep when shown.
    pub fn drop_and_keep_frames(&mut self, drop: &str, keep: &str) {
        self.profile.drop_frames = self.string(drop.as_bytes());
        self.profile.keep_frames = self.string(keep.as_bytes());
    }

    /// Where this kind of profile is documented.
    pub fn doc_url(&mut self, url: &str) {
        self.profile.doc_url = self.string(url.as_bytes());
    }

    /// The id of a mapping. The first one added counts as the main binary.
    pub fn mapping(&mut self, mapping: Mapping) -> MappingId {
        let words = [
            mapping.start,
            mapping.limit,
            mapping.offset,
            pair(mapping.file, mapping.build_id),
        ];
        let new_id = self.profile.mappings.len() as u32;
        let known = &self.profile.mappings;
        let same = |id: u32| known[id as usize] == mapping;
        let found = self
            .mappings
            .find_or_insert(self.seed.words(&words), new_id, same);
        MappingId(found.unwrap_or_else(|| {
            self.profile.mappings.push(mapping);
            new_id
        }))
    }

    /// A mapping that stays apart from equal ones; for merge, which has keys of its own.
    pub(crate) fn push_mapping(&mut self, mapping: Mapping) -> MappingId {
        self.profile.mappings.push(mapping);
        MappingId(self.profile.mappings.len() as u32 - 1)
    }

    pub(crate) fn push_sample_type(&mut self, value_type: ValueType) {
        self.profile.sample_types.push(value_type);
    }

    pub(crate) fn sample_width(&self) -> usize {
        self.profile.sample_types.len()
    }

    /// Takes over what stands once a profile: period, times, comments and so on.
    pub(crate) fn set_header(&mut self, header: Profile) {
        let profile = &mut self.profile;
        profile.period_type = header.period_type;
        profile.period = header.period;
        profile.time_ns = header.time_ns;
        profile.duration_ns = header.duration_ns;
        profile.default_sample_type = header.default_sample_type;
        profile.drop_frames = header.drop_frames;
        profile.keep_frames = header.keep_frames;
        profile.doc_url = header.doc_url;
        profile.comments = header.comments;
    }

    pub(crate) fn mapping_start(&self, id: MappingId) -> u64 {
        self.profile.mappings.get(id.index()).map_or(0, |m| m.start)
    }

    pub(crate) fn mapping_count(&self) -> usize {
        self.profile.mappings.len()
    }

    /// The id of a function; `start_line` 0 when unknown.
    pub fn function(
        &mut self,
        name: StrId,
        system_name: StrId,
        filename: StrId,
        start_line: i64,
    ) -> FunctionId {
        let function = Function {
            name,
            system_name,
            filename,
            start_line,
        };
        let words = [
            pair(name, system_name),
            u64::from(filename.0),
            start_line as u64,
        ];
        let new_id = self.profile.functions.len() as u32;
        let known = &self.profile.functions;
        let same = |id: u32| known[id as usize] == function;
        let found = self
            .functions
            .find_or_insert(self.seed.words(&words), new_id, same);
        FunctionId(found.unwrap_or_else(|| {
            self.profile.functions.push(function);
            new_id
        }))
    }

    /// The id of a location. `lines` are (function, line number), innermost inlined call first;
    /// empty when not symbolized.
    pub fn location(
        &mut self,
        mapping: Option<MappingId>,
        address: u64,
        lines: &[(FunctionId, i64)],
    ) -> LocationId {
        let lines = lines.iter().map(|&(function, line)| Line {
            function,
            line,
            column: 0,
        });
        self.location_with(mapping, address, lines, false)
    }

    /// The id of a location, with columns of lines and the mark of identical code folding.
    pub fn location_with(
        &mut self,
        mapping: Option<MappingId>,
        address: u64,
        lines: impl Iterator<Item = Line>,
        is_folded: bool,
    ) -> LocationId {
        let mapping = mapping.map_or(NO_MAPPING, |m| m.0);
        // The new lines stand at the end of the column; they are cut off again if known.
        let profile = &mut self.profile;
        let before = profile.lines.len();
        profile.lines.extend(lines);
        let new = &profile.lines[before..];
        let words = &mut self.scratch_words;
        words.clear();
        words.extend([address, u64::from(mapping) << 1 | u64::from(is_folded)]);
        for line in new {
            let function = u64::from(line.function.0);
            words.extend([function << 32 ^ line.column as u64, line.line as u64]);
        }
        let new_id = profile.locations.len() as u32;
        let found = self
            .locations
            .find_or_insert(self.seed.words(words), new_id, |id| {
                let known = profile.location(id as usize);
                known.address == address
                    && known.mapping.map_or(NO_MAPPING, |m| m.0) == mapping
                    && known.is_folded == is_folded
                    && known.lines == new
            });
        if let Some(id) = found {
            profile.lines.truncate(before);
            return LocationId(id);
        }
        let Locations {
            mapping: mappings,
            address: addresses,
            is_folded: folded,
            line_offsets,
        } = &mut profile.locations;
        mappings.push(mapping);
        addresses.push(address);
        folded.push(is_folded);
        line_offsets.push(profile.lines.len() as u32);
        LocationId(new_id)
    }

    /// The id of a stack, leaf first.
    pub fn stack(&mut self, locations: &[LocationId]) -> StackId {
        let mut ids = std::mem::take(&mut self.scratch_ids);
        ids.clear();
        ids.extend(locations.iter().map(|location| location.0));
        let id = self.stack_of_ids(&ids);
        self.scratch_ids = ids;
        id
    }

    pub(crate) fn stack_of_ids(&mut self, ids: &[u32]) -> StackId {
        let stacks: &mut Lists = &mut self.profile.stacks;
        let new_id = stacks.len() as u32;
        let same = |id: u32| stacks.get(id as usize) == ids;
        let found = self.stacks.find_or_insert(self.seed.ids(ids), new_id, same);
        StackId(found.unwrap_or_else(|| stacks.push(ids)))
    }

    /// The id of a set of labels. Order matters: sort by key to make equal sets equal.
    /// `LabelSetId::default()` is the empty set.
    pub fn label_set(&mut self, labels: &[Label]) -> LabelSetId {
        let words = &mut self.scratch_words;
        words.clear();
        for label in labels {
            match label.value {
                LabelValue::Str(value) => words.push(pair(label.key, value)),
                LabelValue::Num { value, unit } => {
                    words.extend([pair(label.key, unit), value as u64])
                }
            }
        }
        let sets: &mut LabelSets = &mut self.profile.label_sets;
        let new_id = sets.len() as u32;
        let same = |id: u32| sets.get(id as usize) == labels;
        let found = self
            .label_sets
            .find_or_insert(self.seed.words(words), new_id, same);
        LabelSetId(found.unwrap_or_else(|| {
            sets.labels.extend_from_slice(labels);
            sets.offsets.push(sets.labels.len() as u32);
            new_id
        }))
    }

    /// Adds a sample, or adds its values to the sample of equal stack and labels; sums wrap around
    /// like pprof's. `values` has one entry per sample type; missing ones count as 0, those past
    /// the sample types are ignored.
    pub fn sample(&mut self, stack: StackId, labels: LabelSetId, values: &[i64]) {
        let width = self.profile.sample_types.len();
        let samples: &mut Samples = &mut self.profile.samples;
        let new_id = samples.len() as u32;
        let hash = self.seed.ids(&[stack.0, labels.0]);
        let found = self.samples.find_or_insert(hash, new_id, |id| {
            let i = id as usize;
            samples.stack[i] == stack.0 && samples.labels[i] == labels.0
        });
        match found {
            Some(id) => {
                let row = &mut samples.values[id as usize * width..][..width];
                for (sum, value) in row.iter_mut().zip(values) {
                    *sum = sum.wrapping_add(*value);
                }
            }
            None => {
                samples.stack.push(stack.0);
                samples.labels.push(labels.0);
                samples.values.extend(values.iter().take(width));
                samples.values.resize((new_id as usize + 1) * width, 0);
            }
        }
    }

    /// The profile. Its samples stand in the order in which their stacks were first seen.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        profile.strings = self.strings.strings;
        profile
    }
}

fn pair(a: StrId, b: StrId) -> u64 {
    u64::from(a.0) << 32 | u64::from(b.0)
}
