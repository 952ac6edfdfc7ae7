//! The profiles that a part got last, as a part of their own: what goes into a segment while the
//! part itself stays in memory, so that names met again are found rather than put in again.

use super::symbols::{Function, Label, Lines, Mapping, Symbols};
use super::{Part, PartBuilder, PartHeader, ProfileRow, Profiles, Section, SeriesEntry};

/// Ids in use out of a larger list, numbered anew in the same order.
#[derive(Default)]
struct Subset {
    bits: Vec<u64>,
    /// New number of each id in use, valid after [`Subset::number`].
    new: Vec<u32>,
}

impl Subset {
    /// None of `count` ids in use.
    fn begin(&mut self, count: usize) -> &mut Self {
        self.bits.clear();
        self.bits.resize(count.div_ceil(64), 0);
        // What stands in `new` counts for ids in use only.
        self.new.resize(count.max(self.new.len()), 0);
        self
    }

    /// Whether `id` was not in use before.
    #[inline]
    fn mark(&mut self, id: u32) -> bool {
        let word = &mut self.bits[id as usize / 64];
        let fresh = *word & (1 << (id % 64)) == 0;
        *word |= 1 << (id % 64);
        fresh
    }

    /// The ids in use, ascending.
    fn number(&mut self) -> Vec<u32> {
        let mut used = Vec::new();
        for (at, &word) in self.bits.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let id = at as u32 * 64 + left.trailing_zeros();
                self.new[id as usize] = used.len() as u32;
                used.push(id);
                left &= left - 1;
            }
        }
        used
    }

    #[inline]
    fn get(&self, id: u32) -> u32 {
        self.new[id as usize]
    }
}

/// Kept from one cut to the next: new ones would be megabytes of fresh pages for each segment.
#[derive(Default)]
pub struct Scratch {
    series: Subset,
    type_sets: Subset,
    nodes: Subset,
    label_sets: Subset,
    locations: Subset,
    functions: Subset,
    mappings: Subset,
    strings: Subset,
}

impl PartBuilder {
    /// Profiles so far.
    pub(crate) fn profiles(&self) -> usize {
        self.part.profiles.rows.len()
    }

    /// The profiles from number `from` on, with the names that they need and no others.
    pub(crate) fn cut(&mut self, from: usize) -> (PartHeader, Part) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let cut = self.cut_with(from, &mut scratch);
        self.scratch = scratch;
        cut
    }

    fn cut_with(&self, from: usize, scratch: &mut Scratch) -> (PartHeader, Part) {
        let old = &self.part;
        let rows = &old.profiles.rows[from..];
        let first = rows.first();
        let stacks = tail(&old.stacks, first.map(|row| row.first_sample));
        let label_sets = match tail(&old.label_sets, first.map(|row| row.first_sample)) {
            none if none.iter().all(|&set| set == 0) => &[],
            some => some,
        };
        let symbols = names_of(&old.symbols, stacks, label_sets, scratch);
        let mut part = Self::of_header(self.header_of(rows, scratch));
        part.header.samples = stacks.len() as u64;
        let rows_here = renumbered(rows, scratch);
        rows_here.iter().for_each(|row| part.note_series(row));
        let (nodes, sets) = (&scratch.nodes, &scratch.label_sets);
        let data = Part {
            profiles: Profiles {
                rows: rows_here,
                totals: tail(&old.profiles.totals, first.map(|row| row.first_total)).to_vec(),
            },
            stacks: stacks.iter().map(|&stack| nodes.get(stack)).collect(),
            label_sets: label_sets.iter().map(|&set| sets.get(set)).collect(),
            values: tail(&old.values, first.map(|row| row.first_value)).to_vec(),
            symbols,
        };
        (part.header, data)
    }

    /// Series and type sets of some profiles, not described yet.
    fn header_of(&self, rows: &[ProfileRow], scratch: &mut Scratch) -> PartHeader {
        let series = scratch.series.begin(self.header.series.len());
        rows.iter().for_each(|row| _ = series.mark(row.series));
        let sets = scratch.type_sets.begin(self.header.type_sets.len());
        rows.iter().for_each(|row| _ = sets.mark(row.type_set));
        let blank = |id: u32| SeriesEntry {
            labels: self.header.series[id as usize].labels.clone(),
            type_sets: Vec::new(),
            min_time_ns: i64::MAX,
            max_time_ns: i64::MIN,
            profiles: 0,
        };
        let set = |id: u32| self.header.type_sets[id as usize].clone();
        PartHeader {
            service: self.header.service.clone(),
            type_sets: sets.number().into_iter().map(set).collect(),
            series: series.number().into_iter().map(blank).collect(),
            samples: 0,
            sections: [Section::default(); 3],
        }
    }

    fn of_header(header: PartHeader) -> Self {
        let mut builder = Self::new("");
        builder.header = header;
        builder
    }
}

/// What of a list begins at `from`; nothing where there is no profile.
fn tail<T>(list: &[T], from: Option<u32>) -> &[T] {
    let from = from.map_or(list.len(), |from| from as usize);
    list.get(from..).unwrap_or(&[])
}

fn renumbered(rows: &[ProfileRow], scratch: &Scratch) -> Vec<ProfileRow> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    rows.iter()
        .map(|row| ProfileRow {
            series: scratch.series.get(row.series),
            type_set: scratch.type_sets.get(row.type_set),
            first_sample: row.first_sample - first.first_sample,
            first_value: row.first_value - first.first_value,
            first_total: row.first_total - first.first_total,
            ..*row
        })
        .collect()
}

/// The names of some stacks and label sets; their new numbers are in `scratch` then.
fn names_of(old: &Symbols, stacks: &[u32], label_sets: &[u32], scratch: &mut Scratch) -> Symbols {
    let nodes = scratch.nodes.begin(old.parents.len());
    nodes.mark(0);
    // All stacks a frame at a time: their steps do not wait for each other's memory.
    let mut paths = stacks.to_vec();
    while !paths.is_empty() {
        paths.retain_mut(|node| {
            let fresh = nodes.mark(*node);
            *node = old.parents[*node as usize];
            fresh
        });
    }
    let used_nodes = nodes.number();
    let locations = scratch.locations.begin(old.locations.count());
    locations.mark(0);
    for &node in &used_nodes {
        locations.mark(old.node_locations[node as usize]);
    }
    let sets = scratch.label_sets.begin(old.label_set_ends.len());
    sets.mark(0);
    for &set in label_sets {
        sets.mark(set);
    }
    let used_sets = sets.number();
    let mut symbols = scratch.names(old, &used_sets);
    let (nodes, locations) = (&scratch.nodes, &scratch.locations);
    let parents = used_nodes.iter().map(|&node| old.parents[node as usize]);
    symbols.parents = parents.map(|parent| nodes.get(parent)).collect();
    let at = used_nodes.iter();
    let at = at.map(|&node| old.node_locations[node as usize]);
    symbols.node_locations = at.map(|location| locations.get(location)).collect();
    symbols
}

impl Scratch {
    /// The names of the marked locations and of `sets`, without nodes.
    fn names(&mut self, old: &Symbols, sets: &[u32]) -> Symbols {
        let locations = self.locations.number();
        let columns = &old.locations;
        let mappings = self.mappings.begin(old.mappings.len());
        let functions = self.functions.begin(old.functions.len());
        for &id in &locations {
            if let Some(mapping) = columns.mapping[id as usize].checked_sub(1) {
                mappings.mark(mapping);
            }
            for line in columns.lines(id) {
                functions.mark(line.function);
            }
        }
        let (functions, mappings) = (functions.number(), mappings.number());
        self.mark_strings(old, &functions, &mappings, sets);
        let mut symbols = Symbols::default();
        for id in self.strings.number().into_iter().skip(1) {
            symbols.strings.push(old.strings.get(id));
        }
        let text = |id: u32| self.strings.get(id);
        let kept = functions.iter().map(|&id| old.functions[id as usize]);
        symbols.functions = kept
            .map(|function| Function {
                name: text(function.name),
                system_name: text(function.system_name),
                filename: text(function.filename),
                ..function
            })
            .collect();
        let kept = mappings.iter().map(|&id| old.mappings[id as usize]);
        symbols.mappings = kept
            .map(|mapping| Mapping {
                filename: text(mapping.filename),
                build_id: text(mapping.build_id),
                ..mapping
            })
            .collect();
        self.put_locations(old, &locations, &mut symbols);
        for &set in sets.iter().skip(1) {
            let labels = old.label_set(set).iter().map(|label| Label {
                key: text(label.key),
                text: text(label.text),
                number: label.number,
                unit: text(label.unit),
            });
            symbols.labels.extend(labels);
            symbols.label_set_ends.push(symbols.labels.len() as u32);
        }
        symbols
    }

    fn mark_strings(&mut self, old: &Symbols, functions: &[u32], mappings: &[u32], sets: &[u32]) {
        self.strings.begin(old.strings.count()).mark(0);
        for &id in functions {
            let function = &old.functions[id as usize];
            for text in [function.name, function.system_name, function.filename] {
                self.strings.mark(text);
            }
        }
        for &id in mappings {
            let mapping = &old.mappings[id as usize];
            for text in [mapping.filename, mapping.build_id] {
                self.strings.mark(text);
            }
        }
        for label in sets.iter().flat_map(|&set| old.label_set(set)) {
            for text in [label.key, label.text, label.unit] {
                self.strings.mark(text);
            }
        }
    }

    fn put_locations(&self, old: &Symbols, used: &[u32], symbols: &mut Symbols) {
        let (from, to) = (&old.locations, &mut symbols.locations);
        for &id in used.iter().skip(1) {
            let at = id as usize;
            let mapping = from.mapping[at].checked_sub(1);
            to.mapping
                .push(mapping.map_or(0, |mapping| self.mappings.get(mapping) + 1));
            to.address.push(from.address[at]);
            to.folded.push(from.folded[at]);
            let lines = from.lines(id).iter().map(|line| Lines {
                function: self.functions.get(line.function),
                ..*line
            });
            to.lines.extend(lines);
            to.line_ends.push(to.lines.len() as u32);
        }
    }
}
