//! Waits of threads for each other, in programs that know nothing of pilotlight.

#![cfg(feature = "lock-hooks")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{Started, start_with};
use pilotlight::Config;

const ROUNDS: u32 = 12;
const HOLD: Duration = Duration::from_millis(30);

fn started(lock_rate_ns: u64) -> Started {
    start_with(Config::new("test").no_listener().lock_rate_ns(lock_rate_ns))
}

/// A C program's mutex.
struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made for it.
unsafe impl Sync for PthreadMutex {}

impl PthreadMutex {
    const fn new() -> PthreadMutex {
        PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&self) {
        // SAFETY: initialized, never moved while locked.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn unlock(&self) {
        // SAFETY: this thread holds it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// What a waiter saw around its calls.
fn measured(call: impl FnOnce()) -> u64 {
    let began = Instant::now();
    call();
    began.elapsed().as_nanos() as u64
}

/// Waits without waiting for a thread.
fn nap_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `take` is called by another thread `ROUNDS` times, each time while this one holds the lock;
/// returns how long it took there.
fn contended<Held>(hold: impl Fn() -> Held, take: impl Fn() + Sync) -> u64 {
    let (held, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut waited = 0;
            for round in 1..=ROUNDS {
                nap_until(|| held.load(SeqCst) == round);
                waited += measured(&take);
                taken.store(round, SeqCst);
            }
            waited
        });
        for round in 1..=ROUNDS {
            let guard = hold();
            held.store(round, SeqCst);
            std::thread::sleep(HOLD);
            drop(guard);
            nap_until(|| taken.load(SeqCst) == round);
        }
        nap_until(|| waiter.is_finished());
        waiter.join().unwrap()
    })
}

/// Waits and their nanoseconds while `work` runs.
fn counted<T>(work: impl FnOnce() -> T) -> (u64, u64, T) {
    let before = pilotlight::stats();
    let result = work();
    let after = pilotlight::stats();
    (
        after.waits - before.waits,
        after.waits_ns - before.waits_ns,
        result,
    )
}

fn assert_close(seen: u64, expected: u64) {
    let ratio = seen as f64 / expected as f64;
    println!("{seen} of {expected}: {ratio:.4}");
    assert!(
        (0.95..=1.01).contains(&ratio),
        "{seen} of {expected}: {ratio}"
    );
}

#[test]
fn waits_for_locks_of_std_parking_lot_and_pthreads_are_timed() {
    let _guard = started(1);
    let own = std::sync::Mutex::new(());
    let lot = parking_lot::Mutex::new(());
    let c = PthreadMutex::new();
    struct Held<'a>(&'a PthreadMutex);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.unlock();
        }
    }
    let hold_c = || {
        c.lock();
        Held(&c)
    };
    for (waits, seen, expected) in [
        counted(|| contended(|| own.lock().unwrap(), || drop(own.lock().unwrap()))),
        counted(|| contended(|| lot.lock(), || drop(lot.lock()))),
        counted(|| contended(hold_c, || drop(hold_c()))),
    ] {
        println!("{waits} waits");
        assert!(waits >= u64::from(ROUNDS));
        assert!(expected > u64::from(ROUNDS) * HOLD.as_nanos() as u64 / 2);
        assert_close(seen, expected);
    }
}
