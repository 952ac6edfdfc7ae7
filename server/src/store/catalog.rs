//! Which segments there are: in memory, filled from the folder, never wrong about what it lists.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use crate::block::Files;
use crate::segment::{Header, SeriesEntry};

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

struct Retired {
    name: String,
    at_ns: i64,
    /// Shared with the queries that chose the file before; it stays as long as these run.
    file: Option<Arc<Segment>>,
}

impl Retired {
    fn new(name: String, at_ns: i64) -> Self {
        let file = None;
        Self { name, at_ns, file }
    }

    fn may_go(&self, before_ns: i64) -> bool {
        let read = self
            .file
            .as_ref()
            .is_some_and(|file| Arc::strong_count(file) > 1);
        self.at_ns < before_ns && !read
    }
}

#[derive(Default)]
struct Inner {
    live: BTreeMap<String, Arc<Segment>>,
    /// Replaced by a merged segment: not read any more, file to be deleted.
    retired: Vec<Retired>,
    /// Every name that a known segment replaces.
    replaced: HashSet<String>,
    damaged: BTreeMap<String, Damaged>,
    /// Of files that are otherwise answered from: (file, index of the part).
    damaged_parts: BTreeMap<(String, usize), Damaged>,
    /// Puts that failed: their files may be there all the same, or turn up after a power cut.
    doubted: HashSet<String>,
    bytes: u64,
}

impl Inner {
    fn take_out(&mut self, name: &str, now_ns: i64) {
        if let Some(old) = self.live.remove(name) {
            self.bytes -= old.header.file_len;
            self.retired.push(Retired {
                name: name.to_owned(),
                at_ns: now_ns,
                file: Some(old),
            });
            self.damaged_parts.retain(|(of, _), _| of != name);
        }
    }
}

fn reach((low, high): (i64, i64), entry: &SeriesEntry) -> (i64, i64) {
    (low.min(entry.min_time_ns), high.max(entry.max_time_ns))
}

/// The list of segments.
#[derive(Default)]
pub struct Catalog {
    inner: RwLock<Inner>,
    changes: AtomicU64,
}

impl Catalog {
    fn read<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, Relaxed);
        change(&mut inner)
    }

    /// Changes as soon as anything else may have: who looks at the same number again need not look at
    /// the list.
    pub fn changes(&self) -> u64 {
        self.read(|_| self.changes.load(Relaxed))
    }

    /// Takes a segment in, and what it replaces out, in one step: no reader sees both or neither.
    pub fn insert(&self, segment: Segment, now_ns: i64) {
        self.write(|inner| {
            for name in &segment.header.replaces {
                inner.replaced.insert(name.clone());
                inner.take_out(name, now_ns);
            }
            if inner.replaced.contains(&segment.name) {
                inner.retired.push(Retired::new(segment.name, now_ns));
                return;
            }
            inner.damaged.remove(&segment.name);
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
                inner.retired.push(Retired::new(name.to_owned(), now_ns));
            }
            replaced
        })
    }

    /// Whether a known block was made of any of these files.
    pub fn stands_for_any(&self, names: &[String]) -> bool {
        let names: HashSet<&String> = names.iter().collect();
        self.read(|inner| {
            let mut known = inner.live.values().flat_map(|block| &block.header.replaces);
            names.iter().any(|name| inner.replaced.contains(*name))
                || known.any(|name| names.contains(name))
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
    pub fn damaged(&self) -> Vec<(String, Damaged)> {
        self.read(|inner| {
            let files = inner.damaged.iter();
            let parts = inner.damaged_parts.iter();
            let parts = parts.map(|((name, _), damaged)| (name, damaged));
            files
                .chain(parts)
                .map(|(name, damaged)| (name.clone(), damaged.clone()))
                .collect()
        })
    }

    /// Parts of live files that must not be read: (file, index of the part).
    pub fn damaged_parts(&self) -> HashSet<(String, usize)> {
        self.read(|inner| inner.damaged_parts.keys().cloned().collect())
    }

    /// Takes one service of a file out because it cannot be read; the others are answered from the
    /// file as before. `false` when that was known already.
    pub fn quarantine_part(&self, segment: &Segment, part: usize, reason: &str) -> bool {
        let header = &segment.header.parts[part];
        let reason = format!("service {}: {reason}", header.service);
        if segment.header.parts.len() == 1 {
            return self.quarantine(&segment.name, reason);
        }
        let times_ns = header.series.iter().fold((i64::MAX, i64::MIN), reach);
        self.write(|inner| {
            if !inner.live.contains_key(&segment.name) {
                return false;
            }
            let times_ns = Some(times_ns);
            let damaged = Damaged { reason, times_ns };
            let key = (segment.name.clone(), part);
            inner.damaged_parts.insert(key, damaged).is_none()
        })
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
                series.fold((i64::MAX, i64::MIN), reach)
            });
            inner
                .damaged
                .insert(name.to_owned(), Damaged { reason, times_ns });
            true
        })
    }

    /// Takes segments out for good (retention).
    pub fn retire(&self, names: &[String], now_ns: i64) {
        if names.is_empty() {
            return;
        }
        self.write(|inner| {
            for name in names {
                inner.take_out(name, now_ns);
            }
        });
    }

    /// Retired before `before_ns`: no query reads these any more.
    pub fn take_retired(&self, before_ns: i64) -> Vec<String> {
        if self.read(|inner| inner.retired.is_empty()) {
            return Vec::new();
        }
        self.write(|inner| {
            let (old, young): (Vec<Retired>, Vec<Retired>) = std::mem::take(&mut inner.retired)
                .into_iter()
                .partition(|retired| retired.may_go(before_ns));
            inner.retired = young;
            old.into_iter().map(|retired| retired.name).collect()
        })
    }

    /// Whether something is known of a file, and be it that it does not count.
    pub fn knows(&self, name: &str) -> bool {
        self.read(|inner| {
            inner.live.contains_key(name)
                || inner.damaged.contains_key(name)
                || inner.doubted.contains(name)
                || inner.retired.iter().any(|retired| retired.name == name)
        })
    }

    /// Names of all files that answers come from, or are known to lack.
    pub fn names(&self) -> HashSet<String> {
        self.read(|inner| {
            let names = inner.live.keys().chain(inner.damaged.keys());
            names.cloned().collect()
        })
    }

    /// Whether a file was set aside before anything of it was understood.
    pub fn is_set_aside(&self, name: &str) -> bool {
        let unread = |damaged: &Damaged| damaged.times_ns.is_none();
        self.read(|inner| inner.damaged.get(name).is_some_and(unread))
    }

    /// Takes out files that are not there any more: another server deleted them.
    pub fn forget(&self, names: &HashSet<String>) {
        if names.is_empty() {
            return;
        }
        self.write(|inner| {
            for name in names {
                inner.damaged.remove(name);
                if let Some(old) = inner.live.remove(name) {
                    inner.bytes -= old.header.file_len;
                    inner.damaged_parts.retain(|(of, _), _| of != name);
                }
            }
        });
    }

    /// Those of `names` whose files are retired and not deleted yet.
    pub fn still_on_disk(&self, names: &[String]) -> Vec<String> {
        self.read(|inner| {
            let retired: HashSet<&String> =
                inner.retired.iter().map(|retired| &retired.name).collect();
            names
                .iter()
                .filter(|name| retired.contains(name))
                .cloned()
                .collect()
        })
    }

    /// Notes that a retired file is gone, and stays so.
    pub fn deleted(&self, name: &str) {
        self.write(|inner| {
            inner.replaced.remove(name);
            inner.doubted.remove(name);
        });
    }

    /// Notes a put that failed. What of it is there is deleted, and until that is sure, whatever is
    /// written next replaces it: its content will be written again.
    pub fn doubt(&self, name: String) {
        self.write(|inner| {
            inner.doubted.insert(name.clone());
            if let Some(old) = inner.live.remove(&name) {
                inner.bytes -= old.header.file_len;
            }
            inner.retired.push(Retired::new(name, i64::MIN));
        });
    }

    /// Names of puts that failed and are not surely gone.
    pub fn doubted(&self) -> Vec<String> {
        self.read(|inner| inner.doubted.iter().cloned().collect())
    }

    /// Puts a name back whose file could not be deleted.
    pub fn retire_again(&self, name: String, now_ns: i64) {
        self.write(|inner| inner.retired.push(Retired::new(name, now_ns)));
    }
}
