//! The words of a thread as thread-locals of Rust: good for the thread itself, not for a handler.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use super::ThreadWords;
use crate::otel::ThreadRecord;

thread_local! {
    static WORDS: ThreadWords = const {
        ThreadWords {
            context: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            entry: AtomicPtr::new(null_mut()),
            record: ThreadRecord::new(),
        }
    };
    static POINTER: AtomicPtr<c_void> = const { AtomicPtr::new(null_mut()) };
}

/// The calling thread's words; they live as long as the thread.
pub(crate) fn words() -> *const ThreadWords {
    WORDS.with(std::ptr::from_ref)
}

/// Where the pointer of the OpenTelemetry thread context stands for the calling thread.
pub(crate) fn otel_pointer() -> *const AtomicPtr<c_void> {
    POINTER.with(std::ptr::from_ref)
}
