//! A decoded profile into a part.

use pilotlight_profile::{self as model, LabelValue, Profile, StrId};

use super::known::{self, UNSET};
use super::symbols::{Function, Label, Lines, Mapping};
use super::{Labels, PartBuilder, ProfileRow, TypeSet};
use crate::hash::Wide;

/// What was pushed beside the profile itself.
#[derive(Debug, Clone)]
pub struct Pushed {
    /// Sorted labels with `service_name`, without the profile name.
    pub labels: Labels,
    /// Profile name, e.g. `process_cpu`.
    pub name: String,
    /// Unix nanoseconds.
    pub time_ns: i64,
    /// Nanoseconds.
    pub duration_ns: i64,
    /// Identity; 0 = none.
    pub id: u128,
}

/// Samples kept and left out while a profile was interned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Kept.
    pub samples: u64,
    /// Left out: a value is below zero.
    pub negative: u64,
    /// Left out: all values are zero.
    pub zero: u64,
}

/// Ids of a source (profile or part) in the builder's tables, filled when first needed.
struct Seen {
    strings: Vec<u32>,
    functions: Vec<u32>,
    mappings: Vec<u32>,
    locations: Vec<u32>,
    label_sets: Vec<u32>,
    /// Locations of the stack at hand.
    frames: Vec<u32>,
}

/// Takes `$slot` when it is set, else evaluates and keeps it.
macro_rules! once {
    ($slot:expr, $make:expr) => {
        if $slot != UNSET {
            $slot
        } else {
            let made = $make;
            $slot = made;
            made
        }
    };
}

impl PartBuilder {
    /// Adds a decoded profile. Its references must be valid, as `decode` promises.
    pub fn add_profile(&mut self, profile: &Profile, pushed: &Pushed) -> Kept {
        let type_set = self.type_set(profile_types(profile, &pushed.name));
        let series = self.series(&pushed.labels);
        let (rows, kept) = self.profile_rows(profile);
        let mut row = ProfileRow {
            series,
            type_set,
            time_ns: pushed.time_ns,
            duration_ns: pushed.duration_ns,
            period: profile.period,
            id: pushed.id,
            first_sample: 0,
            samples: rows.len() as u32,
            first_value: 0,
            first_total: 0,
        };
        let width = profile.sample_types.len();
        let values = &profile.samples.values;
        self.push_row(&mut row, width, &rows, |sample, column| {
            values[sample * width + column]
        });
        kept
    }

    /// Sorted (node, label set, sample index) of the samples to keep.
    fn profile_rows(&mut self, profile: &Profile) -> (Vec<(u32, u32, u32)>, Kept) {
        let mut seen = Seen {
            strings: vec![UNSET; profile.strings.len()],
            functions: vec![UNSET; profile.functions.len()],
            mappings: vec![UNSET; profile.mappings.len()],
            locations: vec![UNSET; profile.locations.len()],
            label_sets: vec![UNSET; profile.label_sets.len()],
            frames: Vec::new(),
        };
        let hashes = known::location_hashes(profile);
        for (id, &hash) in seen.locations.iter_mut().zip(&hashes) {
            *id = self.known_locations.get(hash);
        }
        let (mut rows, kept) = kept_samples(profile);
        let mut stacks = vec![(0, 0); rows.len()];
        for ((_, _, index), hash) in rows.iter().zip(&mut stacks) {
            let stack = profile.samples.stack[*index as usize] as usize;
            *hash = self.stack_hash(profile, profile.stacks.get(stack), &hashes, &mut seen);
        }
        // By itself, so that the processor waits for many slots at once.
        for ((node, _, _), &hash) in rows.iter_mut().zip(&stacks) {
            *node = self.known_stacks.get(hash);
        }
        for ((node, labels, index), &hash) in rows.iter_mut().zip(&stacks) {
            if *node == UNSET {
                let stack = profile.samples.stack[*index as usize] as usize;
                *node = self.new_stack(profile.stacks.get(stack), hash, &seen);
            }
            let set = profile.samples.labels[*index as usize] as usize;
            *labels = once!(
                seen.label_sets[set],
                self.profile_labels(profile, set, &mut seen.strings)
            );
        }
        rows.sort_unstable();
        (rows, kept)
    }

    /// Hash of a stack; its locations are in `seen` then.
    fn stack_hash(
        &mut self,
        profile: &Profile,
        stack: &[u32],
        hashes: &[Wide],
        seen: &mut Seen,
    ) -> Wide {
        let mut frames = std::mem::take(&mut seen.frames);
        frames.clear();
        for &location in stack.iter().rev() {
            let at = location as usize;
            if seen.locations[at] == UNSET {
                let id = self.profile_location(profile, at, seen);
                seen.locations[at] = id;
                // Equal content under another hash is possible only for a damaged table.
                if self.known_locations.get(hashes[at]) == UNSET {
                    self.known_locations.put(hashes[at], id);
                }
            }
            frames.push(seen.locations[at]);
        }
        let hash = known::stack_hash(&frames);
        seen.frames = frames;
        hash
    }

    fn new_stack(&mut self, stack: &[u32], hash: Wide, seen: &Seen) -> u32 {
        // The profile may hold it twice.
        let known = self.known_stacks.get(hash);
        if known != UNSET {
            return known;
        }
        let frames = stack.iter().rev();
        let node = frames.fold(0, |node, &location| {
            self.node(node, seen.locations[location as usize])
        });
        self.known_stacks.put(hash, node);
        node
    }

    fn profile_location(&mut self, profile: &Profile, index: usize, seen: &mut Seen) -> u32 {
        let source = profile.location(index);
        let mut text = |this: &mut Self, id: StrId| {
            once!(
                seen.strings[id.index()],
                this.string(profile.strings.get(id))
            )
        };
        let mapping = source.mapping.map(|id| {
            let old = &profile.mappings[id.index()];
            let new = once!(seen.mappings[id.index()], {
                let mapping = Mapping {
                    start: old.start,
                    limit: old.limit,
                    offset: old.offset,
                    filename: text(self, old.file),
                    build_id: text(self, old.build_id),
                    flags: mapping_flags(old),
                };
                self.mapping(mapping)
            });
            (new, old.start)
        });
        let mut lines = Vec::with_capacity(source.lines.len());
        for line in source.lines {
            let function = once!(seen.functions[line.function.index()], {
                let old = &profile.functions[line.function.index()];
                let function = Function {
                    name: text(self, old.name),
                    system_name: text(self, old.system_name),
                    filename: text(self, old.filename),
                    start_line: old.start_line,
                };
                self.function(function)
            });
            lines.push(Lines {
                function,
                line: line.line,
                column: line.column,
            });
        }
        self.location(mapping, source.address, source.is_folded, &lines)
    }

    fn profile_labels(&mut self, profile: &Profile, set: usize, strings: &mut [u32]) -> u32 {
        let mut text = |id: StrId| once!(strings[id.index()], self.string(profile.strings.get(id)));
        let mut labels = Vec::new();
        for label in profile.label_sets.get(set) {
            labels.push(match label.value {
                LabelValue::Str(value) => Label {
                    key: text(label.key),
                    text: text(value),
                    number: 0,
                    unit: 0,
                },
                LabelValue::Num { value, unit } => Label {
                    key: text(label.key),
                    text: 0,
                    number: value,
                    unit: text(unit),
                },
            });
        }
        self.label_set(&labels)
    }
}

/// (no stack yet, no labels yet, sample index) of the samples to keep.
fn kept_samples(profile: &Profile) -> (Vec<(u32, u32, u32)>, Kept) {
    let width = profile.sample_types.len().max(1);
    let mut kept = Kept::default();
    let mut rows = Vec::with_capacity(profile.samples.len());
    for (index, values) in profile.samples.values.chunks_exact(width).enumerate() {
        if values.iter().any(|&value| value < 0) {
            kept.negative += 1;
        } else if values.iter().all(|&value| value == 0) {
            kept.zero += 1;
        } else {
            rows.push((UNSET, 0, index as u32));
        }
    }
    kept.samples = rows.len() as u64;
    (rows, kept)
}

fn mapping_flags(mapping: &model::Mapping) -> u32 {
    u32::from(mapping.has_functions)
        | u32::from(mapping.has_filenames) << 1
        | u32::from(mapping.has_line_numbers) << 2
        | u32::from(mapping.has_inline_frames) << 3
}

fn profile_types(profile: &Profile, name: &str) -> TypeSet {
    let text = |id: StrId| profile.strings.text(id).into_owned();
    TypeSet {
        name: name.to_owned(),
        period_type: text(profile.period_type.ty),
        period_unit: text(profile.period_type.unit),
        values: profile
            .sample_types
            .iter()
            .map(|t| (text(t.ty), text(t.unit)))
            .collect(),
    }
}
