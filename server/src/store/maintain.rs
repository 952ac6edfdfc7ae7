//! Background work: segments into blocks, blocks into larger ones, deletion by age and bytes.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::age::{AgeClock, Look};
use super::catalog::{Catalog, Segment};
use super::compact::{self, Plan};
use super::disk::Disk;
use super::load;
use crate::block;
use crate::env::Env;
use crate::ingest::epoch::{Closed, Taken};
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

/// A lone segment waits this many times the patience for company.
const LONELY: i64 = 6;

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

    /// Makes a block of segments, from memory where their profiles are still there.
    fn merge_segments(&self) {
        let mut due = self.due_segments();
        let Some(writer) = &self.writer else {
            return self.merge(&due, 1);
        };
        match writer.take_epoch(due.first().map(|segment| segment.name.as_str())) {
            Taken::Epoch(epoch) => self.merge_epoch(epoch),
            Taken::Later => {}
            Taken::Unknown => {
                due.retain(|segment| !writer.holds(&segment.name));
                self.merge(&due, 1);
            }
        }
    }

    fn merge_epoch(&self, epoch: Closed) {
        let names: HashSet<&str> = epoch.segments.iter().map(String::as_str).collect();
        let sources = self
            .catalog
            .select(|segment| names.contains(segment.name.as_str()));
        let complete = sources.len() == names.len();
        let Some(first) = sources.first() else { return };
        if !complete {
            // Retention or damage took one: what is left stands on disk.
            return self.merge(&sources, 1);
        }
        let plan = self.plan(&sources, 1, first.header.created_ns);
        let written = compact::write_epoch(&*self.disk, plan, epoch.parts);
        if written.is_ok() {
            self.metrics.merges_from_memory.fetch_add(1, Relaxed);
        }
        self.note(written, sources.len());
    }

    fn plan<'a>(&self, sources: &'a [Arc<Segment>], level: u32, created_ns: i64) -> Plan<'a> {
        Plan {
            sources,
            level,
            created_ns,
            replaces: self.replaced_by(sources),
            step_ns: 0,
            of: String::new(),
            dropped: Vec::new(),
            random: self.env.random(),
        }
    }

    /// Segments that should become a block.
    fn due_segments(&self) -> Vec<Arc<Segment>> {
        let segments = self.catalog.select(|segment| segment.block.is_none());
        let Some(oldest) = segments.first() else {
            return Vec::new();
        };
        let bytes: u64 = segments.iter().map(|segment| segment.header.file_len).sum();
        let waited = self.env.now_ns().saturating_sub(oldest.header.created_ns);
        let patience = self.rules.patience.as_nanos() as i64;
        let lone = segments.len() == 1 && waited <= patience.saturating_mul(LONELY);
        // Rows of segments stand in memory while they are merged; those of blocks stream.
        let limit = self.rules.full_bytes / 4;
        if lone || (waited <= patience && bytes < limit) {
            return Vec::new();
        }
        as_many_as_fit(segments, limit * 2)
    }

    /// Blocks of a level and below, of one span, that should become one of the next level.
    fn due_blocks(&self, level: u32) -> Vec<Arc<Segment>> {
        let span = self.rules.spans[level as usize - 1].as_nanos().max(1) as i64;
        let blocks = self.catalog.select(|segment| {
            let header = &segment.header;
            segment
                .block
                .as_ref()
                .is_some_and(|files| files.step_ns == 0)
                && (1..=level).contains(&header.level)
                && header.file_len < self.rules.full_bytes
        });
        let mut spans: BTreeMap<i64, Vec<Arc<Segment>>> = BTreeMap::new();
        for block in blocks {
            let at = block.header.created_ns.div_euclid(span);
            spans.entry(at).or_default().push(block);
        }
        let now = self.env.now_ns();
        let patience = self.rules.patience.as_nanos() as i64;
        for (at, mut blocks) in spans {
            let end = at.saturating_add(1).saturating_mul(span);
            let over = now > end.saturating_add(patience);
            if !over {
                blocks.retain(|block| block.header.level == level);
            }
            let enough = if over { 2 } else { self.rules.fan_in };
            if blocks.len() >= enough {
                return as_many_as_fit(blocks, self.rules.full_bytes * 2);
            }
        }
        Vec::new()
    }

    /// Writes one block in place of several sources.
    fn merge(&self, sources: &[Arc<Segment>], level: u32) {
        let alone = sources.len() == 1 && sources[0].block.is_some();
        if sources.is_empty() || alone {
            return;
        }
        // In the place of its sources in time, so that neighbours stay neighbours.
        self.write(self.plan(sources, level, sources[0].header.created_ns));
    }

    fn write(&self, plan: Plan) {
        let count = plan.sources.len();
        self.note(compact::write(&*self.disk, plan), count);
    }

    /// Takes a written block into the catalog.
    fn note(&self, written: Result<Segment, compact::Failed>, count: usize) {
        match written {
            Ok(block) => {
                self.catalog.insert(block, self.env.now_ns());
                self.metrics.merges.fetch_add(1, Relaxed);
            }
            Err(failed) => {
                let error = failed.error;
                eprintln!("pilotlight: merging {count} segments or blocks failed: {error}");
                if let Some(source) = failed.source {
                    self.note_damage(&source, &error);
                }
            }
        }
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

    /// The sources, and what these replaced as long as it is on disk: the sources may be deleted
    /// first, and nobody must then take their own sources for data of their own.
    fn replaced_by(&self, sources: &[Arc<Segment>]) -> Vec<String> {
        let mut names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
        // A block's roll-ups go with it: the new block gets its own.
        let roll_ups = self.catalog.select(|segment| {
            let of = segment.block.as_ref().map_or("", |files| &files.of);
            !of.is_empty() && names.iter().any(|name| name == of)
        });
        names.extend(roll_ups.iter().map(|roll_up| roll_up.name.clone()));
        for source in sources {
            names.extend(self.catalog.still_on_disk(&source.header.replaces));
        }
        names
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

/// The first ones, up to `limit` bytes.
fn as_many_as_fit(sources: Vec<Arc<Segment>>, limit: u64) -> Vec<Arc<Segment>> {
    let mut bytes = 0;
    let fits = sources.into_iter().take_while(|source| {
        let first = bytes == 0;
        bytes += source.header.file_len;
        first || bytes <= limit
    });
    fits.collect()
}
