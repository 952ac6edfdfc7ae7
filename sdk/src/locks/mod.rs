//! Where threads wait for each other: time in futex waits and in the pthread functions that block.
//!
//! The standard library and parking_lot ask the kernel only when a lock is taken already, by libc's
//! `syscall`. This program's `syscall` and `pthread_mutex_lock` and so on are pilotlight's, so a lock
//! that is free costs nothing, and one that is not, two looks at the clock and sometimes a walk.
//!
//! | module | job |
//! |---|---|
//! | `syscall` | libc's `syscall`, but for futex waits the same |
//! | `pthread` | the blocking functions of pthreads, timed when they block |
//! | `next` | libc's own functions of these names |
//! | `interpose` | the same as exports of a shared library |
//! | `record` | which waits are kept, and what they weigh |
//!
//! Code here runs before `main`, in signal handlers, in destructors of thread-locals and in forked
//! children: it never allocates, never locks, and leaves errno as libc would.

mod interpose;
#[cfg(not(target_feature = "crt-static"))]
mod next;
// A program that holds its libc has no second function of each name to go on to.
#[cfg(not(target_feature = "crt-static"))]
mod pthread;
mod record;
mod syscall;

use std::sync::atomic::{AtomicU64, Ordering};

/// Waits shorter than this are kept with a probability; 0 while nothing is recorded.
static RATE_NS: AtomicU64 = AtomicU64::new(0);

/// What a hook knows of a wait without looking at the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(
    target_feature = "crt-static",
    expect(dead_code, reason = "no functions of pthreads are timed there")
)]
pub(crate) enum Kind {
    /// A futex wait: the frames tell what for.
    Futex = 1,
    /// A futex wait as the standard library's mutexes do it; the frames know better.
    FutexLock,
    /// `pthread_mutex_lock` and relatives.
    Mutex,
    /// `pthread_rwlock_rdlock` and relatives.
    RwLock,
    /// `pthread_cond_wait` and relatives.
    Condvar,
    /// `sem_wait` and relatives.
    Semaphore,
    /// `pthread_barrier_wait`.
    Barrier,
    /// `pthread_join`.
    Join,
}

/// Begins to record waits, or ends with 0: see [`record::sampled`].
pub(crate) fn set_rate(rate_ns: u64) {
    RATE_NS.store(rate_ns, Ordering::Relaxed);
}

/// Whether waits are timed now.
#[inline(always)]
fn is_on() -> bool {
    RATE_NS.load(Ordering::Relaxed) != 0
}

/// Begins as configured; the linker takes this folder's symbols in because of this call.
pub(crate) fn start(rate_ns: u64) {
    syscall::keep();
    #[cfg(not(target_feature = "crt-static"))]
    pthread::keep();
    set_rate(rate_ns);
}
