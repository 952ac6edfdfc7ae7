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
use super::retention::{RetentionRule, Verdict};
use super::sharing::Sharing;
use crate::block;
use crate::env::Env;
use crate::ingest::writer::Writer;
use crate::log;
use crate::metrics::Metrics;
use crate::segment::Labels;

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
    /// Series with limits of their own.
    pub retention: Vec<RetentionRule>,
    /// How long a replaced file stays for queries that began before.
    pub grace: Duration,
    /// Of several servers over one object store one merges and deletes; another takes over when it has
    /// not been heard of for one and a half times so long.
    pub turn: Duration,
    /// How often such a store is listed for what the others wrote; well below `grace`.
    pub refresh: Duration,
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
            retention: Vec::new(),
            grace: Duration::from_secs(60),
            turn: Duration::from_secs(60),
            refresh: Duration::from_secs(10),
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
    /// Other servers over the same store.
    pub sharing: Sharing,
}

#[cfg(test)]
impl Maintainer {
    /// The same with other rules, as after a restart, but with the clock as it is known.
    pub fn with_rules(self, rules: Maintenance) -> Self {
        Self { rules, ..self }
    }
}

impl Maintainer {
    /// One round: at most one merge a level, then retention, then deletion of replaced files. Of
    /// several servers over one store only one does the first two.
    pub fn round(&self) {
        if self.has_turn() {
            self.merge_segments();
            for level in 1..=self.rules.spans.len() as u32 {
                self.merge(&self.due_blocks(level), level + 1);
            }
            self.roll_up();
            self.expire();
        }
        self.delete_retired();
    }

    /// Makes one roll-up that is missing.
    fn roll_up(&self) {
        let whole = self.whole();
        let all = self.catalog.select(|segment| segment.block.is_some());
        let step = |segment: &Segment| segment.block.as_ref().map_or(0, |files| files.step_ns);
        let made: HashSet<(&str, i64)> = all
            .iter()
            .filter_map(|segment| segment.block.as_ref())
            .map(|files| (files.of.as_str(), files.step_ns))
            .collect();
        let trimmed = |block: &Segment| block.block.as_ref().is_some_and(|at| !at.of.is_empty());
        let sources = all
            .iter()
            .filter(|block| step(block) == 0 && whole(block) && !trimmed(block));
        for block in sources {
            for (level, length) in &self.rules.roll_ups {
                let step_ns = length.as_nanos() as i64;
                let due = block.header.level >= *level && step_ns > 0;
                if due && !made.contains(&(block.name.as_str(), step_ns)) {
                    return self.write(Plan {
                        sources: std::slice::from_ref(block),
                        level: block.header.level,
                        created_ns: block.header.created_ns,
                        replaces: self.catalog.doubted(),
                        step_ns,
                        of: block.name.clone(),
                        dropped: self.rules.roll_up_without.clone(),
                        keep: None,
                        random: self.env.random(),
                    });
                }
            }
        }
    }

    fn note_damage(&self, segment: &Segment, part: usize, error: &load::LoadError) {
        let reason = error.to_string();
        if matches!(error, load::LoadError::Damage(_))
            && self.catalog.quarantine_part(segment, part, &reason)
        {
            self.metrics.damaged_segments.fetch_add(1, Relaxed);
        }
    }

    /// Takes out what has had its time: whole files, and of the first block that also holds what is to
    /// stay, a rewrite without the rest.
    fn expire(&self) {
        let now = self.env.now_ns();
        let all = self.catalog.select(|_| true);
        let judged_by = self.judge_age_by(&all);
        let mut expired = Vec::new();
        let mut trim = None;
        let whole = self.whole();
        for (segment, verdict) in self.rules.judge(&all, judged_by) {
            match verdict {
                Verdict::Expire => expired.push(segment.name.clone()),
                Verdict::Trim(classes) if segment.block.is_some() && whole(&segment) => {
                    trim = trim.or(Some((segment, classes)));
                }
                Verdict::Trim(_) | Verdict::Keep => {}
            }
        }
        self.metrics
            .expired_segments
            .fetch_add(expired.len() as u64, Relaxed);
        self.catalog.retire(&expired, now);
        if let Some((block, classes)) = trim {
            self.trim(&block, &classes);
        }
    }

    /// Writes a block again without the series of some classes. It stays the place of its roll-ups,
    /// which may keep these series for longer.
    fn trim(&self, block: &Arc<Segment>, classes: &[usize]) {
        let Some(files) = &block.block else { return };
        let keep = |labels: &Labels| !classes.contains(&self.rules.class(labels));
        let mut replaces = vec![block.name.clone()];
        replaces.extend(self.catalog.still_on_disk(&block.header.replaces));
        replaces.extend(self.catalog.doubted());
        let root = if files.of.is_empty() {
            &block.name
        } else {
            &files.of
        };
        self.write(Plan {
            sources: std::slice::from_ref(block),
            level: block.header.level,
            created_ns: block.header.created_ns,
            replaces,
            step_ns: files.step_ns,
            of: root.clone(),
            dropped: files.dropped.clone(),
            keep: Some(&keep),
            random: self.env.random(),
        });
    }

    /// The time to judge age by; `None` = nothing is to be deleted by age now.
    fn judge_age_by(&self, all: &[Arc<Segment>]) -> Option<i64> {
        let max_age = self.rules.shortest()?;
        let look = Look {
            wall_ns: self.env.now_ns(),
            steady_ns: self.env.steady_ns(),
        };
        let newest = all.iter().map(|segment| newest_ns(&segment.header)).max();
        let mut clock = self.age.lock().unwrap_or_else(PoisonError::into_inner);
        clock.now(look, newest, max_age)
    }

    /// Deletes what was replaced or expired long enough ago. That it was replaced is forgotten only
    /// when the removal is durable: a source that a power cut brings back must not count beside a
    /// block that no longer names it.
    fn delete_retired(&self) {
        let now = self.env.now_ns();
        let before = now.saturating_sub(self.rules.grace.as_nanos() as i64);
        let retired = self.catalog.take_retired(before);
        if retired.is_empty() {
            return;
        }
        let (removed, mut kept): (Vec<String>, Vec<String>) =
            retired.into_iter().partition(|name| self.remove(name));
        match self.disk.settle() {
            // Without its manifest the rest of a block does not count, so it goes last.
            Ok(()) => removed.iter().for_each(|name| {
                if !name.ends_with(block::MANIFEST)
                    || [block::SAMPLES, block::SYMBOLS]
                        .iter()
                        .all(|end| self.remove(&block::sibling(name, end)))
                {
                    self.catalog.deleted(name);
                } else {
                    kept.push(name.clone());
                }
            }),
            Err(error) => {
                log::warn(
                    "deletions are not durable and are repeated",
                    &[("error", &error)],
                );
                kept.extend(removed);
            }
        }
        for name in kept {
            self.catalog.retire_again(name, now);
        }
    }

    fn remove(&self, name: &str) -> bool {
        let removed = self.disk.remove(name);
        if let Err(error) = &removed {
            log::warn(
                "a file cannot be deleted",
                &[("file", &name), ("error", error)],
            );
        }
        removed.is_ok()
    }
}

fn newest_ns(header: &crate::segment::Header) -> i64 {
    header.max_time_ns().max(header.created_ns)
}
