//! Keeps what looking at allocations costs within the budget: the interval grows first, and comes
//! back when there is room. Weights stay exact: each is of the interval that its allocation was drawn
//! for.
//!
//! What a look costs is measured, one in a few. Both happen inside the allocator: no allocation, no
//! lock.

use std::sync::atomic::{AtomicU64, Ordering};

use super::sampler::{asked_interval_bytes, clock_ns, interval_bytes, stretch_interval};
use crate::stats::COUNTERS;
use crate::sys;

/// One look in so many is measured.
const MEASURED: u64 = 16;
/// How often the share is looked at, at most.
const LOOKED_EVERY_NS: u64 = 250_000_000;
/// Less of the process's CPU time is too little to judge by.
const LEAST_CPU_NS: u64 = 20_000_000;
/// Beside what is measured: the free of a block that was looked at, and the measuring.
const BESIDE_NS: u64 = 300;
/// The interval grows up to so many times what was asked for.
const MOST: u64 = 1 << 20;
/// The interval comes back by so many halves at once.
const HALVINGS: u32 = 4;
/// Of the budget; the rest is the CPU sampler's.
const PART: f64 = 0.5;

/// Millionths of the process's CPU time that looks may take; 0 is no limit.
static SHARE_PPM: AtomicU64 = AtomicU64::new(ppm(crate::config::DEFAULT_BUDGET_CPU_PERCENT));
/// Mean cost of a look, nanoseconds; 0 before the first.
static COST_NS: AtomicU64 = AtomicU64::new(0);
/// When the share was looked at; what had been used and looked at then.
static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
static CPU_NS: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);

const fn ppm(percent: f64) -> u64 {
    // Who allows everything is not held.
    if percent >= 100.0 {
        return 0;
    }
    let ppm = (percent * 10_000.0 * PART) as u64;
    if ppm == 0 { 1 } else { ppm }
}

/// Percent of the process's CPU time that all sampling may take.
pub(crate) fn set_budget(percent: f64) {
    SHARE_PPM.store(ppm(percent), Ordering::Relaxed);
}

/// Looks at one allocation, by `work`, as the `number`th.
pub(super) fn measured(number: u64, work: impl FnOnce()) {
    if !number.is_multiple_of(MEASURED) {
        return work();
    }
    let before = sys::own_clock_ns();
    work();
    let cost_ns = sys::own_clock_ns().saturating_sub(before) + BESIDE_NS;
    let mean = match COST_NS.load(Ordering::Relaxed) {
        0 => cost_ns,
        // One that waited for a page, or was interrupted, says little.
        mean => (mean * 15 + cost_ns.min(mean * 8)) / 16,
    };
    COST_NS.store(mean, Ordering::Relaxed);
    hold();
}

#[cfg(not(any(not(target_os = "linux"), feature = "backtrace")))]
/// CPU time that all looks of this process took so far, nanoseconds.
pub(crate) fn spent_ns() -> u64 {
    COUNTERS.heap_looks.get() * COST_NS.load(Ordering::Relaxed)
}

/// Looks at what was spent since the last time, when that is long enough ago, and changes the
/// interval where it is too much, or too little.
pub(crate) fn hold() {
    let (now, last) = (clock_ns(), LOOKED_NS.load(Ordering::Relaxed));
    if now.saturating_sub(last) < LOOKED_EVERY_NS {
        return;
    }
    let is_mine = LOOKED_NS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    let before_ns = CPU_NS.load(Ordering::Relaxed);
    let cpu_ns = sys::process_clock_ns();
    // A forked child's clock begins anew.
    let is_enough = cpu_ns < before_ns || cpu_ns - before_ns >= LEAST_CPU_NS;
    if is_mine.is_err() || !is_enough {
        return;
    }
    CPU_NS.store(cpu_ns, Ordering::Relaxed);
    let looks = COUNTERS.heap_looks.get();
    let spent_ns = (looks - LOOKS.swap(looks, Ordering::Relaxed)) * COST_NS.load(Ordering::Relaxed);
    // The first time there is nothing to compare with.
    if last > 0 && cpu_ns >= before_ns {
        adapt(cpu_ns - before_ns, spent_ns);
    }
}

/// Of `cpu_ns` of the process, looks took `spent_ns`.
fn adapt(cpu_ns: u64, spent_ns: u64) {
    let (share_ppm, asked) = (SHARE_PPM.load(Ordering::Relaxed), asked_interval_bytes());
    // Each allocation is asked for by its number, not by its price.
    let allowed_ns = match share_ppm > 0 && asked > 1 {
        true => (cpu_ns as f64 * share_ppm as f64 * 1e-6) as u64,
        false => u64::MAX,
    };
    let stretch = (interval_bytes() / asked.max(1)).max(1);
    stretch_interval(next_stretch(stretch, spent_ns, allowed_ns));
}

/// How many times the interval that was asked for is next, when `stretch` times cost `spent_ns`.
fn next_stretch(mut stretch: u64, mut spent_ns: u64, allowed_ns: u64) -> u64 {
    if spent_ns > allowed_ns {
        let over = spent_ns / allowed_ns.max(1);
        return (stretch * (over + 1).next_power_of_two()).min(MOST);
    }
    for _ in 0..HALVINGS {
        // Twice as many must fit with room to spare.
        if stretch > 1 && spent_ns.saturating_mul(5) < allowed_ns.saturating_mul(2) {
            (stretch, spent_ns) = (stretch / 2, spent_ns * 2);
        }
    }
    stretch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_grows_as_far_as_the_budget_demands_and_comes_back_by_halves() {
        assert_eq!(next_stretch(1, 100, 100), 1);
        assert_eq!(next_stretch(1, 101, 100), 2);
        assert_eq!(next_stretch(4, 399, 100), 16);
        assert_eq!(next_stretch(1, 50_000, 100), 512);
        assert_eq!(next_stretch(MOST, 500, 100), MOST);
        // What just fits is left; twice of what is left must fit.
        assert_eq!(next_stretch(8, 60, 100), 8);
        assert_eq!(next_stretch(8, 39, 100), 4);
        assert_eq!(next_stretch(8, 15, 100), 2);
        assert_eq!(next_stretch(1, 0, 100), 1);
        assert_eq!(next_stretch(1 << 10, 0, 100), 1 << 6);
        // No limit.
        assert_eq!(next_stretch(8, 1 << 40, u64::MAX), 1);
    }

    #[test]
    fn half_of_the_budget_is_for_looks_and_all_of_it_is_no_limit() {
        assert_eq!(ppm(0.5), 2_500);
        assert_eq!(ppm(10.0), 50_000);
        assert_eq!(ppm(1e-9), 1);
        assert_eq!(ppm(100.0), 0);
    }
}
