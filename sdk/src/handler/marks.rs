//! Which threads run the handler now, by the address of their errno: against handlers that call each
//! other in a circle, and for tests that prove what a handler does not call. Two threads may share a
//! mark: one is then overlooked, never both.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

static MARKS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// In a forked child: no thread of the parent is there.
pub(super) fn forget_in_child() {
    for mark in &MARKS {
        mark.store(0, Ordering::Relaxed);
    }
}

/// Marks the thread whose errno is at `errno` as running the handler, or not.
pub(super) fn mark(errno: usize, inside: bool) {
    MARKS[errno >> 6 & 63].store(if inside { errno } else { 0 }, Ordering::Relaxed);
}

pub(super) fn is_marked(errno: usize) -> bool {
    MARKS[errno >> 6 & 63].load(Ordering::Relaxed) == errno
}

/// Whether the calling thread runs the handler now.
pub(crate) fn is_running_here() -> bool {
    is_marked(sys::errno() as usize)
}

/// For the test of the test: marks the calling thread.
pub(crate) fn pretend(inside: bool) {
    mark(sys::errno() as usize, inside);
}
