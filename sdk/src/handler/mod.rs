//! The SIGPROF handler. `README.md` in this folder lists what it may do.

mod install;
mod marks;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "../elsewhere/sample.rs"
)]
mod sample;
pub(crate) mod scratch;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "../elsewhere/signal.rs"
)]
mod signal;
pub(crate) mod swap;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[cfg(all(
    feature = "thread-hook",
    target_os = "linux",
    not(feature = "backtrace")
))]
use crate::context;
#[cfg(all(
    feature = "thread-hook",
    target_os = "linux",
    not(feature = "backtrace")
))]
use crate::kind::Record;
use crate::modules::Snapshot;
#[cfg(all(
    feature = "thread-hook",
    target_os = "linux",
    not(feature = "backtrace")
))]
use crate::ring::Header;
use crate::ring::Ring;
use crate::stats::COUNTERS;
pub(crate) use install::install;
pub(crate) use marks::{is_running_here, pretend};
use scratch::ScratchPool;
use swap::{Old, Swap};

/// Made once, and never freed: a late signal may still use it.
static RING: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
static SNAPSHOT: Swap<Snapshot> = Swap::of(AtomicPtr::new(null_mut()));
static SCRATCH: ScratchPool = ScratchPool::new();
/// While false, signals are counted and dropped.
static ARMED: AtomicBool = AtomicBool::new(false);
static MAX_DEPTH: AtomicUsize = AtomicUsize::new(crate::config::MAX_DEPTH);
/// An address or a stack was met that the snapshot does not know.
static STALE: AtomicBool = AtomicBool::new(false);

/// The ring that handlers write to, made on first use; its size stays.
pub(crate) fn ring(bytes: usize) -> &'static Ring {
    let mut ring = RING.load(Ordering::Acquire);
    if ring.is_null() {
        let made = Box::into_raw(Box::new(Ring::new(bytes)));
        let swapped = RING.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        ring = match swapped {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
    }
    // SAFETY: never freed, only ever shared.
    unsafe { &*ring }
}

/// Lets handlers take samples.
pub(crate) fn arm(max_depth: usize) {
    MAX_DEPTH.store(max_depth, Ordering::Relaxed);
    ARMED.store(true, Ordering::SeqCst);
}

/// From now on handlers count and drop. Returns when none is in the middle of a sample.
pub(crate) fn disarm() {
    ARMED.store(false, Ordering::SeqCst);
    // A handler that a debugger stopped may be waited for in vain; its sample is late then.
    let _ = SCRATCH.each_was_free();
}

/// Publishes a snapshot and frees the one before, once no handler can hold it.
pub(crate) fn publish(snapshot: Box<Snapshot>) {
    // Handlers, and walks of a thread's own stack.
    let each_was_free = || SCRATCH.each_was_free() && crate::here::each_walk_ended();
    match SNAPSHOT.replace(snapshot, each_was_free) {
        Old::Free(old) => drop(old),
        Old::Held => COUNTERS.snapshots_leaked.add(1),
        Old::None => {}
    }
}

/// In a forked child: handlers of threads that are not there any more hold nothing, and a record that
/// one of them was writing would stop the ring for ever. No thread but the caller is there.
pub(crate) fn forget_in_child() {
    ARMED.store(false, Ordering::SeqCst);
    // Not freed: what the parent's captures left in the child may still point to it.
    RING.store(null_mut(), Ordering::SeqCst);
    SCRATCH.free_all();
    crate::here::forget_in_child();
    marks::forget_in_child();
}

/// The published snapshot.
///
/// # Safety
/// The caller holds a scratch buffer that [`publish`] waits for, acquired before the call, as long as
/// it uses the snapshot.
pub(crate) unsafe fn snapshot() -> Option<&'static Snapshot> {
    // SAFETY: promised by the caller.
    unsafe { SNAPSHOT.get() }
}

/// Something was met that the snapshot does not know.
pub(crate) fn note_stale() {
    STALE.store(true, Ordering::Relaxed);
}

/// Whether something unknown was met since the last call.
pub(crate) fn take_stale() -> bool {
    STALE.swap(false, Ordering::Relaxed)
}

/// Writes a record from ordinary code, such as a thread that ends.
#[cfg(all(
    feature = "thread-hook",
    target_os = "linux",
    not(feature = "backtrace")
))]
pub(crate) fn push(frames: &[u64], weight: u64, generation: u32) -> bool {
    let ring = RING.load(Ordering::Acquire);
    let header = Header {
        record: Record::Cpu,
        weight,
        generation,
        truncated: false,
        context: context::Context::default(),
        trace: None,
    };
    // SAFETY: never freed once made.
    unsafe { ring.as_ref() }.is_some_and(|ring| ring.push(header, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_inherits_no_handler_that_never_returns() {
        let inherited = std::ptr::from_ref(ring(1 << 16)) as usize;
        std::mem::forget(SCRATCH.acquire(3));
        marks::mark(64, true);
        forget_in_child();
        assert!(SCRATCH.each_was_free());
        assert!(!marks::is_marked(64));

        // Made anew, by whoever comes first.
        let rings: Vec<usize> = std::thread::scope(|scope| {
            let make = || std::ptr::from_ref(ring(1 << 16)) as usize;
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(rings.iter().all(|ring| *ring == rings[0]), "{rings:?}");
        assert_ne!(rings[0], inherited);
    }
}
