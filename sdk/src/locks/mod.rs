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
//! | `marks` | what a site knows beside its stack |
//! | `purpose` | lock, condition variable or park: told by names of frames, when somebody reads |
//! | `profile` | `mutex` and `block` |
//!
//! Code here runs before `main`, in signal handlers, in destructors of thread-locals and in forked
//! children: it never allocates, never locks, and leaves errno as libc would.

mod interpose;
mod marks;
#[cfg(not(target_feature = "crt-static"))]
mod next;
// A program that holds its libc has no second function of each name to go on to.
mod profile;
#[cfg(not(target_feature = "crt-static"))]
mod pthread;
mod purpose;
mod record;
mod syscall;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::engine;
pub(crate) use marks::{ignore_this_thread, named};
pub(crate) use profile::{Waits, profile};

/// Waits shorter than this are kept with a probability; 0 while nothing is recorded.
static RATE_NS: AtomicU64 = AtomicU64::new(0);

/// What a hook knows of a wait without looking at the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Futex,
        Kind::FutexLock,
        Kind::Mutex,
        Kind::RwLock,
        Kind::Condvar,
        Kind::Semaphore,
        Kind::Barrier,
        Kind::Join,
    ];

    /// The inverse of `as u8`.
    fn from_number(number: u8) -> Kind {
        let known = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
        known.unwrap_or(Kind::Futex)
    }
}

/// Cheap enough to stay on: of a thread that waits all the time, one wait in 100 us is walked.
const DEFAULT_RATE_NS: u64 = 100_000;

/// Who wants waits recorded; no lock, for a forked child's sake.
static LOCKS_WANTED: AtomicBool = AtomicBool::new(false);
static ALL_WANTED: AtomicBool = AtomicBool::new(false);
/// As configured; counts while one of the two is on.
static CONFIGURED_NS: AtomicU64 = AtomicU64::new(DEFAULT_RATE_NS);

/// Whether waits of this thread are timed now.
#[inline(always)]
fn is_on() -> bool {
    RATE_NS.load(Ordering::Relaxed) != 0 && !marks::is_ignored()
}

/// Begins as configured, 0 for not at all. The linker takes this folder's symbols in because of this
/// call.
pub(crate) fn start(rate_ns: u64) {
    syscall::keep();
    #[cfg(not(target_feature = "crt-static"))]
    pthread::keep();
    let configured = if rate_ns == 0 {
        DEFAULT_RATE_NS
    } else {
        rate_ns
    };
    CONFIGURED_NS.store(configured, Ordering::SeqCst);
    switch(&[Waits::Locks, Waits::All], rate_ns > 0);
}

/// Ends; a later start begins anew. Also what a forked child does.
pub(crate) fn stop() {
    switch(&[Waits::Locks, Waits::All], false);
}

/// Switches one profile.
pub(crate) fn set_enabled(waits: Waits, on: bool) {
    switch(&[waits], on);
}

pub(crate) fn is_enabled(waits: Waits) -> bool {
    wanted(waits).load(Ordering::SeqCst)
}

/// The rate in effect; 0 while nothing is recorded.
pub(crate) fn rate_ns() -> u64 {
    RATE_NS.load(Ordering::SeqCst)
}

fn wanted(waits: Waits) -> &'static AtomicBool {
    match waits {
        Waits::Locks => &LOCKS_WANTED,
        Waits::All => &ALL_WANTED,
    }
}

fn switch(which: &[Waits], on: bool) {
    for waits in which {
        wanted(*waits).store(on, Ordering::SeqCst);
    }
    let rate = || match is_enabled(Waits::Locks) || is_enabled(Waits::All) {
        true => CONFIGURED_NS.load(Ordering::SeqCst),
        false => 0,
    };
    // Again, if another thread switches meanwhile: the last one to look has seen everything.
    while rate_ns() != rate() {
        let (now, before) = (rate(), rate_ns());
        let swapped = RATE_NS.compare_exchange(before, now, Ordering::SeqCst, Ordering::SeqCst);
        if swapped.is_ok() && (before == 0) != (now == 0) {
            engine::keep_modules_current(now > 0);
        }
    }
}

/// Why waits are not seen, when the program's `syscall` is another one than ours.
pub(crate) fn replaced() -> Option<&'static str> {
    (!syscall::is_ours()).then_some("the program defines `syscall` itself, so waits are not seen")
}
