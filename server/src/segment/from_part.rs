//! A part of another segment into a part: how segments are merged.

use super::symbols::{Function, Label, Lines, Mapping};
use super::{Part, PartBuilder, PartHeader, ProfileRow, Symbols};

impl PartBuilder {
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
}
