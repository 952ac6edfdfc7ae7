//! From sites to a profile with mappings, names and lines.

use std::collections::HashMap;
use std::sync::Arc;

use pilotlight_profile::{Label, LabelSetId, LabelValue, LocationId, Profile, ProfileBuilder};

use super::{COUNTERS, Row};
use crate::aggregate::Frame;
use crate::capture::Names;
use crate::lived::{self, Lived};
use crate::symbols;

/// What the profile looks like.
pub(crate) struct Shape<'a, const N: usize> {
    /// Type and unit of each column.
    pub(crate) columns: [(&'a str, &'a str); N],
    /// The column that is shown first.
    pub(crate) default_column: &'a str,
    /// Type, unit, and how many units a sample stands for.
    pub(crate) period: (&'a str, &'a str, i64),
    /// Shown for rows without frames.
    pub(crate) without_stack: &'a str,
    /// Functions that are left out where they are the innermost frames: the profiler's own.
    pub(crate) hidden: fn(&str) -> bool,
}

/// A profile of `rows`, with the values that `values` makes of a row's counters; rows whose values
/// are all zero are left out. The time of the profile is the caller's to set.
pub(crate) fn profile_of<const N: usize>(
    rows: &[Row],
    shape: &Shape<'_, N>,
    values: impl Fn(&[u64; COUNTERS]) -> [i64; N] + Send,
) -> Profile {
    symbols::on_own_thread(|| build(rows, shape, values))
}

fn build<const N: usize>(
    rows: &[Row],
    shape: &Shape<'_, N>,
    values: impl Fn(&[u64; COUNTERS]) -> [i64; N],
) -> Profile {
    profile_with(rows, shape, values, |_| Extra::default())
}

/// What a row has beside its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extra {
    /// A function that was called innermost.
    pub(crate) leaf: Option<&'static str>,
    pub(crate) labels: Vec<(&'static str, String)>,
}

/// As [`profile_of`], of rows with the generation of modules that their frames belong to.
pub(crate) fn profile_at<const N: usize>(
    rows: Vec<(Row, u32)>,
    shape: &Shape<'_, N>,
    values: impl Fn(&[u64; COUNTERS]) -> [i64; N] + Send,
) -> Profile {
    let (rows, generations): (Vec<Row>, Vec<u32>) = rows.into_iter().unzip();
    let extra = |_| Extra::default();
    symbols::on_own_thread(|| profile_with_at(&rows, shape, values, extra, |at| generations[at]))
}

/// As [`profile_of`]; `extra` tells what the row of this index has besides.
pub(crate) fn profile_with<const N: usize>(
    rows: &[Row],
    shape: &Shape<'_, N>,
    values: impl Fn(&[u64; COUNTERS]) -> [i64; N],
    extra: impl Fn(usize) -> Extra,
) -> Profile {
    profile_with_at(rows, shape, values, extra, |_| 0)
}

fn profile_with_at<const N: usize>(
    rows: &[Row],
    shape: &Shape<'_, N>,
    values: impl Fn(&[u64; COUNTERS]) -> [i64; N],
    extra: impl Fn(usize) -> Extra,
    generation: impl Fn(usize) -> u32,
) -> Profile {
    let mut builder = ProfileBuilder::new();
    for (ty, unit) in shape.columns {
        builder.sample_type(ty, unit);
    }
    builder.default_sample_type(shape.default_column);
    let (ty, unit, period) = shape.period;
    builder.period(ty, unit, period);
    let lived = lived::all();
    let modules: Vec<_> = lived.iter().map(|l| Arc::clone(&l.module)).collect();
    let mut places = Places {
        lived: &lived,
        generation: 0,
        known: HashMap::new(),
        names: Names::new(&mut builder, &modules),
        hidden: shape.hidden,
    };
    let samples: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| (at, row, values(&row.counters)))
        .filter(|(.., values)| *values != [0; N])
        .map(|(at, row, values)| {
            let Extra { leaf, labels } = extra(at);
            places.generation = generation(at);
            (places.stack(row, leaf, shape.without_stack), labels, values)
        })
        .collect();
    for (stack, labels, values) in samples {
        let stack = builder.stack(&stack);
        let labels = label_set(&mut builder, &labels);
        builder.sample(stack, labels, &values);
    }
    builder.finish()
}

fn label_set(builder: &mut ProfileBuilder, labels: &[(&'static str, String)]) -> LabelSetId {
    let mut text = |text: &str| builder.string(text.as_bytes());
    let labels: Vec<Label> = labels
        .iter()
        .map(|(key, value)| Label {
            key: text(key),
            value: LabelValue::Str(text(value)),
        })
        .collect();
    match labels.is_empty() {
        true => LabelSetId::default(),
        false => builder.label_set(&labels),
    }
}

/// Locations by address.
struct Places<'a> {
    lived: &'a [Lived],
    /// Of the row at hand.
    generation: u32,
    /// By address and module, and whether it is hidden.
    known: HashMap<(u64, Option<usize>), (LocationId, bool)>,
    names: Names<'a>,
    hidden: fn(&str) -> bool,
}

impl Places<'_> {
    fn stack(&mut self, row: &Row, leaf: Option<&str>, without_stack: &str) -> Vec<LocationId> {
        if row.is_overflow {
            return vec![self.names.named("[over the memory budget]", 0)];
        }
        let mut stack = Vec::with_capacity(row.frames.len() + 1);
        for address in &row.frames {
            let (location, hidden) = self.place(*address);
            if !(hidden && stack.is_empty()) {
                stack.push(location);
            }
        }
        if row.truncated {
            stack.push(self.names.location(&Frame::Truncated));
        } else if stack.is_empty() {
            stack.push(self.names.named(without_stack, 0));
        }
        if let Some(leaf) = leaf {
            stack.insert(0, self.names.named(leaf, 0));
        }
        stack
    }

    fn place(&mut self, address: u64) -> (LocationId, bool) {
        let module = lived::find(self.lived, address, self.generation);
        if let Some(known) = self.known.get(&(address, module)) {
            return *known;
        }
        let place = match module {
            Some(at) => {
                let frame = Frame::Code {
                    module: at as u32,
                    address,
                };
                let names = symbols::frames(&self.lived[at].module, address);
                // The last one is the function itself, those before are inlined into it.
                let is_hidden = names.last().is_some_and(|f| (self.hidden)(&f.function));
                (self.names.location(&frame), is_hidden)
            }
            None => (self.names.location(&Frame::Unknown { address }), false),
        };
        self.known.insert((address, module), place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape<'_, 2> = Shape {
        columns: [("contentions", "count"), ("delay", "nanoseconds")],
        default_column: "delay",
        period: ("contentions", "count", 1),
        without_stack: "[no stack]",
        hidden: |name| name.contains("hide_me"),
    };

    #[inline(never)]
    fn hide_me(x: u64) -> u64 {
        x * 7 + 1
    }

    #[inline(never)]
    fn show_me(x: u64) -> u64 {
        x * 8 + 3
    }

    fn row(frames: &[u64], counters: [u64; COUNTERS]) -> Row {
        Row {
            frames: frames.to_vec(),
            truncated: false,
            is_overflow: false,
            counters,
        }
    }

    fn text(rows: &[Row]) -> Vec<String> {
        let profile = profile_of(rows, &SHAPE, |c| [c[0] as i64, c[1] as i64]);
        let mut text = Vec::new();
        pilotlight_profile::to_collapsed(&profile, 1, &mut text).unwrap();
        let mut lines: Vec<String> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(str::to_string)
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn rows_become_named_stacks_and_hidden_leaves_go() {
        let (hidden, shown) = (hide_me as *const () as u64, show_me as *const () as u64);
        let mut overflow = row(&[], [1, 9, 0, 0]);
        overflow.is_overflow = true;
        let mut cut = row(&[shown], [1, 3, 0, 0]);
        cut.truncated = true;
        let rows = [
            row(&[hidden, shown, hidden], [1, 5, 0, 0]),
            row(&[shown, hidden], [1, 6, 0, 0]),
            row(&[], [2, 4, 0, 0]),
            row(&[shown], [0, 0, 9, 9]),
            cut,
            overflow,
        ];
        let here = "pilotlight::sites::profile::tests";
        let expected = [
            "[no stack] 4".to_string(),
            "[over the memory budget] 9".to_string(),
            format!("[truncated];{here}::show_me 3"),
            format!("{here}::hide_me;{here}::show_me 11"),
        ];
        assert_eq!(text(&rows), expected);
    }
}
