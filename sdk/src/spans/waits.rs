//! Time between polls by logical stack: a column of sums for each node, in shards so that threads do
//! not fight for cache lines.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::nodes::MAX_NODES;
use crate::context;
use crate::fork::{Held, Lock};

const SHARDS: usize = 8;

static ENABLED: AtomicBool = AtomicBool::new(false);
/// Shard by shard, node by node: how many waits, and their nanoseconds. Made when first switched on;
/// 2 MiB of address space, of which only what is used costs memory.
static SUMS: OnceLock<Box<[AtomicU64]>> = OnceLock::new();

/// Taken to make the sums, or a child could wait for a thread that it does not have.
static MAKING: Lock<()> = Lock::new(());

/// Held around a fork.
pub(super) fn lock() -> &'static dyn Held {
    &MAKING
}

pub(super) fn set_enabled(on: bool) {
    if on {
        let _making = MAKING.lock();
        SUMS.get_or_init(|| crate::atomics::zeros(SHARDS * MAX_NODES * 2));
    }
    ENABLED.store(on, Ordering::Release);
}

#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Adds one wait.
pub(crate) fn add(node: u32, wait_ns: u64) {
    let Some(sums) = SUMS.get() else {
        return;
    };
    // Threads' words are at least a page apart.
    let shard = context::words() as usize >> 12 & (SHARDS - 1);
    let at = (shard * MAX_NODES + node as usize) * 2;
    sums[at].fetch_add(1, Ordering::Relaxed);
    sums[at + 1].fetch_add(wait_ns, Ordering::Relaxed);
}

/// Waits and nanoseconds of the first `nodes` nodes.
pub(super) fn sums(nodes: usize) -> Vec<(u64, u64)> {
    let mut total = vec![(0, 0); nodes];
    for shard in SUMS
        .get()
        .iter()
        .flat_map(|sums| sums.chunks(MAX_NODES * 2))
    {
        for (total, pair) in total.iter_mut().zip(shard.chunks(2)) {
            total.0 += pair[0].load(Ordering::Relaxed);
            total.1 += pair[1].load(Ordering::Relaxed);
        }
    }
    total
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
