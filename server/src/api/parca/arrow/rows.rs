//! From rows of an Arrow write to profiles: one for each set of labels, type and ten seconds.

use std::collections::HashMap;

use pilotlight_profile::{Label, LabelValue, Limits, Profile};

use super::group::{Group, Kind};
use super::stacks::Stacks;
use crate::arrow::{Column, Fault};

/// Rows of one profile are of the same ten seconds.
const WINDOW_NS: i64 = 10_000_000_000;
/// Profiles of one write: more labels than that are no labels of a series.
const MOST_GROUPS: usize = 4096;
/// What differs from sample to sample stays with the sample; a series of each thread and CPU would be many.
const OF_THE_SAMPLE: [&str; 3] = ["cpu", "thread_id", "thread_name"];

/// A profile and whose it is.
pub struct Converted {
    /// Name of the profile: who made it.
    pub name: String,
    /// Labels of the series.
    pub labels: Vec<(String, String)>,
    /// The samples.
    pub profile: Profile,
}

/// All of a write.
#[derive(Default)]
pub struct All {
    /// What can be kept.
    pub profiles: Vec<Converted>,
    /// Rows that cannot.
    pub bad_rows: u64,
    /// What is wrong with the first of them.
    pub fault: Option<String>,
}

/// Values of a column as numbers: equal ones have the same; 0 is none.
struct Words<'c, 'a> {
    name: &'c str,
    column: &'c Column<'a>,
    /// Of each row of the column that holds the values, once it was asked for.
    known: HashMap<(usize, *const ()), u32>,
    numbers: HashMap<&'c [u8], u32>,
    words: Vec<&'c [u8]>,
}

impl<'c, 'a> Words<'c, 'a> {
    fn new(name: &'c str, column: &'c Column<'a>) -> Self {
        Self {
            name,
            column,
            known: HashMap::new(),
            numbers: HashMap::new(),
            words: Vec::new(),
        }
    }

    fn number(&mut self, row: usize) -> Result<u32, Fault> {
        let Some(base) = self.column.base(row)? else {
            return Ok(0);
        };
        let place = (base.row, std::ptr::from_ref(base.column).cast());
        if let Some(&known) = self.known.get(&place) {
            return Ok(known);
        }
        let word = base.bytes().unwrap_or_default();
        let number = match word {
            [] => 0,
            _ => *self.numbers.entry(word).or_insert_with(|| {
                self.words.push(word);
                self.words.len() as u32
            }),
        };
        self.known.insert(place, number);
        Ok(number)
    }

    fn text(&self, number: u32) -> String {
        let word = (number as usize).checked_sub(1).map(|at| self.words[at]);
        String::from_utf8_lossy(word.unwrap_or_default()).into_owned()
    }
}

/// Columns of samples, whichever way their schema has them.
pub struct Samples<'c, 'a> {
    root: &'c Column<'a>,
    series: Vec<Words<'c, 'a>>,
    sample: Vec<Words<'c, 'a>>,
    /// Producer, sample type and unit, period type and unit.
    kind: Vec<Words<'c, 'a>>,
    value: &'c Column<'a>,
    timestamp: &'c Column<'a>,
    period: &'c Column<'a>,
    duration: &'c Column<'a>,
}

impl<'c, 'a> Samples<'c, 'a> {
    /// Finds the columns.
    ///
    /// # Errors
    /// When one is missing.
    pub fn of(root: &'c Column<'a>) -> Result<Self, Fault> {
        let column = |name: &str| {
            let found = root.child(name);
            found.ok_or_else(|| Fault::new(format!("column {name:?} is missing")))
        };
        let kinds = [
            "producer",
            "sample_type",
            "sample_unit",
            "period_type",
            "period_unit",
        ];
        let kind = kinds.map(|name| Ok(Words::new(name, column(name)?)));
        // v1 has a column for each label, v2 a struct of all.
        let inside = root.child("labels").map_or(&[][..], Column::children);
        let inside = inside.iter().map(|(name, column)| (name.as_str(), column));
        let beside = root.children().iter();
        let beside =
            beside.filter_map(|(name, column)| Some((name.strip_prefix("labels.")?, column)));
        let labels = inside.chain(beside);
        let labels = labels.map(|(name, column)| Words::new(name, column));
        let (sample, series) = labels.partition(|words| OF_THE_SAMPLE.contains(&words.name));
        Ok(Self {
            root,
            series,
            sample,
            kind: kind.into_iter().collect::<Result<_, Fault>>()?,
            value: column("value")?,
            timestamp: column("timestamp")?,
            period: column("period")?,
            duration: column("duration")?,
        })
    }

    /// Sorts all rows into profiles.
    pub fn convert(mut self, stacks: &Stacks<'_, 'a>, limits: &Limits, all: &mut All) {
        let mut groups: HashMap<Key, Group> = HashMap::new();
        let mut frames_left = limits.stack_frames;
        for row in 0..self.root.len {
            let taken = self.row(row, stacks, limits, &mut frames_left, &mut groups);
            if let Err(fault) = taken {
                all.bad_rows += 1;
                all.fault
                    .get_or_insert_with(|| format!("row {row}: {fault}"));
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        // The same write gives the same profiles in the same order.
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (key, group) in groups {
            let labels = self.series.iter().zip(&key.series);
            let labels = labels.filter(|(_, number)| **number != 0);
            let labels = labels.map(|(words, number)| (words.name.to_owned(), words.text(*number)));
            all.profiles.push(Converted {
                name: self.kind[0].text(key.kind[0]),
                labels: labels.collect(),
                profile: group.finish(),
            });
        }
    }

    fn row(
        &mut self,
        row: usize,
        stacks: &Stacks<'_, 'a>,
        limits: &Limits,
        frames_left: &mut u64,
        groups: &mut HashMap<Key, Group>,
    ) -> Result<(), Fault> {
        let value = self.value.int(row)?;
        let value = value.ok_or_else(|| Fault::new("it has no value"))?;
        let timestamp = self.timestamp.int(row)?.unwrap_or(0);
        let numbers = |list: &mut [Words<'_, 'a>]| {
            let numbers = list.iter_mut().map(|words| words.number(row));
            numbers.collect::<Result<Vec<_>, Fault>>()
        };
        let key = Key {
            window: timestamp.div_euclid(WINDOW_NS),
            kind: numbers(&mut self.kind)?,
            series: numbers(&mut self.series)?,
            period: self.period.int(row)?.unwrap_or(0),
        };
        let sample = numbers(&mut self.sample)?;
        let (frames, items) = stacks.of(row)?;
        let depth = frames.len() as u64;
        if depth > limits.stack_depth {
            return Err(Fault::new(format!("a stack of {depth} frames")));
        }
        if groups.len() >= MOST_GROUPS && !groups.contains_key(&key) {
            return Err(Fault::new(format!(
                "more than {MOST_GROUPS} label sets and types in one write"
            )));
        }
        let group = groups.entry(key);
        let group = group.or_insert_with_key(|key| {
            let [_, kind, unit, period_type, period_unit] =
                [0, 1, 2, 3, 4].map(|at| self.kind[at].text(key.kind[at]));
            Group::new(&Kind {
                kind,
                unit,
                period_type,
                period_unit,
                period: key.period,
            })
        });
        let stack = group.stack(frames, items, frames_left)?;
        let mut labels = Vec::new();
        for (words, &number) in self.sample.iter().zip(&sample) {
            if number != 0 {
                labels.push(Label {
                    key: group.out.string(words.name.as_bytes()),
                    value: LabelValue::Str(group.out.string(words.text(number).as_bytes())),
                });
            }
        }
        let duration = self.duration.int(row)?.unwrap_or(0);
        group.sample(stack, &labels, value, timestamp, duration);
        Ok(())
    }
}

/// What the rows of one profile have in common.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    window: i64,
    kind: Vec<u32>,
    series: Vec<u32>,
    period: i64,
}
