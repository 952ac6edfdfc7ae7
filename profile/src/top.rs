//! The table of functions by their own and their total value.

use std::collections::HashMap;

use crate::model::{Profile, row};
use crate::names::{UNKNOWN, base_name};

/// One row of [`top`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// Name of the function, or `[binary]` when only that is known, or `<unknown>`. Bytes that are
    /// not UTF-8 become U+FFFD.
    pub name: String,
    /// Source file where the function was first met; empty when unknown.
    pub file: String,
    /// Value of samples that end in this function (pprof: flat).
    pub self_value: i64,
    /// Value of samples in which this function occurs (pprof: cum).
    pub total_value: i64,
}

/// Functions of one value column, as `go tool pprof -top` lists them when no frames are dropped:
/// sorted by own value, functions without any value left out, inlined functions on rows of their own, a function
/// that occurs several times in one stack counted once in the total.
pub fn top(profile: &Profile, value_index: usize) -> Vec<TopRow> {
    let mut rows = Rows::of(profile);
    let stacks = &profile.samples.stack;
    for (sample, (&stack, value)) in stacks.iter().zip(profile.column(value_index)).enumerate() {
        if value != 0 {
            rows.add(sample as u32 + 1, profile.stacks.get(stack as usize), value);
        }
    }
    let mut rows = rows.rows;
    rows.retain(|row| row.self_value != 0 || row.total_value != 0);
    rows.sort_by(|a, b| {
        let by_self = b
            .self_value
            .unsigned_abs()
            .cmp(&a.self_value.unsigned_abs());
        let by_total = b
            .total_value
            .unsigned_abs()
            .cmp(&a.total_value.unsigned_abs());
        by_self.then_with(|| a.name.cmp(&b.name)).then(by_total)
    });
    rows
}

/// What makes two frames the same row.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Named(&'a [u8]),
    /// Binary and start line: pprof keeps nameless functions apart by these.
    Nameless(&'a [u8], i64),
}

struct Rows {
    rows: Vec<TopRow>,
    /// Rows of the frames of each location, innermost first.
    offsets: Vec<u32>,
    frames: Vec<u32>,
    /// Number of the last sample that touched a row.
    last_seen: Vec<u32>,
}

impl Rows {
    fn of(profile: &Profile) -> Rows {
        let mut known: HashMap<Key<'_>, u32> = HashMap::new();
        let mut rows = Rows {
            rows: Vec::new(),
            offsets: vec![0],
            frames: Vec::new(),
            last_seen: Vec::new(),
        };
        for i in 0..profile.locations.len() {
            let location = profile.location(i);
            let mapping = location
                .mapping
                .and_then(|m| profile.mappings.get(m.index()));
            let binary = mapping.map_or(&[][..], |m| profile.strings.get(m.file));
            if location.lines.is_empty() {
                let row = rows.row(&mut known, Key::Nameless(binary, 0), &[]);
                rows.frames.push(row);
            }
            for line in location.lines {
                let function = profile.functions.get(line.function.index());
                let function = function.copied().unwrap_or_default();
                let key = match profile.strings.get(function.name) {
                    [] => Key::Nameless(binary, function.start_line),
                    name => Key::Named(name),
                };
                let row = rows.row(&mut known, key, profile.strings.get(function.filename));
                rows.frames.push(row);
            }
            rows.offsets.push(rows.frames.len() as u32);
        }
        rows.last_seen = vec![0; rows.rows.len()];
        rows
    }

    fn row<'a>(&mut self, known: &mut HashMap<Key<'a>, u32>, key: Key<'a>, file: &[u8]) -> u32 {
        if let Some(&row) = known.get(&key) {
            return row;
        }
        let name = match key {
            Key::Named(name) => String::from_utf8_lossy(name).into_owned(),
            Key::Nameless([], _) => UNKNOWN.to_owned(),
            Key::Nameless(binary, _) => {
                format!("[{}]", base_name(&String::from_utf8_lossy(binary)))
            }
        };
        let row = self.rows.len() as u32;
        known.insert(key, row);
        self.rows.push(TopRow {
            name,
            file: String::from_utf8_lossy(file).into_owned(),
            self_value: 0,
            total_value: 0,
        });
        row
    }

    /// Adds a sample; `mark` differs for each.
    fn add(&mut self, mark: u32, stack: &[u32], value: i64) {
        for &location in stack {
            for &row in row(&self.offsets, &self.frames, location as usize) {
                let row = row as usize;
                if self.last_seen[row] != mark {
                    self.last_seen[row] = mark;
                    let total = &mut self.rows[row].total_value;
                    *total = total.wrapping_add(value);
                }
            }
        }
        let leaf = stack
            .first()
            .map(|&l| row(&self.offsets, &self.frames, l as usize));
        let Some(&leaf) = leaf.and_then(<[u32]>::first) else {
            return;
        };
        let leaf = leaf as usize;
        let own = &mut self.rows[leaf].self_value;
        *own = own.wrapping_add(value);
    }
}
