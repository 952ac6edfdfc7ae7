//! Fork, exec, foreign handlers, small stacks, many starts, closed libraries: what a process does
//! around the sampler.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

#[path = "../common/mod.rs"]
mod common;
mod forks;
mod handlers;
// A program that holds its libc can open no library.
#[cfg(not(target_feature = "crt-static"))]
mod libraries;
mod stacks;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{burn, start};
use pilotlight::{Capture, Config};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn timers() -> usize {
    let text = std::fs::read_to_string("/proc/self/timers").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("ID:")).count()
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

#[test]
fn starting_and_stopping_10_000_times_leaks_nothing() {
    let round = |captures: bool| {
        let guard = Config::new("again").no_listener().start().unwrap();
        if captures {
            drop(Capture::begin().unwrap());
        }
        drop(guard);
    };
    (0..2000).for_each(|n| round(n % 100 == 0));
    let before = (threads(), descriptors(), timers(), resident_kib());
    (0..std::env::var("X").map_or(10_000, |x| x.parse().unwrap()))
        .for_each(|n| round(n % 500 == 0));
    let after = (threads(), descriptors(), timers(), resident_kib());
    assert_eq!((after.0, after.1, after.2), (before.0, before.1, before.2));
    println!("{} KiB before, {} after", before.3, after.3);
    // 10,000 engines of a few hundred bytes would be megabytes.
    assert!(after.3 < before.3 + 1024, "{} -> {} KiB", before.3, after.3);
}

#[test]
fn signals_that_arrive_after_the_stop_do_not_kill() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(100_000);
                }
            });
        }
        for _ in 0..200 {
            let guard = start(10_000);
            let capture = Capture::begin().unwrap();
            burn(500_000);
            drop((capture, guard));
            // SAFETY: a signal to this process, as from another one.
            unsafe { libc::kill(libc::getpid(), libc::SIGPROF) };
        }
        stop.store(true, Ordering::Relaxed);
    });
    // SAFETY: a signal to this thread.
    unsafe { libc::raise(libc::SIGPROF) };
}
