//! Each engine accounts for the CPU time that was used, whatever threads do; and keeps to its share of
//! the system's limits.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::sync::Barrier;
use std::time::Duration;

use common::{burn, expiries, process_cpu_ns, profile_of, start_with, thread_cpu_ns};
use pilotlight::{Capture, Config, Engine, Profile, stats};

fn start(engine: Engine, frequency_hz: u32) -> common::Started {
    let config = Config::new("test").no_listener();
    // A budget would take perf events away from threads that come and go often.
    let config = config.engine(engine).budget_cpu_percent(100.0);
    start_with(config.frequency_hz(frequency_hz))
}

/// Perf events may be refused here; tests of them then have nothing to say.
fn perf_is_refused() -> bool {
    let guard = start(Engine::Perf, 1000);
    drop(profile_of(|| burn(50_000_000)));
    drop(guard);
    let refused = stats().by_perf == 0;
    if refused {
        println!("SKIP: perf events with time in the kernel are not permitted here");
    }
    refused
}

/// Captures `work`; the profile and the expiries that the process's own clock expects.
fn expected(frequency_hz: u32, work: impl FnOnce()) -> (Profile, f64) {
    let mut used_ns = 0;
    let profile = profile_of(|| {
        let before = process_cpu_ns();
        work();
        used_ns = process_cpu_ns() - before;
    });
    let expected = used_ns as f64 / 1e9 * f64::from(frequency_hz);
    let stats = stats();
    println!("{} of {expected:.1}; {stats:?}", profile.total(0));
    assert_eq!(stats.taken + stats.dropped(), stats.delivered);
    (profile, expected)
}

/// The sum is within 1 % and three standard errors of `threads` random phases.
fn accounts_for_all(frequency_hz: u32, threads: usize, work: impl FnOnce()) -> Profile {
    let (profile, expected) = expected(frequency_hz, work);
    let slack = 0.01 * expected + 3.0 * (threads as f64 / 12.0).sqrt() + 3.0;
    let seen = profile.total(0) as f64;
    assert!(
        (seen - expected).abs() <= slack,
        "{seen}, {expected:.1} ± {slack:.1} expected"
    );
    profile
}

fn on_threads(count: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(&work);
        }
    });
}

/// 30 µs of work, then half a millisecond of sleep, 2,000 times.
fn bursts() {
    for _ in 0..2000 {
        burn(30_000);
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn bursts_at_97_hz() {
    let _guard = start(Engine::Auto, 97);
    accounts_for_all(97, 4, || on_threads(4, bursts));
    assert_eq!(stats().by_perf, 0, "timers do at that rate");
}

#[test]
fn bursts_at_1000_hz_by_timers() {
    let _guard = start(Engine::Timer, 1000);
    accounts_for_all(1000, 4, || on_threads(4, bursts));
    assert_eq!(stats().by_perf, 0);
}

#[test]
fn bursts_at_1000_hz_by_perf() {
    if perf_is_refused() {
        return;
    }
    let _guard = start(Engine::Perf, 1000);
    let profile = accounts_for_all(1000, 4, || on_threads(4, bursts));
    // With stacks, that is, and not under a reason.
    let shown = expiries(&profile, "bursts");
    let all = profile.total(0);
    assert!(shown * 10 > all * 8, "{shown} of {all}");
}

#[test]
fn above_the_tick_perf_takes_as_many_stacks_as_were_asked_for() {
    if perf_is_refused() {
        return;
    }
    let _guard = start(Engine::Auto, 1000);
    let before = stats();
    let profile = accounts_for_all(1000, 2, || on_threads(2, || burn(1_000_000_000)));
    let after = stats();
    let taken = (after.cpu_samples - before.cpu_samples) as f64;
    let sampled_s = (after.sampled_cpu_ns - before.sampled_cpu_ns) as f64 / 1e9;
    let achieved = taken / sampled_s;
    assert!((900.0..=1010.0).contains(&achieved), "{achieved} Hz");
    let comment = comment_of(&profile);
    let said: f64 = comment
        .split_once("the budget, ")
        .and_then(|(_, rest)| rest.split_once(" Hz achieved"))
        .map(|(number, _)| number.parse().unwrap())
        .unwrap();
    assert!((said - achieved).abs() < 20.0, "{comment}");
    assert!(comment.contains("pilotlight: 1000 Hz asked"), "{comment}");
}

#[test]
fn threads_of_a_millisecond_by_perf_leave_no_descriptor() {
    if perf_is_refused() {
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let _guard = start(Engine::Perf, 1000);
    let before = descriptors();
    let (profile, expected) = expected(1000, || {
        for _ in 0..1000 {
            std::thread::spawn(|| burn(1_000_000)).join().unwrap();
        }
    });
    let (seen, slack) = (
        profile.total(0) as f64,
        0.01 * expected + 3.0 * expected.sqrt(),
    );
    assert!(
        (seen - expected).abs() <= slack,
        "{seen} of {expected:.1} ± {slack:.1}"
    );
    // The background thread ends what the last capture needed when it gets to it.
    for _ in 0..500 {
        if descriptors() == before {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn time_in_the_kernel_is_sampled() {
    for engine in [Engine::Perf, Engine::Timer, Engine::ProcessTimer] {
        let _guard = start(engine, 997);
        let profile = accounts_for_all(997, 1, || {
            let mut zeros = std::fs::File::open("/dev/zero").unwrap();
            let mut buffer = vec![0u8; 1 << 16];
            let until = thread_cpu_ns() + 500_000_000;
            while thread_cpu_ns() < until {
                std::io::Read::read_exact(&mut zeros, &mut buffer).unwrap();
            }
        });
        let (read, all) = (expiries(&profile, "read"), profile.total(0));
        assert!(read * 10 > all * 7, "{engine:?}: {read} of {all}");
    }
}

#[test]
fn the_process_timer_accounts_for_all_threads_above_the_tick_too() {
    let _guard = start(Engine::ProcessTimer, 1000);
    accounts_for_all(1000, 1, || on_threads(8, || burn(200_000_000)));
    let stats = stats();
    assert_eq!((stats.by_perf, stats.by_timer), (0, 0));
    assert!(stats.by_process_timer > 100, "{stats:?}");
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn set_limit(resource: Resource, soft: u64) {
    // SAFETY: limits are plain data.
    unsafe {
        let mut limit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(resource, &limit), 0);
    }
}

#[test]
fn where_no_thread_may_have_a_timer_the_process_has_one() {
    let _guard = start(Engine::Auto, 97);
    set_limit(libc::RLIMIT_SIGPENDING, 0);
    accounts_for_all(97, 1, || on_threads(4, || burn(300_000_000)));
    let stats = stats();
    // Fewer than expiries where the machine is busy: one signal then stands for several.
    assert!(stats.by_process_timer > 10, "{stats:?}");
    assert_eq!((stats.by_perf, stats.by_timer), (0, 0));
    assert_eq!((stats.timers_refused, stats.unseen), (0, 0));
}

#[test]
fn a_timer_that_the_program_uses_itself_is_left_alone() {
    let of_program = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 5000,
            tv_usec: 0,
        },
    };
    // SAFETY: the kernel reads the value.
    let set = unsafe { libc::setitimer(libc::ITIMER_PROF, &of_program, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let _guard = start(Engine::ProcessTimer, 97);
    accounts_for_all(97, 1, || burn(500_000_000));
    assert!(stats().by_timer > 0);
    // SAFETY: the kernel writes the value.
    let left = unsafe {
        let mut left = std::mem::zeroed();
        libc::getitimer(libc::ITIMER_PROF, &mut left);
        left
    };
    assert!(left.it_value.tv_sec > 4000, "{}", left.it_value.tv_sec);
}

#[test]
fn when_descriptors_run_out_the_other_threads_have_timers() {
    if perf_is_refused() {
        return;
    }
    set_limit(libc::RLIMIT_NOFILE, 100);
    let _guard = start(Engine::Perf, 1000);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, together) = (descriptors(), Barrier::new(31));
    let stats_before = stats();
    accounts_for_all(1000, 30, || {
        std::thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| {
                    together.wait();
                    burn(40_000_000);
                });
            }
            together.wait();
            assert_eq!(descriptors(), before + 10, "a tenth of the limit");
        });
    });
    let after = stats();
    assert!(after.by_perf > stats_before.by_perf);
    assert!(after.by_timer > stats_before.by_timer);
    assert_eq!(after.timers_refused, 0);
}

#[inline(never)]
fn first_half() {
    burn(std::hint::black_box(5_000_000));
}

#[inline(never)]
fn second_half() {
    burn(std::hint::black_box(5_000_001));
}

#[test]
fn work_that_repeats_at_the_rate_of_the_samples_shows_its_true_shares() {
    for engine in [Engine::Timer, Engine::Perf] {
        let _guard = start(engine, 100);
        let profile = profile_of(|| {
            for _ in 0..300 {
                first_half();
                second_half();
            }
        });
        let (first, second) = (
            expiries(&profile, "first_half") as f64,
            expiries(&profile, "second_half") as f64,
        );
        // Twelve phases, each of a quarter of a second: a standard error of 0.1 at the very most.
        let share = first / (first + second);
        assert!((0.25..0.75).contains(&share), "{engine:?}: {share}");
    }
}

#[test]
fn a_forked_child_keeps_no_descriptor_and_the_parent_goes_on() {
    if perf_is_refused() {
        return;
    }
    let _guard = start(Engine::Perf, 1000);
    let events = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let leads_to_event = |entry: std::io::Result<std::fs::DirEntry>| {
            let to = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
            to.to_string_lossy().contains("perf_event")
        };
        all.filter_map(|entry| leads_to_event(entry).then_some(()))
            .count()
    };
    let capture = Capture::begin().unwrap();
    assert!(events() > 0);
    // SAFETY: the child looks at its descriptors, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let left = events();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(left as i32) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 0);
    burn(300_000_000);
    let seen = capture.finish().total(0);
    assert!(seen > 270, "{seen}");
}

fn comment_of(profile: &Profile) -> String {
    String::from_utf8_lossy(profile.strings.get(profile.comments[0])).into_owned()
}
