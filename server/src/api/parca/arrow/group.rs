//! One profile under construction.

use std::collections::HashMap;
use std::ops::Range;

use pilotlight_profile::{
    FunctionId, Label, LocationId, Mapping, Profile, ProfileBuilder, StackId,
};

use crate::arrow::{Base, Column, Fault};

/// What its values are.
pub struct Kind {
    pub kind: String,
    pub unit: String,
    pub period_type: String,
    pub period_unit: String,
    pub period: i64,
}

/// Samples of one series, type and time.
pub struct Group {
    /// The profile.
    pub out: ProfileBuilder,
    /// For a count of timer samples: what each stands for.
    timed: Option<i64>,
    stacks: HashMap<Range<usize>, StackId>,
    locations: HashMap<usize, LocationId>,
    first_ns: i64,
    last_ns: i64,
    duration_ns: i64,
}

/// A value of a column of a location.
fn bytes<'c>(of: &'c Column, name: &str, row: usize) -> Result<&'c [u8], Fault> {
    let column = of.child(name);
    let found = column.map_or(Ok(None), |column| column.bytes(row))?;
    Ok(found.unwrap_or_default())
}

fn int(of: &Column, name: &str, row: usize) -> Result<i64, Fault> {
    let column = of.child(name);
    Ok(column
        .map_or(Ok(None), |column| column.int(row))?
        .unwrap_or(0))
}

fn spend(left: &mut u64, frames: usize) -> Result<(), Fault> {
    let rest = left.checked_sub(frames as u64);
    *left = rest.ok_or_else(|| Fault::new("the stacks have more frames than allowed"))?;
    Ok(())
}

impl Group {
    /// Without samples.
    pub fn new(kind: &Kind) -> Self {
        let mut out = ProfileBuilder::new();
        out.sample_type(&kind.kind, &kind.unit);
        // A count of timer samples is time as well, which is what people ask for.
        let timed = kind.unit == "count" && kind.period_unit == "nanoseconds" && kind.period > 0;
        if timed {
            out.sample_type(&kind.period_type, &kind.period_unit);
        }
        out.period(&kind.period_type, &kind.period_unit, kind.period);
        Self {
            out,
            timed: timed.then_some(kind.period),
            stacks: HashMap::new(),
            locations: HashMap::new(),
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            duration_ns: 0,
        }
    }

    /// Adds a sample.
    pub fn sample(
        &mut self,
        stack: StackId,
        labels: &[Label],
        value: i64,
        time_ns: i64,
        duration_ns: i64,
    ) {
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.duration_ns = self.duration_ns.max(duration_ns);
        let labels = self.out.label_set(labels);
        match self.timed {
            Some(period) => {
                let time = value.saturating_mul(period);
                self.out.sample(stack, labels, &[value, time]);
            }
            None => self.out.sample(stack, labels, &[value]),
        }
    }

    /// The profile: of the time of its first sample, as long as they are apart.
    pub fn finish(mut self) -> Profile {
        let apart = self.last_ns.saturating_sub(self.first_ns);
        self.out.time(self.first_ns, apart.max(self.duration_ns));
        self.out.finish()
    }

    /// The stack of these rows of a column of locations, leaf first.
    pub fn stack(
        &mut self,
        rows: Range<usize>,
        items: Option<&Column>,
        frames_left: &mut u64,
    ) -> Result<StackId, Fault> {
        if let Some(&known) = self.stacks.get(&rows) {
            return Ok(known);
        }
        spend(frames_left, rows.len())?;
        let mut path = Vec::with_capacity(rows.len());
        if let Some(items) = items {
            for row in rows.clone() {
                let base = items.base(row)?;
                let base = base.ok_or_else(|| Fault::new("a frame without a location"))?;
                path.push(self.location(base, frames_left)?);
            }
        }
        let made = self.out.stack(&path);
        self.stacks.insert(rows, made);
        Ok(made)
    }

    fn location(&mut self, of: Base, frames_left: &mut u64) -> Result<LocationId, Fault> {
        let (column, row) = (of.column, of.row);
        if let Some(&known) = self.locations.get(&row) {
            return Ok(known);
        }
        let mut lines = Vec::new();
        if let Some(list) = column.child("lines")
            && let Some(list) = list.base(row)?
            && let Some((rows, items)) = list.list()
        {
            // Lists may overlap, so that few bytes can be many lines.
            spend(frames_left, rows.len())?;
            for row in rows {
                let line = items.base(row)?;
                lines.push(self.line(line.ok_or_else(|| Fault::new("a line that is not there"))?)?);
            }
        }
        let file = bytes(column, "mapping_file", row)?;
        let build_id = bytes(column, "mapping_build_id", row)?;
        let mapping = if file.is_empty() && build_id.is_empty() {
            None
        } else {
            let file = self.out.string(file);
            let build_id = self.out.string(build_id);
            // Addresses are those of the file: the range where it was mapped is not told.
            Some(self.out.mapping(Mapping {
                file,
                build_id,
                has_functions: !lines.is_empty(),
                ..Mapping::default()
            }))
        };
        let address = match (mapping, &lines[..]) {
            // A script's frame: its number is a place in the bytecode.
            (None, [_, ..]) => 0,
            _ => int(column, "address", row)?.cast_unsigned(),
        };
        let made = self.out.location(mapping, address, &lines);
        self.locations.insert(row, made);
        Ok(made)
    }

    /// v1 has the function's columns in the line, v2 in a dictionary beside it.
    fn line(&mut self, of: Base) -> Result<(FunctionId, i64), Fault> {
        let (column, row) = (of.column, of.row);
        let number = int(column, "line", row)?;
        let (name, system_name, file, start) = match column.child("function") {
            Some(function) => {
                let base = function.base(row)?;
                let of = base.ok_or_else(|| Fault::new("a line without a function"))?;
                let system = bytes(of.column, "system_name", of.row)?;
                let file = bytes(of.column, "filename", of.row)?;
                (system, system, file, int(of.column, "start_line", of.row)?)
            }
            None => {
                let name = bytes(column, "function_name", row)?;
                let system = bytes(column, "function_system_name", row)?;
                let file = bytes(column, "function_filename", row)?;
                (name, system, file, int(column, "function_start_line", row)?)
            }
        };
        let name = if name.is_empty() { system_name } else { name };
        let name = self.out.string(name);
        let system_name = self.out.string(system_name);
        let file = self.out.string(file);
        Ok((self.out.function(name, system_name, file, start), number))
    }
}
