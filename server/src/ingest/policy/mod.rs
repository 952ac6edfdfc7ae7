//! What a server takes: rates, number of series, times, and which profiles are thinned out.
//!
//! Everything refused or thinned is counted by reason; nothing is dropped without a trace: a profile
//! that a sampling rule leaves out is kept as its totals, under the label `__sampled__="true"`.

mod bucket;
mod sampling;
mod series;
mod totals;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use sampling::{Keep, Rule};
pub use totals::totals;

use bucket::Bucket;
use sampling::Sampler;
use series::ActiveSeries;

use crate::segment::Labels;

/// Label of what a sampling rule reduced to totals.
pub const SAMPLED_LABEL: &str = "__sampled__";

/// Settings of ingest; the default refuses nothing that is not absurd.
#[derive(Debug, Clone)]
pub struct IngestRules {
    /// Bytes of bodies a second, 0 = any. Two seconds' worth may come at once.
    pub bytes_per_second: u64,
    /// Profiles a second, 0 = any.
    pub profiles_per_second: u64,
    /// Series that may push within an hour, 0 = any.
    pub series: usize,
    /// A time further ahead of the server's clock is replaced by the time of arrival.
    pub future: Duration,
    /// A profile older than this is refused; `None` = as old as retention keeps.
    pub past: Option<Duration>,
    /// The first rule whose selector matches decides.
    pub sampling: Vec<Rule>,
    /// What a label set may be.
    pub labels: super::series::LabelLimits,
}

impl Default for IngestRules {
    fn default() -> Self {
        Self {
            bytes_per_second: 0,
            profiles_per_second: 0,
            series: 0,
            future: Duration::from_secs(600),
            past: None,
            sampling: Vec::new(),
            labels: super::series::LabelLimits::default(),
        }
    }
}

/// Why a push is not taken now, or not at all.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// Over a rate; the same push is taken after so many seconds.
    Rate {
        /// `bytes` or `profiles`.
        what: &'static str,
        /// The limit.
        per_second: u64,
        /// Whole seconds until it fits.
        retry_s: u32,
    },
    /// A new series beyond the limit.
    Series {
        /// The limit.
        limit: usize,
    },
    /// Older than what is kept.
    TooOld {
        /// Age in seconds.
        age_s: u64,
        /// Limit in seconds.
        limit_s: u64,
    },
}

/// The rules, with what they remember.
pub struct Policy {
    rules: IngestRules,
    past_ns: Option<i64>,
    buckets: Mutex<[Bucket; 2]>,
    series: Mutex<ActiveSeries>,
    samplers: Vec<Mutex<Sampler>>,
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl Policy {
    /// `kept_for` is what retention keeps, where it deletes by age.
    pub fn new(rules: IngestRules, kept_for: Option<Duration>) -> Self {
        let buckets = [rules.bytes_per_second, rules.profiles_per_second].map(Bucket::new);
        Self {
            past_ns: rules.past.or(kept_for).map(nanoseconds),
            buckets: Mutex::new(buckets),
            series: Mutex::new(ActiveSeries::new(rules.series)),
            samplers: rules
                .sampling
                .iter()
                .map(|rule| Mutex::new(Sampler::new(rule.keep)))
                .collect(),
            rules,
        }
    }

    /// Limits of label sets.
    pub fn labels(&self) -> &super::series::LabelLimits {
        &self.rules.labels
    }

    /// Takes `bytes` and one profile from the rates.
    ///
    /// # Errors
    /// [`Refusal::Rate`]; nothing is taken then.
    pub fn admit(&self, bytes: u64, now_ns: i64) -> Result<(), Refusal> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for (bucket, (what, amount)) in buckets.iter_mut().zip([("bytes", bytes), ("profiles", 1)])
        {
            bucket
                .has(amount, now_ns)
                .map_err(|retry_s| Refusal::Rate {
                    what,
                    per_second: bucket.per_second(),
                    retry_s,
                })?;
        }
        for (bucket, amount) in buckets.iter_mut().zip([bytes, 1]) {
            bucket.take(amount);
        }
        Ok(())
    }

    /// Notes a series as active.
    ///
    /// # Errors
    /// [`Refusal::Series`] for a new one beyond the limit.
    pub fn series(&self, id: u128, now_ns: i64) -> Result<(), Refusal> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.rules.series;
        series
            .note(id, now_ns)
            .map_err(|()| Refusal::Series { limit })
    }

    /// Series that pushed within the last hour, as far as they are counted.
    pub fn active_series(&self) -> usize {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.len()
    }

    /// The time to store a profile under, and whether it had to be mended: a clock that is ahead
    /// must neither lose profiles nor hide them in the future.
    ///
    /// # Errors
    /// [`Refusal::TooOld`].
    pub fn time(&self, time_ns: i64, received_ns: i64) -> Result<(i64, bool), Refusal> {
        let ahead = time_ns.saturating_sub(received_ns);
        if ahead > nanoseconds(self.rules.future) {
            return Ok((received_ns, true));
        }
        match self.past_ns {
            Some(limit) if ahead.saturating_neg() > limit => Err(Refusal::TooOld {
                age_s: (ahead.saturating_neg() / 1_000_000_000).unsigned_abs(),
                limit_s: (limit / 1_000_000_000).unsigned_abs(),
            }),
            _ => Ok((time_ns, false)),
        }
    }

    /// The reason to keep only the totals of a profile, if a rule says so.
    pub fn thinned(
        &self,
        labels: &Labels,
        id: u128,
        now_ns: i64,
        random: u64,
    ) -> Option<&'static str> {
        let at = self
            .rules
            .sampling
            .iter()
            .position(|rule| rule.selector.matches(labels))?;
        let mut sampler = self
            .samplers
            .get(at)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (!sampler.keeps(id, now_ns, random)).then(|| sampler.reason())
    }
}

#[cfg(test)]
mod tests;
