//! Which segments there are: in memory, filled from the folder, never wrong about what it lists.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use crate::block::Files;
use crate::segment::Header;

/// A segment or block on disk.
#[derive(Debug)]
pub struct Segment {
    /// File name; of a block, that of its manifest.
    pub name: String,
    /// Its header.
    pub header: Header,
    /// Where a block's bytes stand; `None` = a segment.
    pub block: Option<Files>,
}

/// A file that could not be read, wholly or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Why.
    pub reason: String,
    /// Profile times that it covered, where its header was readable.
    pub times_ns: Option<(i64, i64)>,
}

#[derive(Default)]
struct Inner {
    live: BTreeMap<String, Arc<Segment>>,
    /// Replaced by a merged segment: not read any more, file to be deleted.
    retired: Vec<(String, i64)>,
    /// Every name that a known segment replaces.
    replaced: HashSet<String>,
    damaged: BTreeMap<String, Damaged>,
    bytes: u64,
}

/// The list of segments.
#[derive(Default)]
pub struct Catalog {
    inner: RwLock<Inner>,
}

impl Catalog {
    fn read<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a segment in, and what it replaces out, in one step: no reader sees both or neither.
    pub fn insert(&self, segment: Segment, now_ns: i64) {
        self.write(|inner| {
            for name in &segment.header.replaces {
                inner.replaced.insert(name.clone());
                if let Some(old) = inner.live.remove(name) {
                    inner.bytes -= old.header.file_len;
                    inner.retired.push((name.clone(), now_ns));
                }
            }
            if inner.replaced.contains(&segment.name) {
                inner.retired.push((segment.name, now_ns));
                return;
            }
            let (name, len) = (segment.name.clone(), segment.header.file_len);
            if inner.live.insert(name, Arc::new(segment)).is_none() {
                inner.bytes += len;
            }
        });
    }

    /// Whether a known segment stands in the place of this file; it is to be deleted then, and need
    /// not be read.
    pub fn retire_replaced(&self, name: &str, now_ns: i64) -> bool {
        self.write(|inner| {
            let replaced = inner.replaced.contains(name);
            if replaced {
                inner.retired.push((name.to_owned(), now_ns));
            }
            replaced
        })
    }

    /// Live segments, oldest first, that `wanted` holds for.
    pub fn select(&self, mut wanted: impl FnMut(&Segment) -> bool) -> Vec<Arc<Segment>> {
        self.read(|inner| {
            inner
                .live
                .values()
                .filter(|segment| wanted(segment))
                .cloned()
                .collect()
        })
    }

    /// Number and bytes of live segments.
    pub fn size(&self) -> (usize, u64) {
        self.read(|inner| (inner.live.len(), inner.bytes))
    }

    /// Files that a query must name as missing when it overlaps them.
    pub fn damaged(&self) -> BTreeMap<String, Damaged> {
        self.read(|inner| inner.damaged.clone())
    }

    /// Takes a segment out because it cannot be read. `false` when that was known already.
    pub fn quarantine(&self, name: &str, reason: String) -> bool {
        self.write(|inner| {
            let live = inner.live.remove(name);
            if live.is_none() && inner.damaged.contains_key(name) {
                return false;
            }
            let times_ns = live.map(|segment| {
                inner.bytes -= segment.header.file_len;
                let series = segment.header.parts.iter().flat_map(|part| &part.series);
                series.fold((i64::MAX, i64::MIN), |(low, high), entry| {
                    (low.min(entry.min_time_ns), high.max(entry.max_time_ns))
                })
            });
            inner
                .damaged
                .insert(name.to_owned(), Damaged { reason, times_ns });
            true
        })
    }

    /// Takes segments out for good (retention).
    pub fn retire(&self, names: &[String], now_ns: i64) {
        self.write(|inner| {
            for name in names {
                if let Some(old) = inner.live.remove(name) {
                    inner.bytes -= old.header.file_len;
                    inner.retired.push((name.clone(), now_ns));
                }
            }
        });
    }

    /// Retired before `before_ns`: no query reads these any more.
    pub fn take_retired(&self, before_ns: i64) -> Vec<String> {
        self.write(|inner| {
            let (old, young) = std::mem::take(&mut inner.retired)
                .into_iter()
                .partition(|(_, at)| *at < before_ns);
            inner.retired = young;
            let old: Vec<(String, i64)> = old;
            old.into_iter().map(|(name, _)| name).collect()
        })
    }

    /// Those of `names` whose files are retired and not deleted yet.
    pub fn still_on_disk(&self, names: &[String]) -> Vec<String> {
        self.read(|inner| {
            let retired: HashSet<&String> = inner.retired.iter().map(|(name, _)| name).collect();
            names
                .iter()
                .filter(|name| retired.contains(name))
                .cloned()
                .collect()
        })
    }

    /// Notes that a retired file is gone.
    pub fn deleted(&self, name: &str) {
        self.write(|inner| inner.replaced.remove(name));
    }

    /// Puts a name back whose file could not be deleted.
    pub fn retire_again(&self, name: String, now_ns: i64) {
        self.write(|inner| inner.retired.push((name, now_ns)));
    }
}
