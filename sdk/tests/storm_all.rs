//! Everything at once: panics, backtraces, allocation, libraries, threads, forks and locks, while the
//! sampler starts and stops with all its types on at 1,000 Hz. No hang, no crash, every signal
//! accounted for. 30 seconds, or `PILOTLIGHT_STORM_SECONDS`.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{own_tid, send};
use pilotlight::{AfterFork, Capture, Config};

#[global_allocator]
static ALLOCATOR: pilotlight::Alloc<System> = pilotlight::Alloc::new(System);

static STOP: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn throw(depth: u32) -> u32 {
    if depth == 0 {
        resume_unwind(Box::new(7u32));
    }
    std::hint::black_box(throw(std::hint::black_box(depth - 1))) + 1
}

fn panic(round: u64) {
    let result = catch_unwind(AssertUnwindSafe(|| throw(3 + round as u32 % 40)));
    assert_eq!(*result.unwrap_err().downcast::<u32>().unwrap(), 7);
}

fn panic_and_look_back(round: u64) {
    panic(round);
    if round.is_multiple_of(20) {
        let _ = std::hint::black_box(std::backtrace::Backtrace::force_capture());
    }
}

fn allocate(round: u64) {
    let all: Vec<Vec<u64>> = (1..200).map(|size| vec![round; size * 37]).collect();
    std::hint::black_box(&all);
}

/// A program that holds its libc can open no library.
#[cfg(target_feature = "crt-static")]
fn open_and_close(_: u64) {}

#[cfg(not(target_feature = "crt-static"))]
fn open_and_close(round: u64) {
    let names = [c"libanl.so.1", c"libutil.so.1", c"libresolv.so.2"];
    // SAFETY: libraries of libc, whose constructors do nothing to us.
    unsafe {
        let name = names[round as usize % names.len()].as_ptr();
        let library = libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        libc::dlclose(library);
    }
}

fn start_threads(round: u64) {
    let threads: Vec<_> = (0..4)
        .map(|n| std::thread::spawn(move || allocate(round + n)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn fork(round: u64) {
    // SAFETY: the child leaves without the parent's exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // No backtrace: std's lock for those may be one that the child inherited taken.
        panic(round);
        allocate(round);
        // SAFETY: as above.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    assert!(libc::WIFEXITED(status), "child: status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
}

static CONTENDED: Mutex<u64> = Mutex::new(0);

fn contend(_: u64) {
    let mut count = CONTENDED.lock().unwrap();
    std::thread::sleep(Duration::from_micros(200));
    *count += 1;
}

/// A name, and what a thread does again and again.
type Work = (&'static str, fn(u64));

/// What each thread does, and how often it did.
const WORK: [Work; 7] = [
    ("panics", panic_and_look_back),
    ("allocations", allocate),
    ("libraries", open_and_close),
    ("threads", start_threads),
    ("forks", fork),
    ("locks", contend),
    ("more locks", contend),
];
static ROUNDS: [AtomicU64; WORK.len()] = [const { AtomicU64::new(0) }; WORK.len()];

fn work(at: usize) {
    let (own, value) = (own_tid(), pilotlight::testing::signal_value());
    while !STOP.load(Ordering::Relaxed) {
        WORK[at].1(ROUNDS[at].fetch_add(1, Ordering::Relaxed));
        for _ in 0..5 {
            send(own, value);
        }
    }
}

/// Starts, switches every type on, takes every type that there is, and stops.
fn cycle(number: u64) {
    let config = Config::new("storm").no_listener().frequency_hz(1000);
    let choice = [AfterFork::Off, AfterFork::Restart][number as usize % 2];
    let guard = config.lock_rate_ns(1).after_fork(choice).start().unwrap();
    let names = [
        "heap", "allocs", "mutex", "block", "threads", "await", "tasks",
    ];
    for name in names {
        // Some are always on, and some need what this program has not.
        let _ = pilotlight::set_enabled(name, true);
    }
    let cpu = Capture::begin().unwrap();
    let wall = Capture::begin_wall().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    for name in names {
        if let Ok(profile) = pilotlight::take(name, Duration::ZERO) {
            std::hint::black_box(profile);
        }
    }
    let cpu = cpu.finish();
    assert!(cpu.total(0) > 0, "nobody sampled in cycle {number}");
    match number % 3 {
        0 => drop(wall),
        // Ends after the sampler that it belongs to.
        1 => std::mem::forget(std::thread::spawn(move || wall.finish())),
        _ => assert!(wall.finish().total(0) > 0),
    }
    for name in names {
        let _ = pilotlight::set_enabled(name, number.is_multiple_of(2));
    }
    drop(guard);
}

#[test]
fn everything_at_once_neither_hangs_nor_crashes_nor_loses_a_signal() {
    let seconds = std::env::var("PILOTLIGHT_STORM_SECONDS");
    let seconds = seconds
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let until = Instant::now() + Duration::from_secs(seconds);
    // The first start installs the handler for good: before anybody sends signals.
    drop(Config::new("storm").no_listener().start().unwrap());
    let mut cycles = 0;
    std::thread::scope(|scope| {
        for at in 0..WORK.len() {
            scope.spawn(move || work(at));
        }
        // On a busy machine a cycle may take as long as all should.
        while Instant::now() < until || cycles < 3 {
            cycle(cycles);
            cycles += 1;
        }
        STOP.store(true, Ordering::Relaxed);
    });
    let stats = pilotlight::stats();
    println!("{cycles} cycles, {stats:?}");
    for ((name, _), rounds) in WORK.iter().zip(&ROUNDS) {
        let rounds = rounds.load(Ordering::Relaxed);
        println!("{name}: {rounds} rounds");
        assert!(rounds > 5, "{name}: {rounds} rounds");
    }
    assert!(stats.delivered > 100 * seconds, "{stats:?}");
    assert_eq!(stats.taken + stats.dropped(), stats.delivered, "{stats:?}");
    assert_eq!(stats.snapshots_leaked, 0, "{stats:?}");
}
