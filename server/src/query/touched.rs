//! Which parts a selection touches, and which of their profiles it holds.

use std::sync::Arc;

use super::choose::{self, View};
use super::engine::{Coverage, Engine, Selection};
use super::sources::Spans;
use crate::block;
use crate::segment::{PartHeader, Profiles};

/// A selected profile, or in a roll-up all of a step.
#[derive(Debug, Clone, Copy)]
pub struct Selected {
    /// Index of its row.
    pub at: usize,
    /// Value column.
    pub column: usize,
    /// Index into the part's series.
    pub series: u32,
    /// Start, Unix nanoseconds.
    pub time_ns: i64,
    /// Nanoseconds.
    pub duration_ns: i64,
    /// Sampling period.
    pub period: i64,
    /// Profiles in it.
    pub profiles: u64,
    /// Samples of these.
    pub samples: u64,
}

/// A part that a selection touches.
pub(super) struct Touched {
    pub(super) view: View,
    pub(super) part: usize,
    /// For each series of the part, whether it is selected.
    pub(super) series: Vec<bool>,
    /// For each type set of the part, the selected value column.
    columns: Vec<Option<usize>>,
    /// For each series, the times that better data of the same process covers; may be shorter.
    pub(super) covered: Vec<Option<Arc<Spans>>>,
}

impl Engine {
    /// `rolled`: whether roll-ups may answer, which know no time finer than their step.
    pub(super) fn touched(
        &self,
        selection: &Selection,
        rolled: bool,
        coverage: &mut Coverage,
    ) -> Vec<Touched> {
        let segments = self.catalog.select(|_| true);
        let window = (selection.from_ns, selection.until_ns);
        let chosen = choose::views(segments, window, &selection.selector, rolled);
        for blind in chosen.blind {
            coverage.blind(&blind, selection);
        }
        let damaged = self.catalog.damaged_parts();
        let mut touched = Vec::new();
        for view in chosen.views {
            for (index, part) in view.segment.header.parts.iter().enumerate() {
                if !damaged.is_empty() && damaged.contains(&(view.segment.name.clone(), index)) {
                    continue;
                }
                if let Some((series, columns)) = select_part(part, &view, selection) {
                    touched.push(Touched {
                        view: view.clone(),
                        part: index,
                        series,
                        columns,
                        covered: Vec::new(),
                    });
                }
            }
        }
        touched
    }
}

type Chosen = (Vec<bool>, Vec<Option<usize>>);

fn select_part(part: &PartHeader, view: &View, selection: &Selection) -> Option<Chosen> {
    if !selection.selector.may_match_service(&part.service) {
        return None;
    }
    let columns: Vec<Option<usize>> = part
        .type_sets
        .iter()
        .map(|set| (0..set.values.len()).find(|&index| set.id(index) == selection.type_id))
        .collect();
    let series: Vec<bool> = part
        .series
        .iter()
        .map(|entry| {
            view.touches(entry.min_time_ns, entry.max_time_ns)
                && view.admits(&entry.labels)
                && entry
                    .type_sets
                    .iter()
                    .any(|&set| columns[set as usize].is_some())
                && selection.selector.matches(&entry.labels)
        })
        .collect();
    series.contains(&true).then_some((series, columns))
}

impl Touched {
    pub(super) fn header(&self) -> &PartHeader {
        &self.view.segment.header.parts[self.part]
    }

    /// Bytes on disk that its samples and symbols take, for weighing work.
    pub(super) fn stored_bytes(&self) -> u64 {
        match &self.view.segment.block {
            None => self
                .header()
                .sections
                .iter()
                .map(|section| section.stored)
                .sum(),
            Some(files) => {
                let part = &files.parts[self.part];
                let samples = part.groups.iter().flat_map(|group| &group.chunks);
                samples.chain(&part.symbols).map(|chunk| chunk.len).sum()
            }
        }
    }

    /// Nanoseconds that a row of it covers from its time on.
    pub(super) fn length_ns(&self, duration_ns: i64) -> i64 {
        let step_ns = self.view.segment.block.as_ref().map(|files| files.step_ns);
        step_ns.filter(|&step| step > 0).unwrap_or(duration_ns)
    }

    /// Takes out what better data covers; the number of profiles that this leaves out.
    fn uncovered(&self, rows: &mut Vec<Selected>) -> u64 {
        if self.covered.is_empty() {
            return 0;
        }
        let mut left_out = 0;
        rows.retain(|row| {
            let spans = self
                .covered
                .get(row.series as usize)
                .and_then(Option::as_ref);
            let covered = spans
                .is_some_and(|spans| spans.overlap(row.time_ns, self.length_ns(row.duration_ns)));
            left_out += if covered { row.profiles } else { 0 };
            !covered
        });
        left_out
    }

    fn wanted(&self, type_set: u32, series: u32, time_ns: i64) -> Option<usize> {
        let column = self.columns[type_set as usize]?;
        (self.series[series as usize] && self.view.holds(time_ns)).then_some(column)
    }

    /// Its selected profiles, and how many were left out for better ones.
    pub(super) fn of_segment(&self, profiles: &Profiles) -> (Vec<Selected>, u64) {
        let rows = profiles.rows.iter().enumerate().filter_map(|(at, row)| {
            let column = self.wanted(row.type_set, row.series, row.time_ns)?;
            Some(Selected::of_segment(at, row, column))
        });
        let mut rows = rows.collect();
        let left_out = self.uncovered(&mut rows);
        (rows, left_out)
    }

    /// The same of a block.
    pub(super) fn of_block(&self, profiles: &block::Profiles) -> (Vec<Selected>, u64) {
        let rows = profiles.rows.iter().enumerate().filter_map(|(at, row)| {
            let column = self.wanted(row.type_set, row.series, row.time_ns)?;
            Some(Selected::of_block(at, row, column))
        });
        let mut rows = rows.collect();
        let left_out = self.uncovered(&mut rows);
        (rows, left_out)
    }
}
