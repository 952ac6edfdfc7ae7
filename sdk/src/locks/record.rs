//! Which waits are kept, and what they weigh.

use std::sync::atomic::Ordering;

use super::marks::{self, MARKS};
use super::{Kind, RATE_NS};
use crate::here::here;
use crate::pages::KeepErrno;
use crate::sites::Sites;
use crate::stats::COUNTERS;
use crate::sys;

/// Stacks of waits, each with how many [`COUNT_UNIT`]ths of waits and how many nanoseconds.
pub(super) static SITES: Sites = Sites::new(2 << 20);
/// Frames kept of a stack, as Go does; deeper ones are cut at the root and marked.
const MAX_DEPTH: usize = 128;

/// A wait that has begun. Nothing is dropped: a cancelled thread just leaves it.
pub(super) struct Wait {
    began_ns: u64,
}

impl Wait {
    #[inline(always)]
    pub(super) fn begin() -> Wait {
        Wait { began_ns: now_ns() }
    }

    /// The wait is over; errno stays as it is.
    #[inline(always)]
    pub(super) fn end(self, kind: Kind) {
        let now = now_ns();
        let waited_ns = now.saturating_sub(self.began_ns).max(1);
        COUNTERS.waits.add(1);
        COUNTERS.waits_ns.add(waited_ns);
        let rate_ns = RATE_NS.load(Ordering::Relaxed);
        if let Some(weight) = sampled(waited_ns, rate_ns, random(now)) {
            keep(kind, weight);
        }
    }
}

/// What a kept wait stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    /// Waits, in [`COUNT_UNIT`]ths.
    pub(super) count: u64,
    pub(super) ns: u64,
}

/// Counts are kept in fractions of one.
pub(super) const COUNT_UNIT: u64 = 1 << 10;

/// Go's rule for its block profile: a wait of at least `rate_ns` is kept as it is; a shorter one
/// with the probability `waited/rate`, and then weighs `rate/waited` waits of its length. So sums
/// are right on average whatever the lengths, and on average one wait in `rate_ns` of waiting is kept.
pub(super) fn sampled(waited_ns: u64, rate_ns: u64, random: u64) -> Option<Weight> {
    if waited_ns >= rate_ns {
        let count = COUNT_UNIT;
        return (rate_ns > 0).then_some(Weight {
            count,
            ns: waited_ns,
        });
    }
    (random % rate_ns < waited_ns).then(|| Weight {
        count: (COUNT_UNIT * rate_ns + waited_ns / 2) / waited_ns,
        ns: rate_ns,
    })
}

/// A number that does not depend on how long the wait was: the clock's last digits, and which thread.
fn random(now_ns: u64) -> u64 {
    let thread = sys::errno() as u64;
    // splitmix64's finish.
    let mut x = now_ns.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Adds a wait to its stack's sums.
#[inline(never)]
fn keep(kind: Kind, weight: Weight) {
    let _errno = KeepErrno::new();
    let mut words = [0; MARKS + MAX_DEPTH];
    let at = marks::write(&mut words, kind);
    let here = here(&mut words[at..][..MAX_DEPTH]);
    let site = SITES.site(&words[..at + here.len], here.truncated);
    SITES.add(site, [weight.count, weight.ns, 0, 0]);
    COUNTERS.waits_kept.add(1);
}

fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `now`; cannot fail for this clock, so errno stays.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_above_the_rate_are_kept_as_they_are() {
        let count = COUNT_UNIT;
        for ns in [1000, 1001, 5_000_000_000] {
            assert_eq!(sampled(ns, 1000, u64::MAX), Some(Weight { count, ns }));
        }
        assert_eq!(sampled(1000, 0, 0), None);
    }

    #[test]
    fn sums_of_short_waits_are_right_on_average() {
        for waited in [1u64, 10, 300, 999, 1500] {
            let (mut count, mut ns, mut kept) = (0, 0, 0u32);
            let rounds = 200_000;
            for round in 0..rounds {
                if let Some(weight) = sampled(waited, 1000, random(round * 17)) {
                    count += weight.count;
                    ns += weight.ns;
                    kept += 1;
                }
            }
            let off = |sum: f64| (sum - 1.0).abs();
            let counted = count as f64 / (rounds * COUNT_UNIT) as f64;
            let timed = ns as f64 / (rounds * waited) as f64;
            // Four standard errors.
            let bound = 4.0 / f64::from(kept).sqrt();
            assert!(
                off(counted) < bound && off(timed) < bound,
                "{waited}: {counted} {timed}"
            );
        }
    }
}
