//! What queries are asked with and answered by.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::sample_labels::SampleLabels;
use super::selector::Selector;
use crate::debuginfo::Debuginfo;
use crate::log;
use crate::metrics::Metrics;
use crate::segment::PartHeader;
use crate::store::cache::Cache;
use crate::store::catalog::{Catalog, Segment};
use crate::store::disk::Disk;
use crate::store::load::LoadError;

pub use super::bounds::{Cancel, QueryLimits};
pub use super::touched::Selected;
use super::touched::Touched;
pub use super::types::TypeInfo;

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
    /// Which samples of the series; `None` = all.
    pub sample_labels: Option<SampleLabels>,
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
    /// Profiles of the host agent left out, since the same process was profiled from inside.
    pub superseded: u64,
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
    /// Threads that scans may use together.
    pub cores: usize,
}

impl Coverage {
    /// Notes that only a roll-up is left of a time, and that it cannot answer.
    pub(super) fn blind(&mut self, roll_up: &Segment, selection: &Selection) {
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

    pub(super) fn count(&mut self, rows: &[Selected]) {
        self.profiles += rows.iter().map(|row| row.profiles).sum::<u64>();
        self.samples += rows.iter().map(|row| row.samples).sum::<u64>();
    }

    /// Adds what another share of the same scan covered.
    pub(super) fn join(&mut self, other: Self) {
        self.profiles += other.profiles;
        self.samples += other.samples;
        self.superseded += other.superseded;
        self.partial |= other.partial;
        self.problems.extend(other.problems);
    }
}

impl Engine {
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

    pub(super) fn problem(&self, coverage: &mut Coverage, touched: &Touched, error: &LoadError) {
        let segment = touched.view.segment.name.as_str();
        let reason = format!("service {}: {error}", touched.header().service);
        // Only bytes that are wrong stay wrong; a failed read may work the next time.
        if matches!(error, LoadError::Damage(_))
            && self
                .catalog
                .quarantine_part(&touched.view.segment, touched.part, &error.to_string())
        {
            self.cache.forget(segment);
            self.metrics.damaged_segments.fetch_add(1, Relaxed);
            let what = "a file is damaged and left out of answers";
            log::error(what, &[("file", &segment), ("reason", &reason)]);
        }
        coverage.partial = true;
        coverage.problems.push(Problem {
            segment: segment.to_owned(),
            reason,
        });
    }
}
