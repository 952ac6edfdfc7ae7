//! Threads that start, told by the hook of `pthread_create`, so that they need not be searched for.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// More in one tick, and the search finds them.
const PLACES: usize = 1024;

/// Written by threads that start; 0 where none is.
static TIDS: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The calling thread starts.
#[cfg(feature = "thread-hook")]
pub(crate) fn thread_started() {
    if super::RUNS.load(Ordering::Relaxed) {
        let at = NEXT.fetch_add(1, Ordering::Relaxed);
        TIDS[at % PLACES].store(crate::sys::own_tid(), Ordering::Release);
    }
}

/// Threads that started since the last call.
pub(super) fn each(taken: &mut usize, mut visit: impl FnMut(i32)) {
    let end = NEXT.load(Ordering::Relaxed);
    let begin = (*taken).max(end.saturating_sub(PLACES));
    for at in begin..end {
        let tid = TIDS[at % PLACES].swap(0, Ordering::Acquire);
        // 0: not written yet, the search will find it.
        if tid != 0 {
            visit(tid);
        }
    }
    *taken = end;
}
