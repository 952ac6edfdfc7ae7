//! What the profile accounts for is what the kernel charged, at any rate and with any threads.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use common::{burn, process_cpu_ns, profile_of, start};

/// Runs `work` and compares the profile's CPU time with the process's own clock: within 1 % and
/// three standard errors, since each thread's first expiry is random.
fn accounts_for_all(frequency_hz: u32, threads: usize, work: impl FnOnce()) {
    let _guard = start(frequency_hz);
    let mut used_ns = 0;
    let profile = profile_of(|| {
        let before = process_cpu_ns();
        work();
        used_ns = process_cpu_ns() - before;
    });
    let expected = used_ns as f64 / 1e9 * f64::from(frequency_hz);
    let seen = profile.total(0) as f64;
    println!(
        "{frequency_hz} Hz: {seen} expiries of {expected:.1}; {:?}",
        pilotlight::stats()
    );
    // Half a sample of phase for each thread, as a variance of 1/12 each.
    let slack = 0.01 * expected + 3.0 * (threads as f64 / 12.0).sqrt() + 3.0;
    assert!(
        (seen - expected).abs() <= slack,
        "{seen} expiries, {expected:.1} ± {slack:.1} expected"
    );
    assert_eq!(
        profile.total(1),
        profile.total(0) * i64::from(1_000_000_000 / frequency_hz)
    );
}

fn long_threads(frequency_hz: u32, threads: usize, total_ns: u64) {
    accounts_for_all(frequency_hz, threads, || {
        let each = total_ns / threads as u64;
        let running: Vec<_> = (0..threads)
            .map(|_| std::thread::spawn(move || burn(each)))
            .collect();
        for thread in running {
            thread.join().unwrap();
        }
    });
}

#[test]
fn one_thread_at_19_hz() {
    long_threads(19, 1, 4_000_000_000);
}

#[test]
fn one_thread_at_97_hz() {
    long_threads(97, 1, 3_000_000_000);
}

#[test]
fn one_thread_at_250_hz() {
    long_threads(250, 1, 3_000_000_000);
}

#[test]
fn one_thread_at_1000_hz() {
    long_threads(1000, 1, 3_000_000_000);
}

#[test]
fn eight_threads_at_19_hz() {
    long_threads(19, 8, 8_000_000_000);
}

#[test]
fn eight_threads_at_97_hz() {
    long_threads(97, 8, 5_000_000_000);
}

#[test]
fn eight_threads_at_250_hz() {
    long_threads(250, 8, 5_000_000_000);
}

#[test]
fn eight_threads_at_1000_hz() {
    long_threads(1000, 8, 5_000_000_000);
}

/// Threads of a millisecond: most end before any tick could deliver their timer.
fn short_threads(frequency_hz: u32) {
    let count = 3000;
    // The number of expiries of a thread is 0 or 1: a binomial, not a phase.
    let _guard = start(frequency_hz);
    let mut used_ns = 0;
    let profile = profile_of(|| {
        let before = process_cpu_ns();
        for _ in 0..count {
            std::thread::spawn(|| burn(1_000_000)).join().unwrap();
        }
        used_ns = process_cpu_ns() - before;
    });
    let expected = used_ns as f64 / 1e9 * f64::from(frequency_hz);
    let seen = profile.total(0) as f64;
    println!(
        "{frequency_hz} Hz: {seen} expiries of {expected:.1}; {:?}",
        pilotlight::stats()
    );
    let slack = 0.01 * expected + 3.0 * expected.sqrt();
    assert!(
        (seen - expected).abs() <= slack,
        "{seen} expiries, {expected:.1} ± {slack:.1} expected"
    );
}

#[test]
fn threads_of_a_millisecond_at_97_hz() {
    short_threads(97);
}

#[test]
fn threads_of_a_millisecond_at_1000_hz() {
    short_threads(1000);
}
