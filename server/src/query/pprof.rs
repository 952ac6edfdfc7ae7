//! A selection as pprof.

use std::collections::BTreeMap;

use pilotlight_profile::{
    Label, LabelSetId, LabelValue, LocationId, Mapping, MappingId, Profile, ProfileBuilder,
    StackId, StrId,
};

use crate::debuginfo::has_reason;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::merge::{address_name, is_address};
use super::read::{Added, Want};
use super::scan::Gather;
use crate::segment::{Lines, PartBuilder, Symbols};

/// What the parts of a selection add up to.
struct Sum {
    /// One symbol table for all parts.
    symbols: PartBuilder,
    /// (stack node, label set) → row of `values`.
    rows: BTreeMap<(u32, u32), u32>,
    /// Row by row, one value a column.
    values: Vec<i64>,
    width: usize,
    /// Column that is being added.
    column: usize,
    period: Option<i64>,
    start_ns: i64,
    duration_ns: i64,
}

impl Engine {
    /// The selection as one profile: real mappings, and a line on every location
    /// (`binary+0xoffset` where there is no name; its mapping does not claim to have names then, so
    /// that a reader with the binary at hand looks for them itself).
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or what the scan refuses.
    pub fn pprof(
        &self,
        selection: &Selection,
        cancel: &Cancel,
    ) -> Result<(Profile, Coverage), QueryError> {
        self.pprof_columns(std::slice::from_ref(selection), "", cancel)
    }

    /// Several value columns beside each other: selections that differ in the type alone, all of
    /// one name and period. `default` is the sample type that readers show first; empty = the last.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or what the scan refuses.
    pub fn pprof_columns(
        &self,
        columns: &[Selection],
        default: &str,
        cancel: &Cancel,
    ) -> Result<(Profile, Coverage), QueryError> {
        let mut sum = Sum::new(columns.len(), 0);
        let mut coverage = Coverage::default();
        for (column, selection) in columns.iter().enumerate() {
            let empty = || Sum::new(columns.len(), column);
            let (of_column, read) = self.gather(selection, Want::Labels, cancel, empty)?;
            if column == 0 {
                sum = of_column;
            } else {
                sum.join(of_column)?;
            }
            if column == 0 || read.partial {
                coverage = read;
            }
        }
        let mut out = ProfileBuilder::new();
        for selection in columns {
            let fields: Vec<&str> = selection.type_id.split(':').collect();
            if let [_, kind, unit, period_type, period_unit] = fields[..] {
                out.sample_type(kind, unit);
                out.period(period_type, period_unit, sum.period.unwrap_or(0));
            }
        }
        if !default.is_empty() {
            out.default_sample_type(default);
        }
        Ok((build(out, sum, &coverage), coverage))
    }
}

impl Sum {
    fn new(width: usize, column: usize) -> Self {
        Self {
            symbols: PartBuilder::new(""),
            rows: BTreeMap::new(),
            values: Vec::new(),
            width,
            column,
            period: None,
            start_ns: i64::MAX,
            duration_ns: 0,
        }
    }

    /// The values of a stack and a label set, one a column.
    fn values(&mut self, node: u32, set: u32) -> &mut [i64] {
        let new = (self.values.len() / self.width) as u32;
        let row = *self.rows.entry((node, set)).or_insert(new);
        if row == new {
            self.values.resize(self.values.len() + self.width, 0);
        }
        let first = row as usize * self.width;
        &mut self.values[first..first + self.width]
    }

    fn note_time(&mut self, period: i64, start_ns: i64, duration_ns: i64) {
        self.period = Some(self.period.unwrap_or(period).max(period));
        self.start_ns = self.start_ns.min(start_ns);
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
    }
}

impl Gather for Sum {
    fn add(&mut self, added: &Added) -> Result<(), QueryError> {
        let (nodes, sets) = self.symbols.add_symbols(added.symbols);
        let column = self.column;
        let unlabelled = added.nodes.iter().enumerate();
        let unlabelled = unlabelled.map(|(node, &value)| ((node as u32, 0), value));
        let labelled = added.labelled.iter().map(|(&key, &value)| (key, value));
        for ((node, set), value) in unlabelled.chain(labelled) {
            if value != 0 {
                let sum = self.values(nodes[node as usize], sets[set as usize]);
                sum[column] = sum[column].saturating_add(value);
            }
        }
        // Each column is of the same profiles: they count once.
        let rows = if column == 0 { added.rows } else { &[] };
        for row in rows {
            self.note_time(row.period, row.time_ns, row.duration_ns);
        }
        Ok(())
    }

    fn join(&mut self, other: Self) -> Result<(), QueryError> {
        let (_, part) = other.symbols.finish();
        let (nodes, sets) = self.symbols.add_symbols(&part.symbols);
        for ((node, set), row) in other.rows {
            let first = row as usize * other.width;
            let sum = self.values(nodes[node as usize], sets[set as usize]);
            for (sum, value) in sum.iter_mut().zip(&other.values[first..]) {
                *sum = sum.saturating_add(*value);
            }
        }
        if let Some(period) = other.period {
            self.note_time(period, other.start_ns, other.duration_ns);
        }
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.symbols.heap_bytes() + self.values.len() * 8 + self.rows.len() * 24
    }
}

fn build(mut out: ProfileBuilder, sum: Sum, coverage: &Coverage) -> Profile {
    if sum.period.is_some() {
        out.time(sum.start_ns, sum.duration_ns);
    }
    for problem in &coverage.problems {
        out.comment(&format!("partial: {} {}", problem.segment, problem.reason));
    }
    let (_, part) = sum.symbols.finish();
    let stacks = sum.rows.keys().map(|&(node, _)| node);
    let known = known(&part.symbols, stacks);
    let mut writer = Writer::new(&part.symbols, &known, out);
    for (&(node, set), &row) in &sum.rows {
        let first = row as usize * sum.width;
        let values = &sum.values[first..first + sum.width];
        if values.iter().any(|&value| value != 0) {
            let stack = writer.stack(node);
            let labels = writer.labels(set);
            writer.out.sample(stack, labels, values);
        }
    }
    writer.out.finish()
}

/// What is known of every location of a mapping that stands in the profile.
#[derive(Debug, Clone, Copy)]
struct Known {
    functions: bool,
    filenames: bool,
    line_numbers: bool,
    inline_frames: bool,
}

/// For each mapping, what its locations on these stacks have: a mapping claims names only when all
/// of its locations have them, since readers look for names where a mapping claims none.
fn known(symbols: &Symbols, stacks: impl Iterator<Item = u32>) -> Vec<Known> {
    let mut used = vec![false; symbols.parents.len()];
    let mut locations = vec![false; symbols.locations.count()];
    for node in stacks {
        let mut at = node as usize;
        while at != 0 && !used[at] {
            used[at] = true;
            locations[symbols.node_locations[at] as usize] = true;
            at = symbols.parents[at] as usize;
        }
    }
    let nothing = Known {
        functions: true,
        filenames: false,
        line_numbers: false,
        inline_frames: false,
    };
    let mut known = vec![nothing; symbols.mappings.len()];
    let mut seen = vec![false; symbols.mappings.len()];
    for location in (1..locations.len()).filter(|&location| locations[location]) {
        let Some(mapping) = (symbols.locations.mapping[location] as usize).checked_sub(1) else {
            continue;
        };
        seen[mapping] = true;
        let of = &mut known[mapping];
        let lines = symbols.locations.lines(location as u32);
        let function = |line: &Lines| symbols.functions[line.function as usize];
        let name = |line: &Lines| symbols.strings.get(function(line).name);
        let named = |line: &Lines| !name(line).is_empty() && !is_address(name(line));
        of.functions &= !lines.is_empty() && lines.iter().all(named);
        of.filenames |= lines.iter().any(|line| function(line).filename != 0);
        of.line_numbers |= lines.iter().any(|line| line.line != 0);
        of.inline_frames |= lines.len() > 1;
    }
    for (of, seen) in known.iter_mut().zip(seen) {
        of.functions &= seen;
        of.filenames &= of.functions;
        of.line_numbers &= of.functions;
        of.inline_frames &= of.functions;
    }
    known
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
    fn new(symbols: &'a Symbols, known: &[Known], mut out: ProfileBuilder) -> Self {
        let mut mappings = Vec::with_capacity(symbols.mappings.len());
        for (mapping, known) in symbols.mappings.iter().zip(known) {
            let file = out.string(symbols.strings.get(mapping.filename));
            let build_id = out.string(symbols.strings.get(mapping.build_id));
            let mapping = Mapping {
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file,
                build_id,
                has_functions: known.functions,
                has_filenames: known.filenames,
                has_line_numbers: known.line_numbers,
                has_inline_frames: known.inline_frames,
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
            // Why there is no name stands in trees and tables; a reader of pprof looks for it itself.
            if name != StrId::EMPTY && !has_reason(self.symbols.strings.get(of.name)) {
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
