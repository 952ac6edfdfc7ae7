//! Which segments and blocks become one, and their merge.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::catalog::Segment;
use super::super::compact::{self, Plan};
use super::Maintainer;
use crate::ingest::epoch::{Closed, Taken};
use crate::log;

/// A lone segment waits this many times the patience for company.
const LONELY: i64 = 6;

impl Maintainer {
    /// Makes a block of segments, from memory where their profiles are still there.
    pub(super) fn merge_segments(&self) {
        let held = self.writer.as_ref().map(|writer| writer.held());
        let held = held.unwrap_or_default();
        let mut due = self.due_segments(&held);
        let Some(writer) = &self.writer else {
            return self.merge(&due, 1);
        };
        match writer.take_epoch(due.first().map(|segment| segment.name.as_str())) {
            Taken::Epoch(epoch) => self.merge_epoch(epoch),
            Taken::Later => {}
            Taken::Unknown => {
                due.retain(|segment| !held.contains(&segment.name));
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
        let name = plan.name();
        let written = compact::write_epoch(&*self.disk, plan, epoch.parts, &|| self.may_commit());
        if written.is_ok() {
            self.metrics.merges_from_memory.fetch_add(1, Relaxed);
        }
        self.note(written, sources.len(), name);
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
            keep: None,
            random: self.env.random(),
        }
    }

    /// Whether nothing of a file is known to be damaged: what is cannot be merged, and stays where it
    /// is until retention takes it.
    pub(super) fn whole(&self) -> impl Fn(&Segment) -> bool + use<> {
        let damaged = self.catalog.damaged_parts();
        let names: HashSet<String> = damaged.into_iter().map(|(name, _)| name).collect();
        move |segment| !names.contains(&segment.name)
    }

    /// Segments that should become a block. Those `held` in memory wait for their epoch to be full.
    fn due_segments(&self, held: &HashSet<String>) -> Vec<Arc<Segment>> {
        let whole = self.whole();
        let segments = self
            .catalog
            .select(|segment| segment.block.is_none() && whole(segment));
        let Some(oldest) = segments.first() else {
            return Vec::new();
        };
        let on_disk = segments.iter().filter(|s| !held.contains(&s.name));
        let bytes: u64 = on_disk.map(|segment| segment.header.file_len).sum();
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
    pub(super) fn due_blocks(&self, level: u32) -> Vec<Arc<Segment>> {
        let span = self.rules.spans[level as usize - 1].as_nanos().max(1) as i64;
        let whole = self.whole();
        let blocks = self.catalog.select(|segment| {
            let header = &segment.header;
            segment
                .block
                .as_ref()
                // What was trimmed stays beside the roll-ups of what it was trimmed from.
                .is_some_and(|files| files.step_ns == 0 && files.of.is_empty())
                && (1..=level).contains(&header.level)
                && header.file_len < self.rules.full_bytes
                && whole(segment)
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
    pub(super) fn merge(&self, sources: &[Arc<Segment>], level: u32) {
        let alone = sources.len() == 1 && sources[0].block.is_some();
        if sources.is_empty() || alone {
            return;
        }
        // In the place of its sources in time, so that neighbours stay neighbours.
        self.write(self.plan(sources, level, sources[0].header.created_ns));
    }

    pub(super) fn write(&self, plan: Plan) {
        let (count, name) = (plan.sources.len(), plan.name());
        let written = compact::write(&*self.disk, plan, &|| self.may_commit());
        self.note(written, count, name);
    }

    /// Takes a written block into the catalog, or what is to be known of a failed one.
    fn note(&self, written: Result<Segment, compact::Failed>, count: usize, name: String) {
        match written {
            Ok(_) if self.overtaken() => {
                log::warn("a merge came too late and is undone", &[("block", &name)]);
                self.catalog.doubt(name);
            }
            Ok(block) => {
                self.catalog.insert(block, self.env.now_ns());
                self.metrics.merges.fetch_add(1, Relaxed);
            }
            Err(failed) => {
                let error = failed.error;
                log::warn("a merge failed", &[("sources", &count), ("error", &error)]);
                match failed.source {
                    Some((source, part)) => self.note_damage(&source, part, &error),
                    None if error.taken() => {}
                    None => self.catalog.doubt(name),
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
        names.extend(self.catalog.doubted());
        names
    }
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
