//! Adds profiles up, by google/pprof's keys and rules.

use std::collections::{HashMap, HashSet};

use crate::builder::ProfileBuilder;
use crate::error::MergeError;
use crate::model::{
    FunctionId, Label, LabelSetId, LabelValue, Line, LocationId, Mapping, MappingId, Profile,
    ValueType,
};
use crate::strings::{StrId, Strings};

/// Adds profiles up. What counts as equal is what google/pprof counts as equal:
///
/// - mapping: size rounded up to 4 KiB, file offset, and build id (else file; mappings with neither
///   are one);
/// - function: name, system name, file, start line;
/// - location: address less start of the mapping, mapping, lines, folded mark;
/// - sample: locations and labels, labels sorted by key.
///
/// Samples whose values are all 0 before or after adding are left out, and with them what only they
/// use. Time is the earliest, duration the sum, period the largest; comments are united; default
/// sample type and documentation are the first that is not empty; drop and keep frames are those of
/// the first profile. Sums wrap around.
///
/// ```
/// # let mut b = pilotlight_profile::ProfileBuilder::new();
/// # b.sample_type("cpu", "nanoseconds");
/// # let stack = b.stack(&[]);
/// # b.sample(stack, Default::default(), &[5]);
/// # let profile = b.finish();
/// let merged = pilotlight_profile::merge(&[&profile, &profile])?;
/// assert_eq!(merged.total(0), 2 * profile.total(0));
/// # Ok::<(), pilotlight_profile::MergeError>(())
/// ```
///
/// # Errors
/// No profile at all; profiles whose period types or sample types differ; more frames than 32 bits
/// address.
pub fn merge(profiles: &[&Profile]) -> Result<Profile, MergeError> {
    let Some((&first, rest)) = profiles.split_first() else {
        return Err(MergeError::NothingToMerge);
    };
    for &other in rest {
        check_compatible(first, other)?;
    }
    let frames: u64 = profiles.iter().map(|p| p.stacks.items.len() as u64).sum();
    if frames >= u64::from(u32::MAX) {
        return Err(MergeError::TooLarge { frames });
    }
    let mut merger = Merger::default();
    for profile in profiles {
        merger.add(profile);
    }
    merger.put_header(profiles);
    let merged = merger.builder.finish();
    let width = merged.sample_types.len();
    let has_zero = width > 0 && merged.samples.values.chunks_exact(width).any(is_zero);
    if has_zero {
        return merge(&[&merged]);
    }
    Ok(merged)
}

fn is_zero(values: &[i64]) -> bool {
    values.iter().all(|&value| value == 0)
}

fn check_compatible(a: &Profile, b: &Profile) -> Result<(), MergeError> {
    if type_text(a, &a.period_type) != type_text(b, &b.period_type) {
        return Err(MergeError::PeriodTypes {
            first: type_text(a, &a.period_type),
            other: type_text(b, &b.period_type),
        });
    }
    let types =
        |p: &Profile| -> Vec<String> { p.sample_types.iter().map(|ty| type_text(p, ty)).collect() };
    if types(a) != types(b) {
        return Err(MergeError::SampleTypes {
            first: types(a).join(", "),
            other: types(b).join(", "),
        });
    }
    Ok(())
}

fn type_text(profile: &Profile, ty: &ValueType) -> String {
    let strings = &profile.strings;
    format!("{}/{}", strings.text(ty.ty), strings.text(ty.unit))
}

/// Key of a mapping, in strings of the result.
#[derive(PartialEq, Eq, Hash)]
struct MappingKey {
    size: u64,
    offset: u64,
    build_id_or_file: StrId,
}

impl MappingKey {
    fn of(mapping: &Mapping, strings: &Strings, builder: &mut ProfileBuilder) -> Self {
        // Sizes differ by less than a page for the same binary.
        let size = mapping
            .limit
            .wrapping_sub(mapping.start)
            .wrapping_add(0xfff);
        let name = match strings.get(mapping.build_id) {
            [] => strings.get(mapping.file),
            build_id => build_id,
        };
        MappingKey {
            size: size & !0xfff,
            offset: mapping.offset,
            build_id_or_file: builder.string(name),
        }
    }
}

#[derive(Default)]
struct Merger {
    builder: ProfileBuilder,
    mapping_keys: HashMap<MappingKey, MappingId>,
    labels: Vec<Label>,
    stack: Vec<u32>,
}

/// What parts of one source became in the result; filled as samples need them.
struct Translation<'a> {
    source: &'a Profile,
    strings: Vec<Option<StrId>>,
    mappings: Vec<Option<MappingId>>,
    functions: Vec<Option<FunctionId>>,
    locations: Vec<Option<LocationId>>,
    label_sets: Vec<Option<LabelSetId>>,
}

impl<'a> Translation<'a> {
    fn new(source: &'a Profile) -> Self {
        Translation {
            source,
            strings: vec![None; source.strings.len()],
            mappings: vec![None; source.mappings.len()],
            functions: vec![None; source.functions.len()],
            locations: vec![None; source.locations.len()],
            label_sets: vec![None; source.label_sets.len()],
        }
    }

    fn string(&mut self, id: StrId, builder: &mut ProfileBuilder) -> StrId {
        let source = self.source;
        match self.strings.get_mut(id.index()) {
            Some(known) => *known.get_or_insert_with(|| builder.string(source.strings.get(id))),
            None => StrId::EMPTY,
        }
    }
}

impl Merger {
    fn add(&mut self, source: &Profile) {
        let mut known = Translation::new(source);
        if self.builder.mapping_count() == 0 && !source.mappings.is_empty() {
            // The first mapping is the main binary: it stays first even if no sample lies in it.
            self.mapping(&mut known, MappingId(0));
        }
        if self.builder.sample_width() == 0 {
            for ty in &source.sample_types {
                let ty = self.value_type(&mut known, ty);
                self.builder.push_sample_type(ty);
            }
        }
        for (i, sample) in source.iter_samples().enumerate() {
            if is_zero(sample.values) {
                continue;
            }
            let mut stack = std::mem::take(&mut self.stack);
            stack.clear();
            stack.extend(sample.stack.iter().map(|&l| self.location(&mut known, l).0));
            let stack_id = self.builder.stack_of_ids(&stack);
            self.stack = stack;
            let labels = source.samples.labels.get(i).copied().unwrap_or_default();
            let labels = self.label_set(&mut known, labels);
            self.builder.sample(stack_id, labels, sample.values);
        }
    }

    fn value_type(&mut self, known: &mut Translation<'_>, ty: &ValueType) -> ValueType {
        ValueType {
            ty: known.string(ty.ty, &mut self.builder),
            unit: known.string(ty.unit, &mut self.builder),
        }
    }

    fn location(&mut self, known: &mut Translation<'_>, index: u32) -> LocationId {
        if let Some(Some(id)) = known.locations.get(index as usize) {
            return *id;
        }
        let source = known.source;
        let location = source.location(index as usize);
        let mut address = location.address;
        let mapping = location.mapping.map(|old| {
            let new = self.mapping(known, old);
            let old_start = source.mappings.get(old.index()).map_or(0, |m| m.start);
            let moved = self.builder.mapping_start(new).wrapping_sub(old_start);
            address = address.wrapping_add(moved);
            new
        });
        let lines: Vec<Line> = location
            .lines
            .iter()
            .map(|line| Line {
                function: self.function(known, line.function),
                ..*line
            })
            .collect();
        let id =
            self.builder
                .location_with(mapping, address, lines.into_iter(), location.is_folded);
        if let Some(slot) = known.locations.get_mut(index as usize) {
            *slot = Some(id);
        }
        id
    }

    fn mapping(&mut self, known: &mut Translation<'_>, old: MappingId) -> MappingId {
        if let Some(Some(id)) = known.mappings.get(old.index()) {
            return *id;
        }
        let source = known.source;
        let mapping = source
            .mappings
            .get(old.index())
            .copied()
            .unwrap_or_default();
        let key = MappingKey::of(&mapping, &source.strings, &mut self.builder);
        let id = match self.mapping_keys.get(&key) {
            Some(&id) => id,
            None => {
                let mapping = Mapping {
                    file: known.string(mapping.file, &mut self.builder),
                    build_id: known.string(mapping.build_id, &mut self.builder),
                    ..mapping
                };
                let id = self.builder.push_mapping(mapping);
                self.mapping_keys.insert(key, id);
                id
            }
        };
        if let Some(slot) = known.mappings.get_mut(old.index()) {
            *slot = Some(id);
        }
        id
    }

    fn function(&mut self, known: &mut Translation<'_>, old: FunctionId) -> FunctionId {
        if let Some(Some(id)) = known.functions.get(old.index()) {
            return *id;
        }
        let function = known.source.functions.get(old.index());
        let function = function.copied().unwrap_or_default();
        let name = known.string(function.name, &mut self.builder);
        let system_name = known.string(function.system_name, &mut self.builder);
        let filename = known.string(function.filename, &mut self.builder);
        let id = self
            .builder
            .function(name, system_name, filename, function.start_line);
        if let Some(slot) = known.functions.get_mut(old.index()) {
            *slot = Some(id);
        }
        id
    }

    /// Labels sorted by key, text before numbers; values of one key keep their order.
    fn label_set(&mut self, known: &mut Translation<'_>, old: u32) -> LabelSetId {
        if let Some(Some(id)) = known.label_sets.get(old as usize) {
            return *id;
        }
        let source = known.source;
        let mut labels = std::mem::take(&mut self.labels);
        labels.clear();
        labels.extend_from_slice(source.label_sets.get(old as usize));
        labels.sort_by_key(|label| {
            let is_number = matches!(label.value, LabelValue::Num { .. });
            (source.strings.get(label.key), is_number)
        });
        for label in &mut labels {
            label.key = known.string(label.key, &mut self.builder);
            match &mut label.value {
                LabelValue::Str(text) => *text = known.string(*text, &mut self.builder),
                LabelValue::Num { unit, .. } => *unit = known.string(*unit, &mut self.builder),
            }
        }
        let id = self.builder.label_set(&labels);
        self.labels = labels;
        if let Some(slot) = known.label_sets.get_mut(old as usize) {
            *slot = Some(id);
        }
        id
    }

    fn put_header(&mut self, sources: &[&Profile]) {
        let builder = &mut self.builder;
        let mut header = Profile::default();
        let mut seen = HashSet::new();
        for (i, source) in sources.iter().enumerate() {
            let mut text = |id| builder.string(source.strings.get(id));
            if i == 0 {
                header.drop_frames = text(source.drop_frames);
                header.keep_frames = text(source.keep_frames);
                header.period_type = ValueType {
                    ty: text(source.period_type.ty),
                    unit: text(source.period_type.unit),
                };
            }
            if header.time_ns == 0 || source.time_ns < header.time_ns {
                header.time_ns = source.time_ns;
            }
            header.duration_ns = header.duration_ns.wrapping_add(source.duration_ns);
            if header.period == 0 || header.period < source.period {
                header.period = source.period;
            }
            for &comment in &source.comments {
                let comment = text(comment);
                if seen.insert(comment) {
                    header.comments.push(comment);
                }
            }
            if header.default_sample_type == StrId::EMPTY {
                header.default_sample_type = text(source.default_sample_type);
            }
            if header.doc_url == StrId::EMPTY {
                header.doc_url = text(source.doc_url);
            }
        }
        builder.set_header(header);
    }
}
