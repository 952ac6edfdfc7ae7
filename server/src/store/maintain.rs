//! Background work: merge small segments, delete by age and bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::catalog::{Catalog, Segment};
use super::disk::Disk;
use super::load;
use crate::env::Env;
use crate::metrics::Metrics;
use crate::segment::{self, About, SegmentBuilder};

/// When to merge and what to delete.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// Merge segments of one level once there are so many.
    pub fan_in: usize,
    /// Merge fewer once the oldest of level 0 is this old.
    pub patience: Duration,
    /// A merged segment of this many bytes is not merged again.
    pub full_bytes: u64,
    /// Delete segments whose newest profile is older; `None` = never.
    pub max_age: Option<Duration>,
    /// Delete the oldest segments above this sum; `None` = no limit.
    pub max_bytes: Option<u64>,
    /// How long a replaced file stays for queries that began before.
    pub grace: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            fan_in: 16,
            patience: Duration::from_secs(10),
            full_bytes: 8 << 20,
            max_age: Some(Duration::from_secs(15 * 86_400)),
            max_bytes: Some(20 << 30),
            grace: Duration::from_secs(60),
        }
    }
}

/// Levels above this are not merged further.
const TOP_LEVEL: u32 = 3;

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
}

impl Maintainer {
    /// One round: at most one merge a level, then retention, then deletion of replaced files.
    pub fn round(&self) {
        for level in 0..TOP_LEVEL {
            let sources = self.due(level);
            if sources.len() > 1
                && let Err(error) = self.merge(&sources, level + 1)
            {
                eprintln!(
                    "pilotlight: merging {} segments failed: {error}",
                    sources.len()
                );
            }
        }
        self.expire();
        self.delete_retired();
    }

    /// Neighbouring segments of a level that should become one.
    fn due(&self, level: u32) -> Vec<Arc<Segment>> {
        let small = self.catalog.select(|segment| {
            segment.header.level == level && segment.header.file_len < self.rules.full_bytes
        });
        let oldest = small
            .first()
            .map_or(i64::MAX, |segment| segment.header.created_ns);
        // Each level waits fan_in times as long as the one below.
        let patience = self.rules.patience.as_nanos() as i64
            * (self.rules.fan_in as i64).saturating_pow(level);
        let waited = self.env.now_ns().saturating_sub(oldest) > patience;
        if small.len() < self.rules.fan_in && !waited {
            return Vec::new();
        }
        let mut bytes = 0;
        small
            .into_iter()
            .take_while(|segment| {
                bytes += segment.header.file_len;
                bytes <= self.rules.full_bytes * 2
            })
            .take(self.rules.fan_in * 8)
            .collect()
    }

    /// Writes one segment in place of several. The put of the new file is the commit: it names what
    /// it replaces, so whoever finds both counts the new one only.
    fn merge(&self, sources: &[Arc<Segment>], level: u32) -> Result<(), load::LoadError> {
        let mut builder = SegmentBuilder::default();
        for source in sources {
            for (index, header) in source.header.parts.iter().enumerate() {
                match load::read_part(&*self.disk, source, index) {
                    Ok(part) => builder.add_part(header, &part),
                    Err(error) => {
                        self.note_damage(source, &error);
                        return Err(error);
                    }
                }
            }
        }
        let created_ns = self.env.now_ns();
        // In the place of its sources in time, so that neighbours stay neighbours.
        let oldest = sources[0].header.created_ns;
        let about = About {
            level,
            created_ns: oldest,
            replaces: self.replaced_by(sources),
        };
        let name = segment::file_name(oldest, level, self.env.random());
        let (header, file) = segment::encode(about, builder.finish(), 3)?;
        self.disk.put_new(&name, &file)?;
        let merged = Segment { name, header };
        // Nothing is taken away before what stands in its place was read back.
        for part in 0..merged.header.parts.len() {
            load::read_part(&*self.disk, &merged, part)?;
        }
        self.catalog.insert(merged, created_ns);
        self.metrics.merges.fetch_add(1, Relaxed);
        Ok(())
    }

    /// The sources, and what these replaced as long as it is on disk: the sources may be deleted
    /// first, and nobody must then take their own sources for data of their own.
    fn replaced_by(&self, sources: &[Arc<Segment>]) -> Vec<String> {
        let mut names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
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
        let mut bytes: u64 = all.iter().map(|segment| segment.header.file_len).sum();
        let mut expired = Vec::new();
        for segment in &all {
            let header = &segment.header;
            // The later of both times: neither an old profile pushed today nor a clock that was
            // wrong for a while makes fresh data go.
            let newest = header.max_time_ns().max(header.created_ns);
            let age = now.saturating_sub(newest);
            let old = self
                .rules
                .max_age
                .is_some_and(|max| age > max.as_nanos() as i64);
            let over = self.rules.max_bytes.is_some_and(|max| bytes > max);
            if old || over {
                bytes -= header.file_len;
                expired.push(segment.name.clone());
            }
        }
        self.metrics
            .expired_segments
            .fetch_add(expired.len() as u64, Relaxed);
        self.catalog.retire(&expired, now);
    }

    fn delete_retired(&self) {
        let now = self.env.now_ns();
        let before = now.saturating_sub(self.rules.grace.as_nanos() as i64);
        for name in self.catalog.take_retired(before) {
            match self.disk.remove(&name) {
                Ok(()) => self.catalog.deleted(&name),
                Err(error) => {
                    eprintln!("pilotlight: segment {name} cannot be deleted: {error}");
                    self.catalog.retire_again(name, now);
                }
            }
        }
    }
}
