//! Totals over time.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selected, Selection};
use super::rows::{PerRow, RowSamples};
use super::sources::SOURCE_LABEL;
use crate::segment::{PartHeader, Symbols};

/// One line of the chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The `by` labels, or none.
    pub labels: BTreeMap<String, String>,
    /// (Unix milliseconds of the step's start, sum of the profiles that start in it).
    pub points: Vec<(i64, i64)>,
}

/// Points a line may have; the number Prometheus allows.
const MAX_POINTS: i64 = 11_000;

/// A step that gives a line some hundred points, rounded to a number people read.
pub fn default_step(window_ns: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let steps = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400,
    ];
    let fits = steps
        .iter()
        .find(|&&step| window_ns / (step * SECOND) <= 360);
    fits.copied().unwrap_or(86_400) * SECOND
}

/// # Errors
/// When a line in steps of `step_ns` has too many points.
pub(super) fn check_step(selection: &Selection, step_ns: i64) -> Result<(), QueryError> {
    let window = selection.until_ns.saturating_sub(selection.from_ns);
    if step_ns >= 1_000_000 && window / step_ns <= MAX_POINTS {
        return Ok(());
    }
    Err(QueryError::Bad(format!(
        "step {} ms gives more than {MAX_POINTS} points; use a larger step or a shorter window",
        step_ns / 1_000_000
    )))
}

impl Engine {
    /// Sums of the selection's profiles in steps of `step_ns`, one line a value of `by`.
    ///
    /// # Errors
    /// When the step is too small for the window.
    pub fn series(
        &self,
        selection: &Selection,
        step_ns: i64,
        by: Option<&str>,
        cancel: &Cancel,
    ) -> Result<(Vec<Line>, Coverage), QueryError> {
        self.series_by(selection, step_ns, by.as_slice(), cancel)
    }

    /// The same with one line for each combination of the values of several labels.
    ///
    /// # Errors
    /// When the step is too small for the window.
    pub fn series_by(
        &self,
        selection: &Selection,
        step_ns: i64,
        by: &[&str],
        cancel: &Cancel,
    ) -> Result<(Vec<Line>, Coverage), QueryError> {
        check_step(selection, step_ns)?;
        let empty = || Lines {
            by,
            step_ns,
            lines: HashMap::new(),
        };
        if selection.sample_labels.is_some() {
            let (lines, coverage) = self.each_row(selection, cancel, empty)?;
            return Ok((lines.finish(), coverage));
        }
        let mut lines = empty();
        let visit = |header: &PartHeader, row: &Selected, total: i64| lines.add(header, row, total);
        // Lines of their own are not added up.
        let coverage = match by.contains(&SOURCE_LABEL) {
            true => self.walk_totals_apart(selection, cancel, visit)?,
            false => self.walk_totals(selection, cancel, visit)?,
        };
        Ok((lines.finish(), coverage))
    }
}

/// Lines under construction.
struct Lines<'a> {
    by: &'a [&'a str],
    step_ns: i64,
    /// Values of `by` → milliseconds → sum.
    lines: HashMap<Vec<String>, BTreeMap<i64, i64>>,
}

impl Lines<'_> {
    fn add(&mut self, header: &PartHeader, row: &Selected, total: i64) {
        let labels = &header.series[row.series as usize].labels;
        let value = |by: &&str| {
            let value = labels.iter().find(|(name, _)| name == by);
            value.map_or(String::new(), |(_, value)| value.clone())
        };
        let key = self.by.iter().map(value).collect();
        let at = row.time_ns.div_euclid(self.step_ns) * self.step_ns / 1_000_000;
        let point = self.lines.entry(key).or_default().entry(at).or_default();
        *point = point.saturating_add(total);
    }

    fn finish(self) -> Vec<Line> {
        let name = |values: Vec<String>| self.by.iter().map(|by| (*by).to_owned()).zip(values);
        let lines = self.lines.into_iter();
        let mut lines: Vec<Line> = lines
            .map(|(values, points)| Line {
                labels: name(values).collect(),
                points: points.into_iter().collect(),
            })
            .collect();
        lines.sort_by(|a, b| a.labels.cmp(&b.labels));
        lines
    }
}

impl PerRow for Lines<'_> {
    fn part(&mut self, _: &PartHeader, _: &Symbols) {}

    fn row(&mut self, header: &PartHeader, _: &Symbols, samples: &RowSamples) {
        let values = samples.values.iter();
        let sum = values.fold(0_i64, |sum, value| sum.saturating_add(*value));
        self.add(header, samples.row, sum);
    }

    fn join(&mut self, other: Self) {
        for (key, points) in other.lines {
            let line = self.lines.entry(key).or_default();
            for (at, value) in points {
                let point = line.entry(at).or_default();
                *point = point.saturating_add(value);
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let points = self.lines.values().map(|line| 64 + line.len() * 32);
        points.sum()
    }
}
