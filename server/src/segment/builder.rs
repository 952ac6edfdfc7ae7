//! Interning profiles, or whole parts, into a new part.

use std::collections::BTreeMap;

use pilotlight_profile::{self as model, LabelValue, Profile, StrId};

use super::symbols::{Function, Label, Lines, Mapping};
use super::{Labels, Part, PartHeader, ProfileRow, Section, SeriesEntry, Symbols, TypeSet};
use crate::hash::{IdTable, PairTable, bytes, pair};

const UNSET: u32 = u32::MAX;

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

#[derive(Default)]
struct Tables {
    strings: IdTable,
    functions: IdTable,
    mappings: IdTable,
    locations: IdTable,
    nodes: PairTable,
    label_sets: IdTable,
    series: IdTable,
    type_sets: IdTable,
    /// (rounded size, offset, build id or file) of each mapping: google/pprof's merge key.
    mapping_keys: Vec<(u64, u64, u32)>,
}

/// One service's part under construction.
pub struct PartBuilder {
    header: PartHeader,
    part: Part,
    tables: Tables,
}

/// Ids of a source (profile or part) in the builder's tables, filled when first needed.
struct Seen {
    strings: Vec<u32>,
    functions: Vec<u32>,
    mappings: Vec<u32>,
    locations: Vec<u32>,
    stacks: Vec<u32>,
    label_sets: Vec<u32>,
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
    /// An empty part for a service.
    pub fn new(service: &str) -> Self {
        let mut builder = Self {
            header: PartHeader {
                service: service.to_owned(),
                type_sets: Vec::new(),
                series: Vec::new(),
                samples: 0,
                sections: [Section::default(); 3],
            },
            part: Part::default(),
            tables: Tables::default(),
        };
        builder.string(b"");
        builder.label_set(&[]);
        builder
    }

    /// Heap bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.part.heap_bytes()
    }

    /// Header (sections not placed yet) and data.
    pub fn finish(self) -> (PartHeader, Part) {
        (self.header, self.part)
    }

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
            stacks: vec![UNSET; profile.stacks.len()],
            label_sets: vec![UNSET; profile.label_sets.len()],
        };
        let width = profile.sample_types.len();
        let mut kept = Kept::default();
        let mut rows = Vec::with_capacity(profile.samples.len());
        for (index, values) in profile
            .samples
            .values
            .chunks_exact(width.max(1))
            .enumerate()
        {
            if values.iter().any(|&value| value < 0) {
                kept.negative += 1;
                continue;
            }
            if values.iter().all(|&value| value == 0) {
                kept.zero += 1;
                continue;
            }
            let stack = profile.samples.stack[index] as usize;
            let node = once!(
                seen.stacks[stack],
                self.profile_stack(profile, profile.stacks.get(stack), &mut seen)
            );
            let set = profile.samples.labels[index] as usize;
            let labels = once!(
                seen.label_sets[set],
                self.profile_labels(profile, set, &mut seen.strings)
            );
            rows.push((node, labels, index as u32));
        }
        rows.sort_unstable();
        kept.samples = rows.len() as u64;
        (rows, kept)
    }

    fn profile_stack(&mut self, profile: &Profile, stack: &[u32], seen: &mut Seen) -> u32 {
        let mut node = 0;
        for &location in stack.iter().rev() {
            let at = location as usize;
            let id = once!(seen.locations[at], self.profile_location(profile, at, seen));
            node = self.node(node, id);
        }
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

    /// Adds all profiles of another part.
    pub fn add_part(&mut self, header: &PartHeader, part: &Part) {
        let (nodes, label_sets) = self.add_symbols(&part.symbols);
        let type_sets: Vec<u32> = header
            .type_sets
            .iter()
            .map(|set| self.type_set(set.clone()))
            .collect();
        let series: Vec<u32> = header
            .series
            .iter()
            .map(|entry| self.series(&entry.labels))
            .collect();
        let mut rows = Vec::new();
        for old in &part.profiles.rows {
            let sets = part.row_label_sets(old);
            rows.clear();
            for (index, &node) in part.row_stacks(old).iter().enumerate() {
                let set = sets.get(index).map_or(0, |&set| label_sets[set as usize]);
                rows.push((nodes[node as usize], set, index as u32));
            }
            rows.sort_unstable();
            let mut row = ProfileRow {
                series: series[old.series as usize],
                type_set: type_sets[old.type_set as usize],
                ..*old
            };
            let width = header.type_sets[old.type_set as usize].values.len();
            let (first, n) = (old.first_value as usize, old.samples as usize);
            self.push_row(&mut row, width, &rows, |sample, column| {
                part.values[first + column * n + sample]
            });
        }
    }

    /// Maps of stack nodes and label sets of `symbols` to ids here.
    pub fn add_symbols(&mut self, symbols: &Symbols) -> (Vec<u32>, Vec<u32>) {
        let strings: Vec<u32> = (0..symbols.strings.count() as u32)
            .map(|id| self.string(symbols.strings.get(id)))
            .collect();
        let text = |id: u32| strings[id as usize];
        let functions: Vec<u32> = symbols
            .functions
            .iter()
            .map(|old| {
                self.function(Function {
                    name: text(old.name),
                    system_name: text(old.system_name),
                    filename: text(old.filename),
                    ..*old
                })
            })
            .collect();
        let mappings: Vec<u32> = symbols
            .mappings
            .iter()
            .map(|old| {
                self.mapping(Mapping {
                    filename: text(old.filename),
                    build_id: text(old.build_id),
                    ..*old
                })
            })
            .collect();
        let locations = self.add_locations(symbols, &functions, &mappings);
        let mut nodes = vec![0; symbols.parents.len()];
        for node in 1..nodes.len() {
            let parent = nodes[symbols.parents[node] as usize];
            nodes[node] = self.node(parent, locations[symbols.node_locations[node] as usize]);
        }
        let label_sets = (0..symbols.label_set_ends.len() as u32)
            .map(|set| {
                let old = symbols.label_set(set).iter();
                let labels: Vec<Label> = old
                    .map(|old| Label {
                        key: text(old.key),
                        text: text(old.text),
                        number: old.number,
                        unit: text(old.unit),
                    })
                    .collect();
                self.label_set(&labels)
            })
            .collect();
        (nodes, label_sets)
    }

    fn add_locations(&mut self, symbols: &Symbols, functions: &[u32], maps: &[u32]) -> Vec<u32> {
        let old = &symbols.locations;
        let mut ids = vec![0; old.count()];
        let mut lines = Vec::new();
        for (at, id) in ids.iter_mut().enumerate().skip(1) {
            lines.clear();
            lines.extend(old.lines(at as u32).iter().map(|line| Lines {
                function: functions[line.function as usize],
                ..*line
            }));
            let mapping = (old.mapping[at] != 0).then(|| {
                let mapping = old.mapping[at] as usize - 1;
                (maps[mapping], symbols.mappings[mapping].start)
            });
            *id = self.location(mapping, old.address[at], old.folded[at], &lines);
        }
        ids
    }

    /// Appends a profile whose samples are `rows`, sorted; `value(sample, column)` reads the source.
    fn push_row(
        &mut self,
        row: &mut ProfileRow,
        width: usize,
        rows: &[(u32, u32, u32)],
        value: impl Fn(usize, usize) -> i64,
    ) {
        let part = &mut self.part;
        row.first_sample = part.stacks.len() as u32;
        row.first_value = part.values.len() as u32;
        row.first_total = part.profiles.totals.len() as u32;
        part.stacks.extend(rows.iter().map(|row| row.0));
        // Label sets cost nothing until the first labelled sample comes.
        if !part.label_sets.is_empty() || rows.iter().any(|row| row.1 != 0) {
            part.label_sets.resize(row.first_sample as usize, 0);
            part.label_sets.extend(rows.iter().map(|row| row.1));
        }
        for column in 0..width {
            let mut total = 0_i64;
            for &(_, _, sample) in rows {
                let value = value(sample as usize, column);
                total = total.saturating_add(value);
                part.values.push(value);
            }
            part.profiles.totals.push(total);
        }
        part.profiles.rows.push(*row);
        self.header.samples += rows.len() as u64;
        self.note_series(row);
    }

    fn note_series(&mut self, row: &ProfileRow) {
        let entry = &mut self.header.series[row.series as usize];
        if let Err(at) = entry.type_sets.binary_search(&row.type_set) {
            entry.type_sets.insert(at, row.type_set);
        }
        entry.min_time_ns = entry.min_time_ns.min(row.time_ns);
        entry.max_time_ns = entry.max_time_ns.max(row.time_ns);
        entry.profiles += 1;
    }

    fn series(&mut self, labels: &Labels) -> u32 {
        let hash = labels.iter().fold(1, |hash, (name, value)| {
            pair(hash, pair(bytes(name.as_bytes()), bytes(value.as_bytes())))
        });
        let known = &self.header.series;
        let new = known.len() as u32;
        let (id, fresh) = self
            .tables
            .series
            .intern(hash, new, |id| known[id as usize].labels == *labels);
        if fresh {
            self.header.series.push(SeriesEntry {
                labels: labels.clone(),
                type_sets: Vec::new(),
                min_time_ns: i64::MAX,
                max_time_ns: i64::MIN,
                profiles: 0,
            });
        }
        id
    }

    fn type_set(&mut self, set: TypeSet) -> u32 {
        let hash = pair(bytes(set.name.as_bytes()), set.values.len() as u64);
        let known = &self.header.type_sets;
        let new = known.len() as u32;
        let (id, fresh) = self
            .tables
            .type_sets
            .intern(hash, new, |id| known[id as usize] == set);
        if fresh {
            self.header.type_sets.push(set);
        }
        id
    }

    fn string(&mut self, value: &[u8]) -> u32 {
        let known = &self.part.symbols.strings;
        if value.is_empty() {
            return 0;
        }
        let new = known.count() as u32;
        let (id, fresh) = self
            .tables
            .strings
            .intern(bytes(value), new, |id| known.get(id) == value);
        if fresh {
            self.part.symbols.strings.push(value);
        }
        id
    }

    fn function(&mut self, function: Function) -> u32 {
        let hash = pair(
            pair(function.name.into(), function.filename.into()),
            pair(function.system_name.into(), function.start_line as u64),
        );
        let known = &mut self.part.symbols.functions;
        let new = known.len() as u32;
        let (id, fresh) = self
            .tables
            .functions
            .intern(hash, new, |id| known[id as usize] == function);
        if fresh {
            known.push(function);
        }
        id
    }

    fn mapping(&mut self, mapping: Mapping) -> u32 {
        let size = mapping.limit.wrapping_sub(mapping.start);
        let rounded = size.wrapping_add(0xfff) & !0xfff;
        let name = if mapping.build_id != 0 {
            mapping.build_id
        } else {
            mapping.filename
        };
        let key = (rounded, mapping.offset, name);
        let known = &mut self.tables.mapping_keys;
        let new = known.len() as u32;
        let hash = pair(pair(rounded, mapping.offset), name.into());
        let (id, fresh) = self
            .tables
            .mappings
            .intern(hash, new, |id| known[id as usize] == key);
        if fresh {
            known.push(key);
            self.part.symbols.mappings.push(mapping);
        }
        id
    }

    /// `mapping`: index here, and the start that the source's address counts from. The same file
    /// at another address (other process, ASLR) gives the same location.
    fn location(
        &mut self,
        mapping: Option<(u32, u64)>,
        address: u64,
        folded: bool,
        lines: &[Lines],
    ) -> u32 {
        let symbols = &mut self.part.symbols;
        let (mapping, address) = match mapping {
            Some((id, start)) => {
                let base = symbols.mappings[id as usize].start;
                (id + 1, address.wrapping_sub(start).wrapping_add(base))
            }
            None => (0, address),
        };
        let mut hash = pair(address, u64::from(mapping) << 1 | u64::from(folded));
        for line in lines {
            hash = pair(
                hash,
                pair(line.function.into(), (line.line ^ line.column << 40) as u64),
            );
        }
        let known = &mut symbols.locations;
        let new = known.count() as u32;
        let (id, fresh) = self.tables.locations.intern(hash, new, |id| {
            let at = id as usize;
            known.address[at] == address
                && known.mapping[at] == mapping
                && known.folded[at] == folded
                && known.lines(id) == lines
        });
        if fresh {
            known.mapping.push(mapping);
            known.address.push(address);
            known.folded.push(folded);
            known.lines.extend_from_slice(lines);
            known.line_ends.push(known.lines.len() as u32);
        }
        id
    }

    #[inline]
    fn node(&mut self, parent: u32, location: u32) -> u32 {
        let symbols = &mut self.part.symbols;
        let new = symbols.parents.len() as u32;
        let (id, fresh) = self.tables.nodes.intern(parent, location, new);
        if fresh {
            symbols.parents.push(parent);
            symbols.node_locations.push(location);
        }
        id
    }

    fn label_set(&mut self, labels: &[Label]) -> u32 {
        if labels.is_empty() {
            return 0;
        }
        let hash = labels.iter().fold(1, |hash, label| {
            let value = pair(label.text.into(), label.number as u64);
            pair(hash, pair(value, pair(label.key.into(), label.unit.into())))
        });
        let symbols = &mut self.part.symbols;
        let new = symbols.label_set_ends.len() as u32;
        let (id, fresh) = self
            .tables
            .label_sets
            .intern(hash, new, |id| symbols.label_set(id) == labels);
        if fresh {
            symbols.labels.extend_from_slice(labels);
            symbols.label_set_ends.push(symbols.labels.len() as u32);
        }
        id
    }
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

/// A segment under construction: one part a service.
#[derive(Default)]
pub struct SegmentBuilder {
    parts: BTreeMap<String, PartBuilder>,
}

impl SegmentBuilder {
    /// Adds a pushed profile to the part of its service.
    pub fn add_profile(&mut self, profile: &Profile, pushed: &Pushed) -> Kept {
        self.part(service_of(&pushed.labels))
            .add_profile(profile, pushed)
    }

    /// Adds a part of another segment.
    pub fn add_part(&mut self, header: &PartHeader, part: &Part) {
        self.part(&header.service).add_part(header, part);
    }

    fn part(&mut self, service: &str) -> &mut PartBuilder {
        self.parts
            .entry(service.to_owned())
            .or_insert_with(|| PartBuilder::new(service))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Heap bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.parts.values().map(PartBuilder::heap_bytes).sum()
    }

    /// Parts in the order of their services.
    pub fn finish(self) -> Vec<(PartHeader, Part)> {
        self.parts.into_values().map(PartBuilder::finish).collect()
    }
}

/// Value of `service_name`; empty when there is none.
pub fn service_of(labels: &Labels) -> &str {
    labels
        .iter()
        .find(|(name, _)| name == "service_name")
        .map_or("", |(_, value)| value)
}
