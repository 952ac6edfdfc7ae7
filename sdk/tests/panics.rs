//! A program that unwinds its own stack all the time must not be hurt by being profiled: with
//! libgcc's unwinder in the handler, it dies within a second.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::start;

#[inline(never)]
fn throw(depth: u32) -> u32 {
    if depth == 0 {
        resume_unwind(Box::new(7u32));
    }
    std::hint::black_box(throw(std::hint::black_box(depth - 1))) + 1
}

#[test]
fn panicking_threads_do_not_crash_the_sampler_for_a_minute_at_1000_hz() {
    let _guard = start(1000);
    let stop = AtomicBool::new(false);
    let caught = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (stop, caught) = (&stop, &caught);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let result = catch_unwind(AssertUnwindSafe(|| throw(5 + thread * 7)));
                    assert_eq!(*result.unwrap_err().downcast::<u32>().unwrap(), 7);
                    caught.fetch_add(1, Ordering::Relaxed);
                    // Taking a backtrace walks the stack by libgcc as well.
                    if caught.load(Ordering::Relaxed).is_multiple_of(50) {
                        let _ = std::hint::black_box(std::backtrace::Backtrace::force_capture());
                    }
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            let profile = pilotlight::capture(Duration::from_secs(5)).unwrap();
            assert!(profile.total(0) > 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = pilotlight::stats();
    println!("{} caught, {stats:?}", caught.load(Ordering::Relaxed));
    assert!(caught.load(Ordering::Relaxed) > 10_000);
    assert!(stats.taken > 2_000);
    assert_eq!(stats.taken + stats.dropped(), stats.delivered);
}
