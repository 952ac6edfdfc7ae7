//! What other systems are sampled by, on Linux: `ITIMER_PROF` and the crate `backtrace`.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::time::Duration;

use common::{burn, expiries, process_cpu_ns, profile_of, start};
use pilotlight::{Alloc, Config, State};

#[global_allocator]
static ALLOCATOR: Alloc = Alloc::system();

#[inline(never)]
fn long_work() {
    burn(600_000_000);
    std::hint::black_box(());
}

#[inline(never)]
fn short_work() {
    burn(200_000_000);
    std::hint::black_box(());
}

/// Both, from a thread that ends.
#[inline(never)]
fn both() {
    long_work();
    short_work();
    std::hint::black_box(());
}

#[test]
fn stacks_are_real_and_cpu_time_adds_up() {
    let _guard = start(250);
    let before = process_cpu_ns();
    let profile = profile_of(|| std::thread::scope(|scope| drop(scope.spawn(both).join())));
    let used_ns = process_cpu_ns() - before;
    let [long, short, both] = [
        "fallback::long_work",
        "fallback::short_work",
        "fallback::both",
    ]
    .map(|name| {
        let seen = expiries(&profile, name);
        println!("{name}: {seen}");
        seen as f64
    });
    let total = profile.total(0) as f64;
    // Up to the root, through the caller.
    assert!(both >= long + short, "{both} {long} {short}");
    assert!(both > 0.9 * total, "{both} of {total}");
    let share = long / (long + short);
    assert!((share - 0.75).abs() < 0.12, "{share}");
    let sum = profile.total(1) as f64 / used_ns as f64;
    assert!((0.9..=1.03).contains(&sum), "{sum}");
    // The interrupted instruction is the leaf, not the handler or the unwinder.
    for name in ["on_sigprof", "trace_unsynchronized", "_Unwind_Backtrace"] {
        assert_eq!(expiries(&profile, name), 0, "{name}");
    }
    // Lines, by the crate's own means.
    let lined = profile.functions.iter().filter(|function| {
        profile
            .strings
            .text(function.filename)
            .ends_with("tests/fallback.rs")
    });
    assert!(lined.count() > 0);
    let stats = pilotlight::stats();
    // On a busy machine few come, and weigh more.
    assert!(stats.by_process_timer > 5, "{stats:?}");
    assert_eq!((stats.by_perf, stats.by_timer), (0, 0));
    assert_eq!(stats.taken + stats.dropped(), stats.delivered, "{stats:?}");
}

#[inline(never)]
fn allocate_here(count: usize) -> Vec<Box<[u8; 100]>> {
    (0..count).map(|_| Box::new([7; 100])).collect()
}

#[test]
fn allocations_have_the_stack_that_made_them() {
    let config = Config::new("test").no_listener();
    let _guard = common::start_with(config.heap_interval_bytes(1));
    let kept = allocate_here(1000);
    let heap = pilotlight::take("heap", Duration::ZERO).unwrap();
    let rows = pilotlight_profile::top(&heap, 2);
    let row = rows.iter().find(|row| row.name.contains("allocate_here"));
    // The vector's own block may be allocated by a tail call.
    let objects = row.map_or(0, |row| row.total_value);
    assert!((1000..=1001).contains(&objects), "{objects}");
    drop(kept);
}

#[test]
fn what_cannot_be_had_says_so() {
    let _guard = start(97);
    for ty in pilotlight::profile_types() {
        let is_of_threads = ["wall", "offcpu", "threads", "goroutine"].contains(&ty.name);
        match ty.state {
            State::Off { why, .. } if is_of_threads => assert!(why.contains("Linux"), "{why}"),
            State::On => assert!(!is_of_threads, "{}", ty.name),
            _ => {}
        }
    }
    assert!(pilotlight::take("wall", Duration::from_millis(50)).is_err());
    assert!(pilotlight::take("threads", Duration::ZERO).is_err());
}
