//! A looked-at allocation: its stack, its place in the table, its counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::live::{self, Entry};
use super::sampler::{self, Weight};
use super::{pace, probe};
use crate::sites::{Row, Sites};
use crate::stats::COUNTERS;
use crate::{config, engine, here};

/// Bytes of distinct stacks; what does not fit is shown under `[over the memory budget]`.
const SITES_BYTES: usize = 4 << 20;

/// Counters: objects and bytes allocated, objects and bytes freed.
static SITES: Sites = Sites::new(SITES_BYTES);
static INSTALLED: AtomicBool = AtomicBool::new(false);
static UNTRACKED: AtomicU64 = AtomicU64::new(0);

/// Whether the program allocates through [`super::Alloc`].
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

pub(super) fn note_installed() {
    if !INSTALLED.load(Ordering::Relaxed) && !INSTALLED.swap(true, Ordering::Relaxed) {
        // The program's first allocation: no engine runs yet.
        engine::keep_modules_current(true);
    }
}

/// Allocations looked at since the process started.
pub(crate) fn samples() -> u64 {
    COUNTERS.heap_looks.get()
}

/// Those whose free will go unnoticed, for want of room; in-use columns leave them out.
pub(crate) fn untracked() -> u64 {
    UNTRACKED.load(Ordering::Relaxed)
}

/// Bytes of the table of stacks in use, and how often a stack found no room.
pub(crate) fn table_usage() -> (usize, u64) {
    SITES.usage()
}

pub(super) fn rows() -> Vec<(Row, u32)> {
    SITES.rows_at()
}

pub(super) fn allocated(block: *mut u8, size: usize, weight: Weight) {
    let number = COUNTERS.heap_looks.number();
    pace::measured(number, || look_at(block, size, weight));
}

fn look_at(block: *mut u8, size: usize, weight: Weight) {
    let site = here::with_stack(config::MAX_DEPTH - 1, |here, frames| {
        SITES.site_at(frames, here.truncated, here.generation)
    });
    SITES.add(site, [weight.objects, weight.bytes, 0, 0]);
    let entry = Entry { site, weight };
    if !live::insert(block, entry) {
        untrack(entry);
    }
    probe::sampled(block as u64, size as u64, weight.bytes);
}

/// The free of a block cannot be noticed: it counts as freed at once.
fn untrack(entry: Entry) {
    UNTRACKED.fetch_add(1, Ordering::Relaxed);
    count_free(entry);
}

fn count_free(entry: Entry) {
    let Weight { objects, bytes } = entry.weight;
    SITES.add(entry.site, [0, 0, objects, bytes]);
}

/// A block that the table may hold is about to be freed.
#[cold]
#[inline(never)]
pub(super) fn freed(block: *mut u8) {
    if let Some(entry) = live::remove(block) {
        count_free(entry);
    }
}

/// A block that the table may hold gets another size.
#[cold]
#[inline(never)]
pub(super) fn resized(block: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    // Taken out before: a block that moves leaves its address to other threads.
    let before = live::remove(block);
    let after = resize();
    match before {
        // It failed, and the block is still there.
        Some(entry) if after.is_null() && !live::insert(block, entry) => untrack(entry),
        Some(entry) if !after.is_null() => count_free(entry),
        _ => {}
    }
    sampler::allocated(after, size);
    after
}
