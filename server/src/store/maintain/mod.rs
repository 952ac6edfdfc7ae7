//! Background work: segments into blocks, blocks into larger ones, deletion by age and bytes.

mod merge;

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::age::{AgeClock, Look};
use super::catalog::{Catalog, Segment};
use super::compact::Plan;
use super::disk::Disk;
use super::load;
use crate::block;
use crate::env::Env;
use crate::ingest::writer::Writer;
use crate::metrics::Metrics;

/// When to merge and what to delete.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// Segments become a block once the oldest waited so long, or once they have a quarter of
    /// `full_bytes`.
    pub patience: Duration,
    /// Blocks of one level become one of the next when the span of time that they share is over.
    /// Ascending; the first is for level 1.
    pub spans: [Duration; 3],
    /// Blocks of one level and span become one earlier once there are so many.
    pub fan_in: usize,
    /// A block of this many bytes is not merged again.
    pub full_bytes: u64,
    /// Roll-ups: (level from which on blocks get it, its step). Each step a multiple of the one before.
    pub roll_ups: Vec<(u32, Duration)>,
    /// Labels that roll-ups leave out: one series a service and kind is left where these are all
    /// that tells its processes apart. A question that names one of them is answered from samples.
    pub roll_up_without: Vec<String>,
    /// Delete what has no newer profile; `None` = never.
    pub max_age: Option<Duration>,
    /// The same for roll-ups, which outlive their blocks.
    pub roll_up_max_age: Option<Duration>,
    /// Delete the oldest segments and blocks above this sum; `None` = no limit.
    pub max_bytes: Option<u64>,
    /// How long a replaced file stays for queries that began before.
    pub grace: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            patience: Duration::from_secs(10),
            spans: [5 * MINUTE, 60 * MINUTE, 24 * 60 * MINUTE].map(Duration::from_secs),
            fan_in: 32,
            full_bytes: 48 << 20,
            roll_ups: vec![
                (3, Duration::from_secs(5 * MINUTE)),
                (4, Duration::from_secs(60 * MINUTE)),
            ],
            roll_up_without: PROCESS_LABELS.map(str::to_owned).to_vec(),
            max_age: Some(Duration::from_secs(15 * 86_400)),
            roll_up_max_age: Some(Duration::from_secs(90 * 86_400)),
            max_bytes: Some(20 << 30),
            grace: Duration::from_secs(60),
        }
    }
}

/// Names of labels that usually tell one process of a service from another.
const PROCESS_LABELS: [&str; 6] = ["container_id", "host", "instance", "node", "pid", "pod"];

/// What maintenance works on.
pub struct Maintainer {
    /// Rules.
    pub rules: Maintenance,
    /// Time and randomness.
    pub env: Arc<dyn Env>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// List.
    pub catalog: Arc<Catalog>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Keeps what it wrote last in memory; `None` = all is read from disk.
    pub writer: Option<Arc<Writer>>,
    /// What age is judged by.
    pub age: Mutex<AgeClock>,
}

impl Maintainer {
    /// One round: at most one merge a level, then retention, then deletion of replaced files.
    pub fn round(&self) {
        self.merge_segments();
        for level in 1..=self.rules.spans.len() as u32 {
            self.merge(&self.due_blocks(level), level + 1);
        }
        self.roll_up();
        self.expire();
        self.delete_retired();
    }

    /// Makes one roll-up that is missing.
    fn roll_up(&self) {
        let all = self.catalog.select(|segment| segment.block.is_some());
        let step = |segment: &Segment| segment.block.as_ref().map_or(0, |files| files.step_ns);
        let made: HashSet<(&str, i64)> = all
            .iter()
            .filter_map(|segment| segment.block.as_ref())
            .map(|files| (files.of.as_str(), files.step_ns))
            .collect();
        for block in all.iter().filter(|block| step(block) == 0) {
            for (level, length) in &self.rules.roll_ups {
                let step_ns = length.as_nanos() as i64;
                let due = block.header.level >= *level && step_ns > 0;
                if due && !made.contains(&(block.name.as_str(), step_ns)) {
                    return self.write(Plan {
                        sources: std::slice::from_ref(block),
                        level: block.header.level,
                        created_ns: block.header.created_ns,
                        replaces: Vec::new(),
                        step_ns,
                        of: block.name.clone(),
                        dropped: self.rules.roll_up_without.clone(),
                        random: self.env.random(),
                    });
                }
            }
        }
    }

    fn note_damage(&self, segment: &Segment, error: &load::LoadError) {
        if matches!(error, load::LoadError::Damage(_))
            && self.catalog.quarantine(&segment.name, error.to_string())
        {
            self.metrics.damaged_segments.fetch_add(1, Relaxed);
        }
    }

    fn expire(&self) {
        let now = self.env.now_ns();
        let all = self.catalog.select(|_| true);
        let judged_by = self.judge_age_by(&all);
        let mut bytes: u64 = all.iter().map(|segment| segment.header.file_len).sum();
        let is_roll_up = |segment: &&Arc<Segment>| {
            segment
                .block
                .as_ref()
                .is_some_and(|files| files.step_ns > 0)
        };
        let (roll_ups, samples): (Vec<_>, Vec<_>) = all.iter().partition(is_roll_up);
        let mut expired = Vec::new();
        // Where bytes run out, samples go before what was made of them.
        for (segments, max_age) in [
            (samples, self.rules.max_age),
            (roll_ups, self.rules.roll_up_max_age),
        ] {
            for segment in segments {
                let header = &segment.header;
                // The later of both times: neither an old profile pushed today nor a clock that
                // was wrong for a while makes fresh data go.
                let age = judged_by.map(|now| now.saturating_sub(newest_ns(header)));
                let old = age
                    .zip(max_age)
                    .is_some_and(|(age, max)| age > max.as_nanos() as i64);
                let over = self.rules.max_bytes.is_some_and(|max| bytes > max);
                if old || over {
                    bytes -= header.file_len;
                    expired.push(segment.name.clone());
                }
            }
        }
        self.metrics
            .expired_segments
            .fetch_add(expired.len() as u64, Relaxed);
        self.catalog.retire(&expired, now);
    }

    /// The time to judge age by; `None` = nothing is to be deleted by age now.
    fn judge_age_by(&self, all: &[Arc<Segment>]) -> Option<i64> {
        let max_age = self.rules.max_age.or(self.rules.roll_up_max_age)?;
        let look = Look {
            wall_ns: self.env.now_ns(),
            steady_ns: self.env.steady_ns(),
        };
        let newest = all.iter().map(|segment| newest_ns(&segment.header)).max();
        let mut clock = self.age.lock().unwrap_or_else(PoisonError::into_inner);
        clock.now(look, newest, max_age)
    }

    fn delete_retired(&self) {
        let now = self.env.now_ns();
        let before = now.saturating_sub(self.rules.grace.as_nanos() as i64);
        for name in self.catalog.take_retired(before) {
            match self.remove(&name) {
                Ok(()) => self.catalog.deleted(&name),
                Err(error) => {
                    eprintln!("pilotlight: segment {name} cannot be deleted: {error}");
                    self.catalog.retire_again(name, now);
                }
            }
        }
    }

    /// Deletes a segment, or a block: the manifest first, without which the rest does not count.
    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)?;
        if name.ends_with(block::MANIFEST) {
            self.disk.remove(&block::sibling(name, block::SAMPLES))?;
            self.disk.remove(&block::sibling(name, block::SYMBOLS))?;
        }
        Ok(())
    }
}

fn newest_ns(header: &crate::segment::Header) -> i64 {
    header.max_time_ns().max(header.created_ns)
}
