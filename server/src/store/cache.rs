//! Decoded parts, bounded in bytes, least recently used out first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::block::Sidecar;
use crate::segment::Part;

type Key = (String, usize);

/// What is held of a part.
#[derive(Clone)]
pub enum Held {
    /// All of a segment's part.
    Part(Arc<Part>),
    /// All but the samples of a block's part.
    Sidecar(Arc<Sidecar>),
}

impl Held {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Part(part) => part.heap_bytes(),
            Self::Sidecar(sidecar) => sidecar.heap_bytes(),
        }
    }
}

#[derive(Default)]
struct Inner {
    parts: HashMap<Key, (Held, u64)>,
    /// Use counter → key would be a second map; a scan of a few hundred entries is cheaper to own.
    uses: u64,
    bytes: usize,
    hits: u64,
    misses: u64,
}

/// The cache.
pub struct Cache {
    inner: Mutex<Inner>,
    limit: usize,
}

impl Cache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::default(),
            limit,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A part of a segment, if held.
    pub fn get(&self, segment: &str, part: usize) -> Option<Held> {
        self.with(|inner| {
            inner.uses += 1;
            let now = inner.uses;
            let found = inner.parts.get_mut(&(segment.to_owned(), part));
            let part = found.map(|(part, used)| {
                *used = now;
                part.clone()
            });
            *(if part.is_some() {
                &mut inner.hits
            } else {
                &mut inner.misses
            }) += 1;
            part
        })
    }

    /// Keeps a part, unless it alone is larger than a quarter of the cache.
    pub fn put(&self, segment: &str, part: usize, data: &Held) {
        let bytes = data.heap_bytes();
        if bytes > self.limit / 4 {
            return;
        }
        self.with(|inner| {
            inner.uses += 1;
            let entry = (data.clone(), inner.uses);
            if inner
                .parts
                .insert((segment.to_owned(), part), entry)
                .is_none()
            {
                inner.bytes += bytes;
            }
            if inner.bytes > self.limit {
                inner.shrink(self.limit / 8 * 7);
            }
        });
    }

    /// Forgets a segment.
    pub fn forget(&self, segment: &str) {
        self.with(|inner| {
            inner.parts.retain(|(name, _), (part, _)| {
                let keep = name != segment;
                if !keep {
                    inner.bytes -= part.heap_bytes();
                }
                keep
            });
        });
    }

    /// Bytes held, hits, misses.
    pub fn stats(&self) -> (usize, u64, u64) {
        self.with(|inner| (inner.bytes, inner.hits, inner.misses))
    }
}

impl Inner {
    fn shrink(&mut self, target: usize) {
        let mut order: Vec<(u64, Key)> = self
            .parts
            .iter()
            .map(|(key, (_, used))| (*used, key.clone()))
            .collect();
        order.sort_unstable();
        for (_, key) in order {
            if self.bytes <= target {
                break;
            }
            if let Some((part, _)) = self.parts.remove(&key) {
                self.bytes -= part.heap_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Part;

    #[test]
    fn cache_stays_within_its_bytes_and_drops_the_least_used() {
        let part = |n| {
            Held::Part(Arc::new(Part {
                values: vec![0; n],
                ..Part::default()
            }))
        };
        let one = part(100).heap_bytes();
        let cache = Cache::new(one * 10);
        (0..10).for_each(|id| cache.put("s", id, &part(100)));
        assert!(cache.get("s", 0).is_some());
        cache.put("s", 10, &part(100));
        assert!(cache.stats().0 <= one * 10);
        assert!(cache.get("s", 0).is_some(), "used a moment ago");
        assert!(cache.get("s", 1).is_none(), "not used since");
        cache.put("big", 0, &part(400));
        assert!(
            cache.get("big", 0).is_none(),
            "too large to be worth the others"
        );
    }
}
