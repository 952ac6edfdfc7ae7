//! Atomics of sources that the model checker of `sdk/loom` compiles too, with its own in place of
//! this module.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Straight from the allocator's zero pages, which cost memory once they are written.
pub(crate) fn zeros(count: usize) -> Box<[AtomicU64]> {
    let words = Box::into_raw(vec![0u64; count].into_boxed_slice());
    // SAFETY: `AtomicU64` has the size, alignment and values of `u64`, and nobody else has the box.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}
