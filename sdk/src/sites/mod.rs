//! Stacks with counters, in bounded memory: where memory was allocated, where threads waited.
//!
//! Lock-free and without allocation, so that it can be filled inside an allocator, an interposed
//! function of libc or a signal handler, and goes on in a forked child. A stack once seen stays.

mod profile;

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::pages::Pages;
#[allow(
    unused_imports,
    reason = "first used by the types that are about to come"
)]
pub(crate) use profile::{Extra, Shape, profile_at, profile_of, profile_with};

/// Counters of a site; what each means is its owner's business.
pub(crate) const COUNTERS: usize = 4;
/// Chains of sites with the same low bits of their hash.
const CHAINS: usize = 8192;
/// Words before the frames: hash and generation, next site and length, counters.
const HEADER_WORDS: usize = 2 + COUNTERS;
/// The index takes the head of the memory; two chains share a word.
const INDEX_WORDS: usize = CHAINS / 2;
/// In the first word, the rest is the generation.
const HASH_MASK: u64 = !0 << 32;
/// In the second word.
const TRUNCATED: u64 = 1 << 63;

/// A site in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site(u32);

impl Site {
    /// To keep elsewhere.
    pub(crate) fn to_word(self) -> u32 {
        self.0
    }

    /// What [`Site::to_word`] gave, of the same table.
    pub(crate) fn from_word(word: u32) -> Site {
        Site(word)
    }
}

/// Everything that found no room.
pub(crate) const OVERFLOW: Site = Site(0);

/// One stack and its counters, as read by [`Sites::rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Leaf first.
    pub(crate) frames: Vec<u64>,
    pub(crate) truncated: bool,
    /// Everything that found no room.
    pub(crate) is_overflow: bool,
    pub(crate) counters: [u64; COUNTERS],
}

/// The table. Made in a `static`; its memory is mapped with the first stack.
pub(crate) struct Sites {
    pages: Pages,
    /// Words in use, the index included.
    used: AtomicUsize,
    overflow: [AtomicU64; COUNTERS],
    /// Lookups that found no room.
    refused: AtomicU64,
}

impl Sites {
    /// A table of at most `bytes` bytes.
    pub(crate) const fn new(bytes: usize) -> Sites {
        assert!(bytes / 8 > INDEX_WORDS && bytes / 8 <= u32::MAX as usize);
        Sites {
            pages: Pages::new(bytes / 8),
            used: AtomicUsize::new(INDEX_WORDS),
            overflow: [const { AtomicU64::new(0) }; COUNTERS],
            refused: AtomicU64::new(0),
        }
    }

    /// The site of a stack; [`OVERFLOW`] when there is no room for a new one.
    #[cfg(any(test, feature = "lock-hooks", feature = "thread-hook"))]
    pub(crate) fn site(&self, frames: &[u64], truncated: bool) -> Site {
        self.site_at(frames, truncated, 0)
    }

    /// The site of a stack that belongs to this generation of modules; the first one is
    /// kept. [`OVERFLOW`] when there is no room for a new one.
    pub(crate) fn site_at(&self, frames: &[u64], truncated: bool, generation: u32) -> Site {
        let words = self.pages.get();
        if words.is_empty() {
            return self.refuse();
        }
        // Its low half makes room for the generation.
        let hash = hash_of(frames, truncated);
        let chain = &chains(words)[hash as usize % CHAINS];
        let mut first = chain.load(Ordering::Acquire);
        if let Some(site) = find(words, first, 0, hash, frames, truncated) {
            return site;
        }
        let Some(at) = self.reserve(words.len(), HEADER_WORDS + frames.len()) else {
            return self.refuse();
        };
        let meta = (frames.len() as u64) << 32 | if truncated { TRUNCATED } else { 0 };
        let site = &words[at as usize..];
        let word = hash & HASH_MASK | u64::from(generation);
        site[0].store(word, Ordering::Relaxed);
        for (word, frame) in site[HEADER_WORDS..].iter().zip(frames) {
            word.store(*frame, Ordering::Relaxed);
        }
        loop {
            site[1].store(meta | u64::from(first), Ordering::Relaxed);
            // Release: whoever finds it in the chain finds it whole.
            match chain.compare_exchange(first, at, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Site(at),
                // The same stack may have come in meanwhile; the reserved words are then left over.
                Err(now) => match find(words, now, first, hash, frames, truncated) {
                    Some(site) => return site,
                    None => first = now,
                },
            }
        }
    }

    /// Adds to a site's counters; sums wrap around.
    pub(crate) fn add(&self, site: Site, values: [u64; COUNTERS]) {
        for (counter, value) in self.counters(site).iter().zip(values) {
            if value != 0 {
                // Release: who sees the sum sees what was added before to the others.
                counter.fetch_add(value, Ordering::Release);
            }
        }
    }

    fn counters(&self, site: Site) -> &[AtomicU64] {
        let at = site.0 as usize;
        match self.pages.touched().get(at + 2..at + HEADER_WORDS) {
            Some(counters) if site != OVERFLOW => counters,
            _ => &self.overflow,
        }
    }

    fn refuse(&self) -> Site {
        self.refused.fetch_add(1, Ordering::Relaxed);
        OVERFLOW
    }

    fn reserve(&self, limit: usize, length: usize) -> Option<u32> {
        let fits = |used: usize| Some(used + length).filter(|end| *end <= limit);
        let reserved = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        reserved.ok().map(|at| at as u32)
    }

    /// All sites with a counter that is not zero. Counters are read from the last to the first: a
    /// later one that only ever follows an earlier one is never ahead of it.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows_at().into_iter().map(|(row, _)| row).collect()
    }

    /// As [`Sites::rows`], each with its generation of modules.
    pub(crate) fn rows_at(&self) -> Vec<(Row, u32)> {
        let mut rows = Vec::new();
        let words = self.pages.touched();
        if !words.is_empty() {
            for chain in chains(words) {
                let mut at = chain.load(Ordering::Acquire);
                while at != 0 {
                    let site = &words[at as usize..];
                    let meta = site[1].load(Ordering::Relaxed);
                    let generation = site[0].load(Ordering::Relaxed) as u32;
                    let row = self.row(Site(at), meta, &site[HEADER_WORDS..]);
                    rows.extend(row.map(|row| (row, generation)));
                    at = meta as u32;
                }
            }
        }
        rows.extend(self.row(OVERFLOW, 0, &[]).map(|row| (row, 0)));
        rows
    }

    fn row(&self, site: Site, meta: u64, frames: &[AtomicU64]) -> Option<Row> {
        let mut counters = [0; COUNTERS];
        for (value, counter) in counters.iter_mut().zip(self.counters(site)).rev() {
            *value = counter.load(Ordering::Acquire);
        }
        (counters != [0; COUNTERS]).then(|| Row {
            frames: frames[..length(meta)]
                .iter()
                .map(|frame| frame.load(Ordering::Relaxed))
                .collect(),
            truncated: meta & TRUNCATED != 0,
            is_overflow: site == OVERFLOW,
            counters,
        })
    }

    /// Bytes in use, and how often a stack found no room.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let bytes = self.used.load(Ordering::Relaxed) * 8;
        (bytes, self.refused.load(Ordering::Relaxed))
    }
}

/// The index: word positions of the first site of each chain, 0 for none.
fn chains(words: &[AtomicU64]) -> &[AtomicU32] {
    let start = words[..INDEX_WORDS].as_ptr().cast::<AtomicU32>();
    // SAFETY: zeroed words at the head of the mapping, which nobody uses otherwise; half a word has
    // half its alignment.
    unsafe { std::slice::from_raw_parts(start, CHAINS) }
}

fn length(meta: u64) -> usize {
    (meta >> 32) as usize & 0xffff
}

/// The site of a stack in a chain, looked for from `at` up to `end`.
fn find(
    words: &[AtomicU64],
    mut at: u32,
    end: u32,
    hash: u64,
    frames: &[u64],
    truncated: bool,
) -> Option<Site> {
    while at != end && at != 0 {
        let site = &words[at as usize..];
        let meta = site[1].load(Ordering::Relaxed);
        let same = |(word, frame): (&AtomicU64, &u64)| word.load(Ordering::Relaxed) == *frame;
        if (site[0].load(Ordering::Relaxed) ^ hash) & HASH_MASK == 0
            && length(meta) == frames.len()
            && (meta & TRUNCATED != 0) == truncated
            && site[HEADER_WORDS..].iter().zip(frames).all(same)
        {
            return Some(Site(at));
        }
        at = meta as u32;
    }
    None
}

/// Multiply and fold, a word at a time.
fn hash_of(frames: &[u64], truncated: bool) -> u64 {
    let mut hash = frames.len() as u64 ^ u64::from(truncated) << 32;
    for frame in frames {
        let product = u128::from(hash ^ frame)
            // Wrapping: a program that checks for overflow must not panic in its allocator.
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        hash = product as u64 ^ (product >> 64) as u64;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Less under miri, which follows every word of a slice each time that it is borrowed.
    const BYTES: usize = if cfg!(miri) { 64 << 10 } else { 1 << 20 };

    fn totals(sites: &Sites) -> [u64; COUNTERS] {
        sites.rows().iter().fold([0; COUNTERS], |mut sum, row| {
            sum.iter_mut().zip(row.counters).for_each(|(s, v)| *s += v);
            sum
        })
    }

    #[test]
    fn equal_stacks_share_a_site_and_different_ones_do_not() {
        static SITES: Sites = Sites::new(BYTES);
        let a = SITES.site(&[1, 2, 3], false);
        let b = SITES.site(&[1, 2], false);
        let c = SITES.site(&[1, 2, 3], true);
        let empty = SITES.site(&[], false);
        assert_eq!(SITES.site(&[1, 2, 3], false), a);
        assert!(a != b && a != c && b != c && empty != OVERFLOW);
        SITES.add(a, [1, 100, 0, 0]);
        SITES.add(a, [1, 50, 1, 100]);
        SITES.add(c, [7, 0, 0, 0]);
        let mut rows = SITES.rows();
        rows.sort_by_key(|row| row.counters);
        let row = |truncated, counters| Row {
            frames: vec![1, 2, 3],
            truncated,
            is_overflow: false,
            counters,
        };
        assert_eq!(
            rows,
            [row(false, [2, 150, 1, 100]), row(true, [7, 0, 0, 0])]
        );
    }

    #[test]
    fn what_finds_no_room_is_counted_in_one_place_and_the_memory_stays_bounded() {
        static SITES: Sites = Sites::new(64 << 10);
        for n in 0..10_000u64 {
            let site = SITES.site(&[n; 20], false);
            SITES.add(site, [1, n, 0, 0]);
        }
        assert_eq!(totals(&SITES)[..2], [10_000, 9_999 * 5_000]);
        let overflow = SITES
            .rows()
            .into_iter()
            .find(|row| row.is_overflow)
            .unwrap();
        let (bytes, refused) = SITES.usage();
        assert!(bytes <= 64 << 10 && bytes > 60 << 10, "{bytes}");
        assert_eq!(overflow.counters[0], refused);
        assert!(refused > 9_000, "{refused}");
    }

    #[test]
    fn threads_at_once_lose_nothing() {
        const N: u64 = if cfg!(miri) { 60 } else { 20_000 };
        static SITES: Sites = Sites::new(BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..N {
                        let stack = [n % 500, n % 7, 3];
                        SITES.add(SITES.site(&stack, false), [1, 2, 0, 3]);
                    }
                });
            }
        });
        assert_eq!(totals(&SITES), [4 * N, 8 * N, 0, 12 * N]);
        let frames: std::collections::HashSet<_> =
            SITES.rows().into_iter().map(|row| row.frames).collect();
        assert_eq!(frames.len() as u64, N.min(3500));
    }
}
