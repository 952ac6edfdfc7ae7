//! A function over time: its own and its whole value in every step.

use std::collections::BTreeMap;

use regex::bytes::Regex;
use serde::Serialize;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::merge::address_name;
use super::rows::{PerRow, RowSamples};
use super::series::check_step;
use crate::segment::{PartHeader, Symbols};

/// Which functions are meant.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// The one of this name.
    Name(Vec<u8>),
    /// All whose names match.
    Matching(Regex),
}

impl Wanted {
    fn holds(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Matching(regex) => regex.is_match(name),
        }
    }
}

/// Values of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FunctionPoint {
    /// Start of the step, Unix milliseconds.
    pub time_ms: i64,
    /// Value of stacks that end in the function.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Value of stacks that pass through it; recursion counts once.
    pub total: i64,
    /// Value of all stacks.
    pub all: i64,
}

struct Steps<'a> {
    wanted: &'a Wanted,
    step_ns: i64,
    /// Of the part: for each node, whether the function is on its stack, and whether it is the leaf.
    nodes: Vec<(bool, bool)>,
    steps: BTreeMap<i64, FunctionPoint>,
}

/// For each location, whether one of its frames is wanted, and whether the innermost is.
fn locations(symbols: &Symbols, wanted: &Wanted) -> Vec<(bool, bool)> {
    let of = |function: u32| {
        symbols
            .strings
            .get(symbols.functions[function as usize].name)
    };
    let functions: Vec<bool> = (0..symbols.functions.len() as u32)
        .map(|function| wanted.holds(of(function)))
        .collect();
    let locations = 0..symbols.locations.count() as u32;
    locations
        .map(|location| {
            let named = |line: &&crate::segment::Lines| !of(line.function).is_empty();
            let mut lines = symbols
                .locations
                .lines(location)
                .iter()
                .filter(named)
                .peekable();
            match lines.peek() {
                None => {
                    let here =
                        location != 0 && wanted.holds(address_name(symbols, location).as_bytes());
                    (here, here)
                }
                Some(innermost) => {
                    let leaf = functions[innermost.function as usize];
                    (lines.any(|line| functions[line.function as usize]), leaf)
                }
            }
        })
        .collect()
}

impl PerRow for Steps<'_> {
    fn part(&mut self, _: &PartHeader, symbols: &Symbols) {
        let locations = locations(symbols, self.wanted);
        let mut nodes = vec![(false, false); symbols.parents.len()];
        for node in 1..nodes.len() {
            let (on, leaf) = locations[symbols.node_locations[node] as usize];
            nodes[node] = (on || nodes[symbols.parents[node] as usize].0, leaf);
        }
        self.nodes = nodes;
    }

    fn row(&mut self, _: &PartHeader, _: &Symbols, samples: &RowSamples) {
        let time_ms = samples.row.time_ns.div_euclid(self.step_ns) * self.step_ns / 1_000_000;
        let point = self.steps.entry(time_ms).or_default();
        let add = |sum: &mut i64, value: i64| *sum = sum.saturating_add(value);
        for (&node, &value) in samples.nodes.iter().zip(samples.values) {
            let (on, leaf) = self.nodes[node as usize];
            add(&mut point.all, value);
            if on {
                add(&mut point.total, value);
            }
            if leaf {
                add(&mut point.self_value, value);
            }
        }
    }

    fn join(&mut self, other: Self) {
        for (time_ms, of) in other.steps {
            let point = self.steps.entry(time_ms).or_default();
            point.self_value = point.self_value.saturating_add(of.self_value);
            point.total = point.total.saturating_add(of.total);
            point.all = point.all.saturating_add(of.all);
        }
    }

    fn heap_bytes(&self) -> usize {
        self.nodes.len() * 2 + self.steps.len() * 64
    }
}

impl Engine {
    /// The function in steps of `step_ns`.
    ///
    /// # Errors
    /// When the step is too small for the window, or the scan is refused.
    pub fn function_over_time(
        &self,
        selection: &Selection,
        wanted: &Wanted,
        step_ns: i64,
        cancel: &Cancel,
    ) -> Result<(Vec<FunctionPoint>, Coverage), QueryError> {
        check_step(selection, step_ns)?;
        let empty = || Steps {
            wanted,
            step_ns,
            nodes: Vec::new(),
            steps: BTreeMap::new(),
        };
        let (steps, coverage) = self.each_row(selection, cancel, empty)?;
        let points = steps.steps.into_iter();
        let points = points.map(|(time_ms, point)| FunctionPoint { time_ms, ..point });
        Ok((points.collect(), coverage))
    }
}
