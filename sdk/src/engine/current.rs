//! The engine of this process: one at most, and none of its parent's.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Engine;
use crate::Error;
use crate::config::AfterFork;

/// The engine of this process, or null.
static CURRENT: AtomicPtr<Arc<Engine>> = AtomicPtr::new(null_mut());
/// Threads between reading [`CURRENT`] and having an engine of their own.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// The engine that runs in this process.
///
/// # Errors
/// [`Error::NotStarted`].
pub(crate) fn current() -> Result<Arc<Engine>, Error> {
    READERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: freed when it was replaced and no reader was there afterwards.
    let engine = unsafe { CURRENT.load(Ordering::SeqCst).as_ref() }.cloned();
    READERS.fetch_sub(1, Ordering::SeqCst);
    engine.ok_or(Error::NotStarted)
}

/// From now on there is no engine.
pub(super) fn withdraw() {
    let engine = CURRENT.swap(null_mut(), Ordering::SeqCst);
    if engine.is_null() {
        return;
    }
    while READERS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    // SAFETY: made by `publish`, and who reads now finds null.
    drop(unsafe { Box::from_raw(engine) });
}

/// False when there is an engine already.
pub(super) fn publish(engine: &Arc<Engine>) -> bool {
    let published = Box::into_raw(Box::new(Arc::clone(engine)));
    let swapped =
        CURRENT.compare_exchange(null_mut(), published, Ordering::SeqCst, Ordering::Relaxed);
    if swapped.is_err() {
        // SAFETY: nobody else has seen it.
        drop(unsafe { Box::from_raw(published) });
    }
    swapped.is_ok()
}

/// In a forked child, which has one thread: the background thread is the parent's, and so is the
/// engine, which the child only leaves alone. By choice it gets one of its own.
pub(crate) fn forget_in_child() {
    READERS.store(0, Ordering::SeqCst);
    let parent = CURRENT.swap(null_mut(), Ordering::SeqCst);
    // SAFETY: never freed in the child: its thread's handle must not be dropped.
    let Some(parent) = (unsafe { parent.as_ref() }) else {
        return;
    };
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    if parent.after_fork == AfterFork::Off {
        crate::locks::stop();
    }
    if parent.after_fork == AfterFork::Restart {
        let engine = Arc::new(parent.again());
        // Without a thread there are no captures, which then say so.
        if publish(&engine) && engine.spawn().is_err() {
            withdraw();
        }
    }
}
