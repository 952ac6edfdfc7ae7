//! Which profiles a selection holds, and a walk over them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::choose::{self, View};
use super::read::{self, Added, Want};
use super::selector::Selector;
use crate::block::{self, Chunk};
use crate::debuginfo::Debuginfo;
use crate::metrics::Metrics;
use crate::segment::{PartHeader, Profiles};
use crate::store::cache::{Cache, Held};
use crate::store::catalog::{Catalog, Segment};
use crate::store::disk::Disk;
use crate::store::load::{self, LoadError};

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The answer would be larger than the server builds.
    #[error("{0}")]
    TooLarge(String),
    /// Nobody waits for the answer any more.
    #[error("cancelled: the client has gone")]
    Cancelled,
}

/// Which profiles, and which of their values.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Full profile type id.
    pub type_id: String,
    /// Series.
    pub selector: Selector,
    /// First profile time, Unix nanoseconds.
    pub from_ns: i64,
    /// First profile time that is too late.
    pub until_ns: i64,
}

/// Data that the answer should hold and does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// File name; empty for the store as a whole.
    pub segment: String,
    /// Why it is missing.
    pub reason: String,
}

/// How complete an answer is, and from how much it was made.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Coverage {
    /// Profiles that went in.
    pub profiles: u64,
    /// Samples that went in.
    pub samples: u64,
    /// Whether data of the selection could not be read.
    pub partial: bool,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// A part that a selection touches.
struct Touched {
    view: View,
    part: usize,
    /// For each series of the part, whether it is selected.
    series: Vec<bool>,
    /// For each type set of the part, the selected value column.
    columns: Vec<Option<usize>>,
}

impl Touched {
    fn header(&self) -> &PartHeader {
        &self.view.segment.header.parts[self.part]
    }
}

/// Told when the client goes away.
#[derive(Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the query at its next step.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    fn check(&self) -> Result<(), QueryError> {
        if self.0.load(Relaxed) {
            Err(QueryError::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Reads segments for queries.
pub struct Engine {
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// List of segments.
    pub catalog: Arc<Catalog>,
    /// Decoded parts.
    pub cache: Cache,
    /// Names for addresses.
    pub debuginfo: Arc<Debuginfo>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// What recovery still has to read; `None` once all segments are listed.
    pub recovering: Mutex<Option<String>>,
}

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

impl Coverage {
    /// Notes that only a roll-up is left of a time, and that it cannot answer.
    fn blind(&mut self, roll_up: &Segment, selection: &Selection) {
        let may_match = |part: &PartHeader| selection.selector.may_match_service(&part.service);
        let parts = roll_up.header.parts.iter().filter(|part| may_match(part));
        let mut series = parts.flat_map(|part| &part.series);
        let inside = series.any(|entry| {
            entry.min_time_ns < selection.until_ns && entry.max_time_ns >= selection.from_ns
        });
        if inside {
            let dropped = roll_up.block.as_ref().map(|files| files.dropped.join(", "));
            self.partial = true;
            self.problems.push(Problem {
                segment: roll_up.name.clone(),
                reason: format!(
                    "of this time only sums without the labels {} are kept; ask without these",
                    dropped.unwrap_or_default()
                ),
            });
        }
    }

    fn count(&mut self, rows: &[Selected]) {
        self.profiles += rows.iter().map(|row| row.profiles).sum::<u64>();
        self.samples += rows.iter().map(|row| row.samples).sum::<u64>();
    }
}

impl Engine {
    /// Calls `visit` for each part that holds selected profiles, with their sums.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or what `visit` answers.
    pub fn walk_parts(
        &self,
        selection: &Selection,
        want: Want,
        cancel: &Cancel,
        mut visit: impl FnMut(&Added) -> Result<(), QueryError>,
    ) -> Result<Coverage, QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        for touched in self.touched(selection, true, &mut coverage) {
            cancel.check()?;
            let mut answered = Ok(());
            let read = self.sums(&touched, want, |added| {
                coverage.count(added.rows);
                answered = visit(added);
            });
            answered?;
            if let Err(error) = read {
                self.problem(&mut coverage, &touched.view.segment.name, &error);
            }
        }
        Ok(coverage)
    }

    /// Reads and adds up one part; `visit` is called when it holds selected profiles.
    fn sums(
        &self,
        touched: &Touched,
        want: Want,
        visit: impl FnOnce(&Added),
    ) -> Result<(), LoadError> {
        let (disk, segment, index) = (&*self.disk, &*touched.view.segment, touched.part);
        let Some(files) = &segment.block else {
            let part = load::part(disk, &self.cache, segment, index)?;
            let rows = touched.of_segment(&part.profiles);
            if !rows.is_empty() {
                let named = self.debuginfo.name(&segment.name, index, &part.symbols);
                let added = read::of_part(&part, &rows, want);
                visit(&added.with_names(named.as_deref()));
            }
            return Ok(());
        };
        let sidecar = load::sidecar(disk, &self.cache, segment, files, index)?;
        let rows = touched.of_block(&sidecar.profiles);
        if !rows.is_empty() {
            let fetch = |chunks: &[Chunk]| load::chunks(disk, segment, chunks);
            let part = &files.parts[index];
            let added = read::of_block(&sidecar, part, &rows, want, fetch)?;
            let named = self.debuginfo.name(&segment.name, index, &sidecar.symbols);
            visit(&added.with_names(named.as_deref()));
        }
        Ok(())
    }

    /// Calls `visit` for each selected profile with its total; reads no samples.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`].
    pub fn walk_totals(
        &self,
        selection: &Selection,
        cancel: &Cancel,
        mut visit: impl FnMut(&PartHeader, &Selected, i64),
    ) -> Result<Coverage, QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        for touched in self.touched(selection, false, &mut coverage) {
            cancel.check()?;
            let read = self.totals(&touched, |rows, totals| {
                coverage.count(rows);
                for (row, &total) in rows.iter().zip(totals) {
                    visit(touched.header(), row, total);
                }
            });
            if let Err(error) = read {
                self.problem(&mut coverage, &touched.view.segment.name, &error);
            }
        }
        Ok(coverage)
    }

    fn totals(
        &self,
        touched: &Touched,
        visit: impl FnOnce(&[Selected], &[i64]),
    ) -> Result<(), LoadError> {
        let (disk, segment, index) = (&*self.disk, &*touched.view.segment, touched.part);
        let held = self.cache.get(&segment.name, index);
        let of_segment = |profiles: &Profiles| {
            let rows = touched.of_segment(profiles);
            let first = |row: &Selected| profiles.rows[row.at].first_total as usize;
            let totals = rows
                .iter()
                .map(|row| profiles.totals[first(row) + row.column]);
            let totals = totals.collect();
            (rows, totals)
        };
        let of_block = |profiles: &block::Profiles| {
            let rows = touched.of_block(profiles);
            let first = |row: &Selected| profiles.rows[row.at].first_total as usize;
            let totals = rows
                .iter()
                .map(|row| profiles.totals[first(row) + row.column]);
            let totals = totals.collect();
            (rows, totals)
        };
        let (rows, totals): (Vec<Selected>, Vec<i64>) = match (held, &segment.block) {
            (Some(Held::Part(part)), _) => of_segment(&part.profiles),
            (Some(Held::Sidecar(sidecar)), _) => of_block(&sidecar.profiles),
            (None, None) => of_segment(&load::profiles(disk, segment, index)?),
            (None, Some(files)) => of_block(&load::block_profiles(disk, segment, files, index)?),
        };
        visit(&rows, &totals);
        Ok(())
    }

    /// `rolled`: whether roll-ups may answer, which know no time finer than their step.
    fn touched(
        &self,
        selection: &Selection,
        rolled: bool,
        coverage: &mut Coverage,
    ) -> Vec<Touched> {
        let segments = self.catalog.select(|_| true);
        let window = (selection.from_ns, selection.until_ns);
        let mut touched = Vec::new();
        let chosen = choose::views(segments, window, &selection.selector, rolled);
        for blind in chosen.blind {
            coverage.blind(&blind, selection);
        }
        for view in chosen.views {
            for (index, part) in view.segment.header.parts.iter().enumerate() {
                if let Some((series, columns)) = select_part(part, &view, selection) {
                    touched.push(Touched {
                        view: view.clone(),
                        part: index,
                        series,
                        columns,
                    });
                }
            }
        }
        touched
    }

    /// A coverage that names what is known to be missing in a window.
    pub fn gaps(&self, from_ns: i64, until_ns: i64) -> Coverage {
        let mut coverage = Coverage::default();
        for (segment, damaged) in self.catalog.damaged() {
            // Without a readable header its times are unknown: it may belong to any window.
            let (low, high) = damaged.times_ns.unwrap_or((i64::MIN, i64::MAX));
            if low < until_ns && high >= from_ns {
                coverage.problems.push(Problem {
                    segment,
                    reason: damaged.reason,
                });
            }
        }
        let recovering = self
            .recovering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = &*recovering {
            let reason =
                format!("recovery is under way: {progress}; ask again when /ready says yes");
            coverage.problems.push(Problem {
                segment: String::new(),
                reason,
            });
        }
        coverage.partial = !coverage.problems.is_empty();
        coverage
    }

    fn problem(&self, coverage: &mut Coverage, segment: &str, error: &LoadError) {
        let reason = error.to_string();
        // Only bytes that are wrong stay wrong; a failed read may work the next time.
        if matches!(error, LoadError::Damage(_)) && self.catalog.quarantine(segment, reason.clone())
        {
            self.cache.forget(segment);
            self.metrics.damaged_segments.fetch_add(1, Relaxed);
            eprintln!("pilotlight: segment {segment} is damaged and left out of answers: {reason}");
        }
        coverage.partial = true;
        coverage.problems.push(Problem {
            segment: segment.to_owned(),
            reason,
        });
    }

    /// Ids of the profile types in a window, with the series filter applied.
    pub fn types(&self, selector: &Selector, from_ns: i64, until_ns: i64) -> Vec<TypeInfo> {
        let mut found = BTreeMap::new();
        for segment in self.catalog.select(|_| true) {
            for part in &segment.header.parts {
                for entry in &part.series {
                    let inside = entry.min_time_ns < until_ns && entry.max_time_ns >= from_ns;
                    if !inside || !selector.matches(&entry.labels) {
                        continue;
                    }
                    for &set in &entry.type_sets {
                        let set = &part.type_sets[set as usize];
                        for index in 0..set.values.len() {
                            let id = set.id(index);
                            found.entry(id.clone()).or_insert_with(|| TypeInfo {
                                id,
                                name: set.name.clone(),
                                sample_type: set.values[index].0.clone(),
                                sample_unit: set.values[index].1.clone(),
                                period_type: set.period_type.clone(),
                                period_unit: set.period_unit.clone(),
                            });
                        }
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// The one profile type that `text` means: a full id, or a sample type (or the front of an id)
    /// that only one id has.
    ///
    /// # Errors
    /// When several or none fit.
    pub fn resolve_type(
        &self,
        text: &str,
        selector: &Selector,
        from_ns: i64,
        until_ns: i64,
    ) -> Result<String, QueryError> {
        if text.matches(':').count() == 4 {
            return Ok(text.to_owned());
        }
        let all = self.types(selector, from_ns, until_ns);
        let fits = |info: &&TypeInfo| {
            info.sample_type == text
                || info
                    .id
                    .strip_prefix(text)
                    .is_some_and(|r| r.starts_with(':'))
        };
        let ids: Vec<&str> = all
            .iter()
            .filter(fits)
            .map(|info| info.id.as_str())
            .collect();
        match ids[..] {
            [only] => Ok(only.to_owned()),
            [] if all.is_empty() => Err(QueryError::NotFound(format!(
                "type {text}: there is no data in this window for this q; \
                 widen from and until, or look at /api/v1/types"
            ))),
            [] => Err(QueryError::NotFound(format!(
                "type {text} is not in this window; there are: {}",
                all.iter()
                    .map(|info| info.id.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
            _ => Err(QueryError::Bad(format!(
                "type {text} is ambiguous; write one of: {}",
                ids.join(", ")
            ))),
        }
    }
}

/// A profile type, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeInfo {
    /// Full id.
    pub id: String,
    /// First field of the id.
    pub name: String,
    /// Second field.
    pub sample_type: String,
    /// Third field.
    pub sample_unit: String,
    /// Fourth field.
    pub period_type: String,
    /// Last field.
    pub period_unit: String,
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
    fn wanted(&self, type_set: u32, series: u32, time_ns: i64) -> Option<usize> {
        let column = self.columns[type_set as usize]?;
        (self.series[series as usize] && self.view.holds(time_ns)).then_some(column)
    }

    fn of_segment(&self, profiles: &Profiles) -> Vec<Selected> {
        let rows = profiles.rows.iter().enumerate().filter_map(|(at, row)| {
            let column = self.wanted(row.type_set, row.series, row.time_ns)?;
            Some(Selected::of_segment(at, row, column))
        });
        rows.collect()
    }

    fn of_block(&self, profiles: &block::Profiles) -> Vec<Selected> {
        let rows = profiles.rows.iter().enumerate().filter_map(|(at, row)| {
            let column = self.wanted(row.type_set, row.series, row.time_ns)?;
            Some(Selected::of_block(at, row, column))
        });
        rows.collect()
    }
}
