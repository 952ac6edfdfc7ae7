//! Which allocations are looked at: a Poisson process over allocated bytes.
//!
//! Each thread counts down from a random number of bytes, exponentially distributed; the allocation
//! that takes it below zero is looked at, and a new number is drawn. So one of `size` bytes is looked
//! at with the probability `1 - exp(-size / interval)`, whatever came before, and stands for the
//! inverse of that many.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record;

/// As Go's `runtime.MemProfileRate`.
pub(crate) const DEFAULT_INTERVAL_BYTES: u64 = 512 << 10;
/// A thread that does not sample looks for a change once in so many bytes.
const IDLE_BYTES: i64 = 1 << 20;
/// Bits behind the point of a number of objects.
pub(super) const FRACTION_BITS: u32 = 16;

/// Mean bytes between two allocations that are looked at; 0 is off, 1 looks at each.
static ASKED_BYTES: AtomicU64 = AtomicU64::new(DEFAULT_INTERVAL_BYTES);
/// The same, or more where the budget demands it.
static INTERVAL_BYTES: AtomicU64 = AtomicU64::new(DEFAULT_INTERVAL_BYTES);

// No destructors: they can be used until a thread's last instruction.
thread_local! {
    /// Bytes until the next one.
    static LEFT: Cell<i64> = const { Cell::new(0) };
    /// The interval that `LEFT` was drawn for; 0 when it was not drawn.
    static DRAWN_FOR: Cell<u64> = const { Cell::new(0) };
    /// Pilotlight's own work, which must not show in the profile.
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// The interval in effect.
pub(crate) fn interval_bytes() -> u64 {
    INTERVAL_BYTES.load(Ordering::Relaxed)
}

pub(crate) fn asked_interval_bytes() -> u64 {
    ASKED_BYTES.load(Ordering::Relaxed)
}

/// So many times what was asked for, from the next draw of each thread on.
pub(super) fn stretch_interval(times: u64) {
    let asked = asked_interval_bytes();
    let now = interval_bytes();
    // Somebody may ask for another one at this moment, and that holds.
    let next = asked.saturating_mul(times);
    let _ = INTERVAL_BYTES.compare_exchange(now, next, Ordering::Relaxed, Ordering::Relaxed);
}

/// Counts from the next allocation that a thread looks at; in the calling thread at once.
pub(crate) fn set_interval_bytes(bytes: u64) {
    ASKED_BYTES.store(bytes, Ordering::Relaxed);
    INTERVAL_BYTES.store(bytes, Ordering::Relaxed);
    DRAWN_FOR.set(0);
    LEFT.set(0);
}

/// Runs `work` without looking at what it allocates. What it frees is noticed.
pub(crate) fn unsampled<T>(work: impl FnOnce() -> T) -> T {
    struct Resume(bool, i64, u64);
    impl Drop for Resume {
        fn drop(&mut self) {
            PAUSED.set(self.0);
            LEFT.set(self.1);
            DRAWN_FOR.set(self.2);
        }
    }
    let _resume = Resume(PAUSED.replace(true), LEFT.replace(0), DRAWN_FOR.replace(0));
    work()
}

/// An allocation happened.
#[inline(always)]
pub(super) fn allocated(block: *mut u8, size: usize) {
    let left = LEFT.get().wrapping_sub(size as i64);
    LEFT.set(left);
    if left < 0 {
        look(block, size);
    }
}

/// The countdown ended, or was never drawn.
#[cold]
#[inline(never)]
fn look(block: *mut u8, size: usize) {
    // Nothing that happens in here, or in a signal's handler meanwhile, is looked at.
    LEFT.set(i64::MAX);
    record::note_installed();
    let interval = interval_bytes();
    if interval == 0 || PAUSED.get() {
        DRAWN_FOR.set(0);
        LEFT.set(IDLE_BYTES);
        return;
    }
    let mut drawn_for = DRAWN_FOR.replace(interval);
    if drawn_for == 0 {
        let left = draw(interval).wrapping_sub(size as i64);
        if left >= 0 {
            return LEFT.set(left);
        }
        drawn_for = interval;
    }
    if !block.is_null() {
        record::allocated(block, size, Weight::of(size, drawn_for));
    }
    LEFT.set(draw(interval));
}

/// A random number of bytes with the given mean, exponentially distributed.
fn draw(mean: u64) -> i64 {
    if mean == 1 {
        return 0;
    }
    let unit = ((random() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-unit.ln() * mean as f64) as i64
}

/// splitmix64 (<https://prng.di.unimi.it/splitmix64.c>), one sequence for all threads.
fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut at = STATE.fetch_add(STEP, Ordering::Relaxed);
    if at == 0 {
        // Addresses are random enough to make runs differ.
        let seed = LEFT.with(|left| std::ptr::from_ref(left) as u64) ^ clock_ns().rotate_left(32);
        at = STATE.fetch_add(seed, Ordering::Relaxed).wrapping_add(seed);
    }
    let mut z = at.wrapping_add(STEP);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

pub(super) fn clock_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a looked-at allocation stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    /// With [`FRACTION_BITS`] bits behind the point.
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Weight {
    /// The inverse of the probability; as Go's `scaleHeapSample`, but for each size of its own.
    fn of(size: usize, interval: u64) -> Weight {
        if interval == 1 {
            return Weight {
                objects: 1 << FRACTION_BITS,
                bytes: size as u64,
            };
        }
        let size = size as f64;
        let objects = -1.0 / (-size / interval as f64).exp_m1();
        Weight {
            objects: (objects * f64::from(1 << FRACTION_BITS)).round() as u64,
            bytes: (objects * size).round() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_go() {
        // scaleHeapSample(1, size, 524288) of Go 1.26.
        for (size, objects, bytes) in [
            (8, 65_536, 524_292),
            (1 << 10, 512, 524_800),
            (512 << 10, 1, 829_411),
            (64 << 20, 1, 64 << 20),
        ] {
            let weight = Weight::of(size, DEFAULT_INTERVAL_BYTES);
            assert_eq!(
                (weight.objects >> FRACTION_BITS, weight.bytes),
                (objects, bytes)
            );
        }
    }

    #[test]
    fn an_interval_of_1_looks_at_each_allocation_and_counts_it_once() {
        assert_eq!(draw(1), 0);
        let once = Weight {
            objects: 1 << FRACTION_BITS,
            bytes: 3,
        };
        assert_eq!(Weight::of(3, 1), once);
    }

    #[test]
    fn each_allocation_counts_once_on_average_whatever_its_size() {
        const INTERVAL: u64 = 4096;
        for (size, rounds) in [
            (16, 400_000u64),
            (1000, 100_000),
            (4096, 40_000),
            (30_000, 10_000),
        ] {
            let mut left = draw(INTERVAL);
            let mut objects = 0;
            for _ in 0..rounds {
                left -= size;
                if left < 0 {
                    objects += Weight::of(size as usize, INTERVAL).objects;
                    left = draw(INTERVAL);
                }
            }
            let objects = (objects >> FRACTION_BITS) as f64;
            let weight = Weight::of(size as usize, INTERVAL).objects as f64 / 65_536.0;
            // Of `n` with probability p, each counted 1/p: the deviation is √(n (1-p)/p).
            let sigma = (rounds as f64 * (weight - 1.0)).sqrt() + 1.0;
            let off = (objects - rounds as f64).abs();
            assert!(
                off < 5.0 * sigma,
                "{size}: {objects} of {rounds}, σ {sigma}"
            );
        }
    }
}
