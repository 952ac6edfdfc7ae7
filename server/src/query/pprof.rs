//! A selection as pprof.

use std::collections::BTreeMap;

use pilotlight_profile::{
    Label, LabelSetId, LabelValue, LocationId, Mapping, MappingId, Profile, ProfileBuilder,
    StackId, StrId,
};

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::merge::address_name;
use super::read::Want;
use crate::segment::{PartBuilder, Symbols};

/// What the parts of a selection add up to.
struct Sum {
    /// One symbol table for all parts.
    symbols: PartBuilder,
    /// (stack node, label set) → value.
    values: BTreeMap<(u32, u32), i64>,
    period: Option<i64>,
    start_ns: i64,
    duration_ns: i64,
}

impl Engine {
    /// The selection as one profile: real mappings, and a line on every location
    /// (`binary+0xoffset` where there is no name).
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or when the selection has no profiles at all.
    pub fn pprof(
        &self,
        selection: &Selection,
        cancel: &Cancel,
    ) -> Result<(Profile, Coverage), QueryError> {
        let mut sum = Sum {
            symbols: PartBuilder::new(""),
            values: BTreeMap::new(),
            period: None,
            start_ns: i64::MAX,
            duration_ns: 0,
        };
        let coverage = self.walk_parts(selection, Want::Labels, cancel, |added| {
            let (nodes, sets) = sum.symbols.add_symbols(added.symbols);
            let unlabelled = added.nodes.iter().enumerate();
            let unlabelled = unlabelled.map(|(node, &value)| ((node as u32, 0), value));
            let labelled = added.labelled.iter().map(|(&key, &value)| (key, value));
            for ((node, set), value) in unlabelled.chain(labelled) {
                if value != 0 {
                    let key = (nodes[node as usize], sets[set as usize]);
                    let total = sum.values.entry(key).or_default();
                    *total = total.saturating_add(value);
                }
            }
            for row in added.rows {
                let period = sum.period.unwrap_or(row.period);
                sum.period = Some(period.max(row.period));
                sum.start_ns = sum.start_ns.min(row.time_ns);
                sum.duration_ns = sum.duration_ns.saturating_add(row.duration_ns);
            }
            Ok(())
        })?;
        Ok((build(&selection.type_id, sum, &coverage), coverage))
    }
}

fn build(type_id: &str, sum: Sum, coverage: &Coverage) -> Profile {
    let mut out = ProfileBuilder::new();
    let fields: Vec<&str> = type_id.split(':').collect();
    if let [_, kind, unit, period_type, period_unit] = fields[..] {
        out.sample_type(kind, unit);
        out.period(period_type, period_unit, sum.period.unwrap_or(0));
    }
    if sum.period.is_some() {
        out.time(sum.start_ns, sum.duration_ns);
    }
    for problem in &coverage.problems {
        out.comment(&format!("partial: {} {}", problem.segment, problem.reason));
    }
    let (_, part) = sum.symbols.finish();
    let mut writer = Writer::new(&part.symbols, out);
    for ((node, set), value) in sum.values {
        if value != 0 {
            let stack = writer.stack(node);
            let labels = writer.labels(set);
            writer.out.sample(stack, labels, &[value]);
        }
    }
    writer.out.finish()
}

/// Moves symbols into a `ProfileBuilder` as samples need them.
struct Writer<'a> {
    symbols: &'a Symbols,
    out: ProfileBuilder,
    mappings: Vec<MappingId>,
    locations: Vec<Option<LocationId>>,
    label_sets: Vec<Option<LabelSetId>>,
    path: Vec<LocationId>,
}

impl<'a> Writer<'a> {
    fn new(symbols: &'a Symbols, mut out: ProfileBuilder) -> Self {
        let mut mappings = Vec::with_capacity(symbols.mappings.len());
        for mapping in &symbols.mappings {
            let file = out.string(symbols.strings.get(mapping.filename));
            let build_id = out.string(symbols.strings.get(mapping.build_id));
            // Every location gets a line, so no reader has to look for names itself.
            let mapping = Mapping {
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file,
                build_id,
                has_functions: true,
                has_filenames: mapping.flags & 2 != 0,
                has_line_numbers: mapping.flags & 4 != 0,
                has_inline_frames: mapping.flags & 8 != 0,
            };
            mappings.push(out.mapping(mapping));
        }
        Self {
            symbols,
            out,
            mappings,
            locations: vec![None; symbols.locations.count()],
            label_sets: vec![None; symbols.label_set_ends.len()],
            path: Vec::new(),
        }
    }

    fn stack(&mut self, node: u32) -> StackId {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let mut at = node as usize;
        while at != 0 {
            path.push(self.location(self.symbols.node_locations[at]));
            at = self.symbols.parents[at] as usize;
        }
        let stack = self.out.stack(&path);
        self.path = path;
        stack
    }

    fn location(&mut self, id: u32) -> LocationId {
        if let Some(known) = self.locations[id as usize] {
            return known;
        }
        let columns = &self.symbols.locations;
        let mut lines = Vec::new();
        for line in columns.lines(id) {
            let of = &self.symbols.functions[line.function as usize];
            let text = |out: &mut ProfileBuilder, id: u32| out.string(self.symbols.strings.get(id));
            let name = text(&mut self.out, of.name);
            let system_name = text(&mut self.out, of.system_name);
            let filename = text(&mut self.out, of.filename);
            if name != StrId::EMPTY {
                let function = self
                    .out
                    .function(name, system_name, filename, of.start_line);
                lines.push((function, line.line));
            }
        }
        if lines.is_empty() {
            let name = self.out.string(address_name(self.symbols, id).as_bytes());
            lines.push((self.out.function(name, name, StrId::EMPTY, 0), 0));
        }
        let mapping = match columns.mapping[id as usize] {
            0 => None,
            mapping => self.mappings.get(mapping as usize - 1).copied(),
        };
        let made = self
            .out
            .location(mapping, columns.address[id as usize], &lines);
        self.locations[id as usize] = Some(made);
        made
    }

    fn labels(&mut self, set: u32) -> LabelSetId {
        if let Some(known) = self.label_sets[set as usize] {
            return known;
        }
        let mut labels = Vec::new();
        for label in self.symbols.label_set(set) {
            let mut text = |id: u32| self.out.string(self.symbols.strings.get(id));
            let key = text(label.key);
            let value = match label.text {
                0 => LabelValue::Num {
                    value: label.number,
                    unit: text(label.unit),
                },
                id => LabelValue::Str(text(id)),
            };
            labels.push(Label { key, value });
        }
        let made = self.out.label_set(&labels);
        self.label_sets[set as usize] = Some(made);
        made
    }
}
