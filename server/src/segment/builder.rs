//! Interning into a new part.

use super::cut::Scratch;
use super::known::Memo;
use super::symbols::{Function, Label, Lines, Mapping, Symbols};
use super::{Labels, Part, PartHeader, ProfileRow, Section, SeriesEntry, TypeSet};
use crate::hash::{IdTable, PairTable, bytes, pair};

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

/// Size of a mapping in whole pages, as google/pprof compares it.
pub fn mapping_size(start: u64, limit: u64) -> u64 {
    limit.wrapping_sub(start).wrapping_add(0xfff) & !0xfff
}

/// One service's part under construction.
pub struct PartBuilder {
    pub(super) header: PartHeader,
    pub(super) part: Part,
    tables: Tables,
    pub(super) known_locations: Memo,
    pub(super) known_stacks: Memo,
    pub(super) scratch: Scratch,
}

impl Tables {
    fn heap_bytes(&self) -> usize {
        let ids = [
            &self.strings,
            &self.functions,
            &self.mappings,
            &self.locations,
            &self.label_sets,
            &self.series,
            &self.type_sets,
        ];
        ids.iter().map(|table| table.heap_bytes()).sum::<usize>()
            + self.nodes.heap_bytes()
            + self.mapping_keys.len() * 24
    }
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
            known_locations: Memo::default(),
            known_stacks: Memo::default(),
            scratch: Scratch::default(),
        };
        builder.string(b"");
        builder.label_set(&[]);
        builder
    }

    /// Heap bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.part.heap_bytes()
            + self.tables.heap_bytes()
            + self.known_locations.heap_bytes()
            + self.known_stacks.heap_bytes()
    }

    /// A finished part's symbols, only to be finished again.
    pub(crate) fn of_symbols(service: &str, symbols: Symbols) -> Self {
        let mut builder = Self::new(service);
        builder.part.symbols = symbols;
        builder
    }

    /// Header (sections not placed yet) and data.
    pub fn finish(self) -> (PartHeader, Part) {
        (self.header, self.part)
    }

    /// Appends a profile whose samples are `rows`, sorted; `value(sample, column)` reads the source.
    pub(super) fn push_row(
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

    pub(super) fn note_series(&mut self, row: &ProfileRow) {
        let entry = &mut self.header.series[row.series as usize];
        if let Err(at) = entry.type_sets.binary_search(&row.type_set) {
            entry.type_sets.insert(at, row.type_set);
        }
        entry.min_time_ns = entry.min_time_ns.min(row.time_ns);
        entry.max_time_ns = entry.max_time_ns.max(row.time_ns);
        entry.profiles += 1;
    }

    pub(super) fn series(&mut self, labels: &Labels) -> u32 {
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

    pub(super) fn type_set(&mut self, set: TypeSet) -> u32 {
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

    pub(super) fn string(&mut self, value: &[u8]) -> u32 {
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

    pub(super) fn function(&mut self, function: Function) -> u32 {
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

    pub(super) fn mapping(&mut self, mapping: Mapping) -> u32 {
        let rounded = mapping_size(mapping.start, mapping.limit);
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
    pub(super) fn location(
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

    /// The child of a node at a location. Most nodes have one child, which mostly came right behind
    /// them: these need no table, and stand in the processor's cache already.
    #[inline]
    pub(super) fn node(&mut self, parent: u32, location: u32) -> u32 {
        let symbols = &mut self.part.symbols;
        let (new, next) = (symbols.parents.len() as u32, parent as usize + 1);
        if symbols.parents.get(next) == Some(&parent) && symbols.node_locations[next] == location {
            return next as u32;
        }
        let is_next = next as u32 == new;
        if !is_next {
            let (id, fresh) = self.tables.nodes.intern(parent, location, new);
            if !fresh {
                return id;
            }
        }
        symbols.parents.push(parent);
        symbols.node_locations.push(location);
        new
    }

    pub(super) fn label_set(&mut self, labels: &[Label]) -> u32 {
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
