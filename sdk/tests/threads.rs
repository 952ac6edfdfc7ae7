//! Stacks of all threads, and stacks that created threads.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{burn, start};
use pilotlight::Profile;
use pilotlight::http::{Body, Request, respond};

fn get(path: &str, query: &str) -> (u16, String) {
    let response = respond(&Request::get(&format!("/debug/pprof/{path}"), query));
    let Body::Full(bytes) = response.body else {
        panic!("{path} is no stream");
    };
    (response.status, String::from_utf8(bytes).unwrap())
}

fn count(profile: &Profile, name: &str) -> i64 {
    let rows = pilotlight_profile::top(profile, 0);
    let of_name = rows.iter().filter(|row| row.name.contains(name));
    of_name.map(|row| row.total_value).max().unwrap_or(0)
}

#[inline(never)]
fn waits_at_the_barrier(barrier: &Barrier) {
    std::hint::black_box(barrier.wait().is_leader());
}

#[inline(never)]
fn sleeps_long(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(300));
    }
}

#[inline(never)]
fn burns_long(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        burn(1_000_000);
    }
}

/// Three threads at a barrier, one asleep, one that runs.
fn with_threads(work: impl FnOnce()) {
    let (barrier, stop) = (Barrier::new(4), AtomicBool::new(false));
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.into());
        for at in 0..3 {
            let wait = || waits_at_the_barrier(&barrier);
            named(&format!("waiter-{at}"))
                .spawn_scoped(scope, wait)
                .unwrap();
        }
        named("sleeper")
            .spawn_scoped(scope, || sleeps_long(&stop))
            .unwrap();
        named("burner")
            .spawn_scoped(scope, || burns_long(&stop))
            .unwrap();
        thread::sleep(Duration::from_millis(100));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // Also after a failure: the scope waits for all of them.
        stop.store(true, Ordering::Relaxed);
        barrier.wait();
        if let Err(failure) = done {
            std::panic::resume_unwind(failure);
        }
    });
}

#[test]
fn each_thread_is_in_the_profile_where_it_stands() {
    let _guard = start(97);
    with_threads(|| {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as i64;
        // On a busy machine a thread that could run may not get a CPU while it is asked.
        let (tries, profile) = (1..=50)
            .map(|tries| (tries, pilotlight::take("threads", Duration::ZERO).unwrap()))
            .find(|(_, profile)| count(profile, "burns_long") == 1)
            .unwrap();
        assert_eq!(count(&profile, "waits_at_the_barrier"), 3);
        assert_eq!(count(&profile, "sleeps_long"), 1);
        assert_eq!(count(&profile, "burns_long"), 1);
        // The calling thread too.
        assert_eq!(count(&profile, "each_thread_is_in_the_profile"), 1);
        assert!((profile.total(0) - threads).abs() <= 1, "{threads} threads");
        let stats = pilotlight::stats();
        assert_eq!(stats.delivered, stats.taken + stats.dropped());
        assert!(
            stats.delivered <= 4 * tries,
            "one signal for each that runs"
        );
    });
}

#[test]
fn the_list_names_each_thread_and_what_it_waits_for() {
    let _guard = start(97);
    with_threads(|| {
        // As above: the burner may not get a CPU while it is asked.
        let (status, list) = (0..50)
            .map(|_| get("threads", "debug=2"))
            .find(|(_, list)| list.contains("burns_long(...)"))
            .unwrap();
        println!("{list}");
        assert_eq!(status, 200);
        let of = |name: &str| {
            let mut parts = list.split("\n\n");
            parts
                .find(|part| part.lines().next().unwrap_or("").contains(name))
                .unwrap()
        };
        assert!(of("waiter-1").contains("[futex, waiter-1]:\n"));
        assert!(of("waiter-1").contains("waits_at_the_barrier(...)\n\t"));
        assert!(of("sleeper").starts_with("thread "));
        assert!(of("sleeper").contains("[sleep, sleeper]:\n"));
        assert!(of("burner").contains("[running, burner]:\n"));
        assert!(of("burner").contains("burns_long(...)\n\t"));
        assert!(of("burner").contains("tests/threads.rs:"));

        let (status, list) = get("goroutine", "debug=2");
        assert_eq!(status, 200);
        assert!(list.starts_with("goroutine "));
        assert!(list.contains("sleeps_long"));
        let (status, list) = get("goroutine", "debug=1");
        assert_eq!(status, 200);
        assert!(list.starts_with("goroutine profile: total "), "{list}");
    });
}

#[inline(never)]
fn makes_threads() {
    for _ in 0..5 {
        thread::spawn(|| {}).join().unwrap();
    }
}

#[test]
fn threadcreate_counts_threads_by_the_stack_that_made_them() {
    let _guard = start(97);
    let (status, why) = get("threadcreate", "debug=1");
    assert_ne!(status, 200);
    assert!(
        why.contains("pilotlight::set_enabled(\"threadcreate\", true)"),
        "{why}"
    );
    pilotlight::set_enabled("threadcreate", true).unwrap();
    // The modules become known within a moment.
    for _ in 0..100 {
        makes_threads();
        thread::sleep(Duration::from_millis(20));
        let profile = pilotlight::take("threadcreate", Duration::ZERO).unwrap();
        if count(&profile, "makes_threads") > 0 {
            break;
        }
    }
    let before = pilotlight::take("threadcreate", Duration::ZERO).unwrap();
    makes_threads();
    let after = pilotlight::take("threadcreate", Duration::ZERO).unwrap();
    pilotlight::set_enabled("threadcreate", false).unwrap();
    let made = count(&after, "makes_threads") - count(&before, "makes_threads");
    assert_eq!(made, 5);
    let rows = pilotlight_profile::top(&after, 0);
    assert!(rows.iter().all(|row| !row.name.ends_with("pthread_create")));
}
