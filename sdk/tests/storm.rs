//! Signals in the worst places: no hang, no crash, and every one accounted for.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{own_tid, start};
use pilotlight::Capture;

/// Sends one signal of ours to a thread of this process; false when the queue is full.
fn send(tid: i32) -> bool {
    common::send(tid, pilotlight::testing::signal_value())
}

fn allocate(round: u64) {
    let mut all: Vec<Vec<u64>> = Vec::new();
    for size in 1..60 {
        all.push(vec![round; size * 11]);
    }
    std::hint::black_box(&all);
}

/// Loads a library and lets it go: the loader's lock is held for most of this.
#[cfg(not(target_feature = "crt-static"))]
fn reload(name: &std::ffi::CStr) {
    // SAFETY: a library of the C compiler's runtime, whose constructors do nothing to us.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "dlopen {name:?}");
        libc::dlclose(library);
    }
}

/// A thread that signals `victims` one after the other until told to stop.
fn signal_all(victims: &[AtomicU64], stop: &AtomicBool, sent: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        for victim in victims {
            let tid = victim.load(Ordering::Relaxed) as i32;
            if tid != 0 && send(tid) {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Signals that a thread sends to itself after each piece of work: each is delivered at once, while
/// of those that others send many become one.
const OWN_SIGNALS: u64 = 50;

/// Runs `work` on two threads for ten seconds (or `PILOTLIGHT_STORM_SECONDS`), signalled as fast as
/// can be.
fn storm(work: impl Fn(u64) + Sync) {
    let seconds = std::env::var("PILOTLIGHT_STORM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seconds: u64 = seconds.unwrap_or(10);
    let _guard = start(1000);
    let capture = Capture::begin().unwrap();
    let stop = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let rounds = AtomicU64::new(0);
    let victims = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for victim in &victims {
            let (stop, rounds, work) = (&stop, &rounds, &work);
            scope.spawn(move || {
                victim.store(own_tid() as u64, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    work(rounds.fetch_add(1, Ordering::Relaxed));
                    for _ in 0..OWN_SIGNALS {
                        send(own_tid());
                    }
                }
                victim.store(0, Ordering::Relaxed);
            });
        }
        let (stop, sent, victims) = (&stop, &sent, &victims);
        scope.spawn(move || signal_all(victims, stop, sent));
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let profile = capture.finish();
    let stats = pilotlight::stats();
    println!(
        "{} sent, {} rounds, {stats:?}",
        sent.load(Ordering::Relaxed),
        rounds.load(Ordering::Relaxed)
    );
    assert!(
        rounds.load(Ordering::Relaxed) > 20,
        "the program itself got no further"
    );
    assert!(stats.delivered > 100_000, "{stats:?}");
    assert_eq!(stats.taken + stats.dropped(), stats.delivered);
    let pseudo = stats.between_ticks + stats.unseen + stats.blocked + stats.expiries_lost;
    // Until the timers are gone the end of the capture is sampled too, for no profile.
    let (shown, counted) = (profile.total(0) as u64, stats.expiries + pseudo);
    assert!(
        (shown..shown + 100).contains(&counted),
        "{shown} shown, {counted} counted, {stats:?}"
    );
}

#[test]
fn storm_over_malloc() {
    storm(allocate);
}

/// A program that holds its libc can open no library.
#[cfg(not(target_feature = "crt-static"))]
#[test]
fn storm_over_dlopen_and_dlclose() {
    // Several, so that the two threads seldom hold the same one and it is really unmapped.
    let names = [
        c"libanl.so.1",
        c"libBrokenLocale.so.1",
        c"libutil.so.1",
        c"libresolv.so.2",
    ];
    storm(|round| reload(names[round as usize % names.len()]));
    assert!(
        pilotlight::stats().snapshots > 20,
        "modules were not followed"
    );
}

#[test]
fn storm_over_thread_churn() {
    storm(|round| {
        std::thread::spawn(move || allocate(round)).join().unwrap();
    });
}

#[test]
fn storm_over_fork() {
    storm(|round| {
        // SAFETY: the child does nothing but allocate and leave.
        let child = unsafe { libc::fork() };
        if child == 0 {
            allocate(round);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        let waited = loop {
            // SAFETY: waits for the child just made.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            if waited >= 0
                || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
            {
                break waited;
            }
        };
        assert_eq!(waited, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
    });
}

#[test]
fn a_forked_child_is_told_to_start_anew_and_can() {
    let _guard = start(97);
    let capture = Capture::begin().unwrap();
    // SAFETY: the test has one other thread, the sampler's, whose locks fork looks after.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = Capture::begin().is_err();
        let again = pilotlight::Config::new("child").no_listener().start();
        let works = again.is_ok_and(|_guard| {
            let profile = common::profile_of(|| common::burn(200_000_000));
            profile.total(0) >= 10
        });
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(refused) + 2 * i32::from(works)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 3);
    common::burn(300_000_000);
    assert!(capture.finish().total(0) > 20);
}

#[test]
fn what_a_forked_child_inherits_can_be_dropped_and_the_parent_goes_on() {
    let guard = pilotlight::Config::new("parent").listen("127.0.0.1:0");
    let guard = guard.start().unwrap();
    let address = guard.address().unwrap();
    let capture = Capture::begin().unwrap();
    // SAFETY: the child drops what it inherited, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that waits for threads it does not have.
        unsafe { libc::alarm(5) };
        drop(capture);
        drop(guard);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
    common::burn(300_000_000);
    assert!(capture.finish().total(0) > 20);
    assert!(std::net::TcpStream::connect(address).is_ok());
    drop(guard);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn starting_and_stopping_500_times_leaves_nothing_behind() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..500 {
        let _guard = start(1000);
        let profile = common::profile_of(|| common::burn(2_000_000));
        assert!(profile.total(0) < 1000);
    }
    assert_eq!(threads(), before);
    let stats = pilotlight::stats();
    assert_eq!(stats.taken + stats.dropped(), stats.delivered);
}

#[test]
fn a_second_start_is_refused_and_the_first_goes_on() {
    let _guard = start(97);
    let second = pilotlight::Config::new("second").no_listener().start();
    assert!(matches!(second, Err(pilotlight::Error::AlreadyStarted)));
    assert!(common::profile_of(|| common::burn(300_000_000)).total(0) > 20);
}

static FOREIGN: AtomicU64 = AtomicU64::new(0);

extern "C" fn foreign_handler(_: libc::c_int) {
    FOREIGN.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn foreign_signals_go_to_the_handler_that_was_there() {
    // SAFETY: installs a handler that only counts.
    unsafe { libc::signal(libc::SIGPROF, foreign_handler as *const () as usize) };
    let _guard = start(97);
    for _ in 0..10 {
        // SAFETY: a signal to this thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 10);
    let stats = pilotlight::stats();
    assert_eq!((stats.forwarded, stats.delivered), (10, 0));
}

#[test]
fn errno_survives_the_handler() {
    let _guard = start(1000);
    let capture = Capture::begin().unwrap();
    for value in 1..100 {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = value };
        assert!(send(own_tid()));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, value);
    }
    assert!(capture.finish().total(0) >= 99);
}
