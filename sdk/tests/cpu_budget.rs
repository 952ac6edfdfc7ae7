//! What sampling may take of the process's CPU time and memory is held.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::time::Duration;

use common::{burn, expiries, process_cpu_ns, profile_of, start_with};
use pilotlight::{Capture, Config, stats};

#[test]
fn a_small_budget_lowers_the_rate_and_not_the_sum() {
    let config = Config::new("test").no_listener().frequency_hz(10_000);
    let _guard = start_with(config.budget_cpu_percent(0.5));
    let mut used_ns = 0;
    let profile = profile_of(|| {
        let before = process_cpu_ns();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| burn(250_000_000));
            }
        });
        used_ns = process_cpu_ns() - before;
    });
    let (seen, expected) = (profile.total(0) as f64, used_ns as f64 / 1e9 * 10_000.0);
    assert!(
        (seen / expected - 1.0).abs() < 0.015,
        "{seen} of {expected}"
    );
    let comment = String::from_utf8_lossy(profile.strings.get(profile.comments[0])).into_owned();
    let stats = stats();
    let achieved = stats.cpu_samples as f64 * 1e9 / stats.sampled_cpu_ns as f64;
    println!("{comment}");
    // A signal costs 2 µs at the very least.
    assert!(
        achieved < 2500.0 && stats.held_hz < 2500,
        "{achieved} {stats:?}"
    );
    assert!(
        achieved > 10.0 && stats.held_hz > 10,
        "{achieved} {stats:?}"
    );
    let held = format!("10000 Hz asked, {} Hz within the budget", stats.held_hz);
    assert!(comment.contains(&held), "{comment}");
}

/// Returns under a stack of its own for each value of the lowest bits of `path`.
#[inline(never)]
fn at_path<const SIDE: u32>(path: u32, bits: u32, leaf: &dyn Fn()) -> u32 {
    if bits == 0 {
        leaf();
        return 1;
    }
    // Used after the call, so that it is no tail call.
    let below = match path & 1 {
        0 => at_path::<0>(path >> 1, bits - 1, leaf),
        _ => at_path::<1>(path >> 1, bits - 1, leaf),
    };
    std::hint::black_box(below) * 31 + std::hint::black_box(SIDE)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn a_hundred_thousand_stacks_stay_within_eight_megabytes() {
    const STACKS: u32 = 100_000;
    let send = |own: i32| {
        let mut info = [0u64; 16];
        info[0] = libc::SIGPROF as u64;
        info[1] = u64::from(libc::SI_QUEUE as u32);
        info[3] = pilotlight::testing::signal_value();
        let (call, pid) = (libc::SYS_rt_tgsigqueueinfo, std::process::id());
        // SAFETY: `info` has the size and layout of siginfo_t on 64-bit Linux.
        unsafe { libc::syscall(call, pid, own, libc::SIGPROF, info.as_ptr()) };
    };
    // SAFETY: no arguments, cannot fail.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let before_kib = resident_kib();
    let _guard = common::start(1);
    let capture = Capture::begin().unwrap();
    for path in 0..STACKS {
        at_path::<0>(path, 17, &|| send(own));
        if path % 2000 == 0 {
            // The ring holds more than this; it is read every 50 ms.
            let taken = stats().taken;
            std::thread::sleep(Duration::from_millis(60));
            assert!(stats().taken >= taken);
        }
    }
    std::thread::sleep(Duration::from_millis(120));
    let grown_kib = resident_kib() - before_kib;
    let profile = capture.finish();
    let stats = stats();
    println!(
        "{grown_kib} KiB, {} stacks, {stats:?}",
        profile.samples.stack.len()
    );
    assert!(grown_kib <= 8_000_000 / 1024, "{grown_kib} KiB");
    assert!(stats.over_budget > 0, "{stats:?}");
    let over = expiries(&profile, "[over the memory budget]") as u64;
    assert_eq!(over, stats.over_budget);
    assert!(
        profile.total(0) >= i64::from(STACKS) * 99 / 100,
        "{stats:?}"
    );
    assert!(profile.samples.stack.len() > 15_000);
}
