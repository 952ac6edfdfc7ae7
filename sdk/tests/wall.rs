//! Wall-clock and off-CPU time: shares, totals, and what a program sees of being looked at.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{burn, start, start_with};
use pilotlight::{Capture, Config, Profile};

/// Nanoseconds (column 1) of stacks that hold a function whose name contains `name`.
fn nanoseconds(profile: &Profile, name: &str) -> f64 {
    let rows = pilotlight_profile::top(profile, 1);
    let of_name = rows.iter().filter(|row| row.name.contains(name));
    of_name.map(|row| row.total_value).max().unwrap_or(0) as f64
}

fn wall_of(work: impl FnOnce()) -> Profile {
    let capture = Capture::begin_wall().unwrap();
    work();
    capture.finish()
}

fn print(profile: &Profile) {
    for row in pilotlight_profile::top(profile, 1).iter().take(25) {
        println!(
            "{:>14} {:>14} {}",
            row.self_value, row.total_value, row.name
        );
    }
    println!("{:?}", pilotlight::stats());
}

#[inline(never)]
fn waits_for_a_message(receiver: &mpsc::Receiver<()>) {
    std::hint::black_box(receiver.recv().is_err());
}

#[inline(never)]
fn sleeps(time: Duration) {
    thread::sleep(time);
    std::hint::black_box(());
}

#[inline(never)]
fn burns(ns: u64) {
    burn(ns);
    std::hint::black_box(());
}

#[test]
fn time_of_threads_adds_up_and_waiting_ones_show_where_they_wait() {
    let _guard = start(97);
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || waits_for_a_message(&receiver));
    thread::sleep(Duration::from_millis(50));
    let began = Instant::now();
    let profile = wall_of(|| sleeps(Duration::from_millis(1500)));
    let elapsed = began.elapsed().as_nanos() as f64;
    drop(sender);
    waiting.join().unwrap();
    print(&profile);
    for name in ["waits_for_a_message", "wall::sleeps"] {
        let share = nanoseconds(&profile, name) / 1.5e9;
        assert!((0.97..1.10).contains(&share), "{name}: {share}");
    }
    // Main, test, waiting, pilotlight's own; not the sampler.
    let threads = profile.total(1) as f64 / elapsed;
    assert!((3.8..4.2).contains(&threads), "{threads}");
    assert_eq!(profile.strings.text(profile.sample_types[1].ty), "wall");
    let stats = pilotlight::stats();
    assert_eq!(stats.wall_woken, 0, "{stats:?}");
    assert_eq!(stats.wall_partial, 0, "{stats:?}");
}

#[test]
fn off_cpu_is_what_threads_wait_and_not_what_they_run() {
    let _guard = start(97);
    let capture = Capture::begin_off_cpu().unwrap();
    thread::spawn(|| {
        for _ in 0..20 {
            burns(20_000_000);
            sleeps(Duration::from_millis(30));
        }
    })
    .join()
    .unwrap();
    let profile = capture.finish();
    print(&profile);
    let slept = nanoseconds(&profile, "wall::sleeps") / 0.6e9;
    assert!((0.85..1.25).contains(&slept), "{slept}");
    let burned = nanoseconds(&profile, "wall::burns");
    assert!(burned < 0.05e9, "{burned}");
}

/// Threads that wait until the sender is dropped.
fn idle_threads(count: usize) -> (mpsc::Sender<()>, Vec<thread::JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let ready = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..count {
        let (receiver, ready) = (Arc::clone(&receiver), Arc::clone(&ready));
        let run = move || {
            ready.fetch_add(1, Ordering::Relaxed);
            idles(&receiver);
        };
        let small = thread::Builder::new().stack_size(64 << 10);
        threads.push(small.spawn(run).unwrap());
    }
    while ready.load(Ordering::Relaxed) < count as u64 {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(200));
    (sender, threads)
}

#[inline(never)]
fn idles(receiver: &std::sync::Mutex<mpsc::Receiver<()>>) {
    if let Ok(receiver) = receiver.lock() {
        std::hint::black_box(receiver.recv().is_err());
    }
}

/// CPU time of the thread that is named so, nanoseconds.
fn cpu_of_thread(name: &str) -> u64 {
    let of_thread = |folder: std::path::PathBuf| {
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        (comm.trim_end() == name).then_some(())?;
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .flatten()
        .filter_map(|entry| of_thread(entry.path()))
        .sum()
}

#[test]
fn cpu_of_the_sampler_among_a_thousand_idle_threads_stays_under_one_percent() {
    let _guard = start_with(Config::new("test").no_listener().wall_frequency_hz(100));
    let (sender, idle) = idle_threads(1000);
    let stop = AtomicBool::new(false);
    let length = Duration::from_secs(4);
    let mut used_ns = 0;
    let profile = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burns(1_000_000);
                }
            });
        }
        let profile = wall_of(|| {
            let before = cpu_of_thread("pilotlight-wall");
            thread::sleep(length);
            used_ns = cpu_of_thread("pilotlight-wall") - before;
        });
        stop.store(true, Ordering::Relaxed);
        profile
    });
    drop(sender);
    for thread in idle {
        thread.join().unwrap();
    }
    print(&profile);
    let share = used_ns as f64 / length.as_nanos() as f64;
    println!("sampler: {:.3} % of a CPU", share * 100.0);
    assert!(used_ns > 0 && share <= 0.01, "{share}");
    let idle = nanoseconds(&profile, "wall::idles");
    let busy = nanoseconds(&profile, "wall::burns");
    println!("idle {idle} busy {busy}");
    let each = length.as_nanos() as f64;
    assert!(
        (0.97..1.1).contains(&(idle / each / 1000.0)),
        "{}",
        idle / each
    );
    assert!((0.9..1.1).contains(&(busy / each / 4.0)), "{}", busy / each);
}

#[test]
fn calls_that_wait_are_not_ended_early() {
    let _guard = start_with(Config::new("test").no_listener().wall_frequency_hz(500));
    let interrupted = Arc::new(AtomicU64::new(0));
    let calls = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for kind in 0..4 {
        let (interrupted, calls, stop) = (
            Arc::clone(&interrupted),
            Arc::clone(&calls),
            Arc::clone(&stop),
        );
        threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                calls.fetch_add(1, Ordering::Relaxed);
                if !waits(kind) {
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let profile = wall_of(|| thread::sleep(Duration::from_secs(3)));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    print(&profile);
    let calls = calls.load(Ordering::Relaxed);
    println!("{calls} calls");
    assert!(calls > 500);
    assert_eq!(interrupted.load(Ordering::Relaxed), 0, "EINTR");
    assert!(nanoseconds(&profile, "wall::waits") > 10e9);
}

/// A call that no `SA_RESTART` restarts; false when something interrupted it.
#[inline(never)]
fn waits(kind: u32) -> bool {
    let millis = 1 + kind as libc::c_int % 2 * 3;
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::c_long::from(millis) * 1_000_000,
    };
    // SAFETY: plain data that lives; the descriptors are closed again.
    let result = unsafe {
        match kind {
            0 => libc::nanosleep(&time, std::ptr::null_mut()),
            1 => {
                let epoll = libc::epoll_create1(0);
                let mut event = std::mem::zeroed();
                let result = libc::epoll_wait(epoll, &mut event, 1, millis);
                libc::close(epoll);
                result
            }
            2 => libc::poll(std::ptr::null_mut(), 0, millis),
            _ => {
                // Receives with a timeout: EINTR if a signal comes, EAGAIN if not.
                let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
                let time = libc::timeval {
                    tv_sec: 0,
                    tv_usec: time.tv_nsec / 1000,
                };
                let size = size_of::<libc::timeval>() as libc::socklen_t;
                let at = (&raw const time).cast();
                libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, size);
                let mut byte = 0u8;
                let result = libc::recv(socket, (&raw mut byte).cast(), 1, 0);
                let error = *libc::__errno_location();
                libc::close(socket);
                if result < 0 && error == libc::EAGAIN {
                    0
                } else {
                    -1
                }
            }
        }
    };
    result == 0
}
