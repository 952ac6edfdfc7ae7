//! What a program sees of being sampled, and what a profile says of threads that are not.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{burn, expiries, process_cpu_ns, profile_of, start};

fn block_sigprof() {
    // SAFETY: the set is plain data, emptied before use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

#[test]
fn cpu_time_of_a_thread_that_blocks_the_signal_is_shown_as_such() {
    let _guard = start(97);
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stop, told) = (&stop, &ready);
        scope.spawn(move || {
            block_sigprof();
            told.store(true, Ordering::Release);
            burn(2_000_000_000);
            // Alive at the end of the capture: not a thread that ended unsampled.
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        while !ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut used_ns = 0;
        let profile = profile_of(|| {
            let before = process_cpu_ns();
            burn(1_000_000_000);
            while process_cpu_ns() - before < 2_500_000_000 {
                std::thread::sleep(Duration::from_millis(5));
            }
            used_ns = process_cpu_ns() - before;
        });
        stop.store(true, Ordering::Release);
        let blocked = expiries(&profile, "[threads that block SIGPROF]");
        let (expected, total) = (used_ns as f64 * 97e-9, profile.total(0) as f64);
        println!("{blocked} blocked, {total} in all, {expected:.1} expected");
        assert!(blocked > 100, "{blocked}");
        assert!((total - expected).abs() < 0.01 * expected + 6.0);
    });
}

#[test]
fn a_read_that_waits_is_not_interrupted() {
    let _guard = start(1000);
    let interrupted = AtomicU64::new(0);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let profile = profile_of(|| {
        std::thread::scope(|scope| {
            let interrupted = &interrupted;
            scope.spawn(move || {
                // Signals from outside: CPU timers do not fire while a thread waits.
                let result = reader.read(&mut [0; 1]);
                if let Err(error) = result {
                    assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            });
            let until = Instant::now() + Duration::from_millis(500);
            // On a busy machine few signals come in that time: then until enough have.
            while Instant::now() < until || pilotlight::stats().delivered <= 300 {
                signal_others();
                burn(1_000_000);
            }
            drop(writer);
        });
    });
    assert!(profile.total(0) > 100);
    assert_eq!(interrupted.load(Ordering::Relaxed), 0, "EINTR");
    assert!(pilotlight::stats().delivered > 300);
}

/// One signal of ours to every other thread.
fn signal_others() {
    let mut info = [0u64; 16];
    info[0] = libc::SIGPROF as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[3] = pilotlight::testing::signal_value();
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let tid: i32 = entry
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let pid = std::process::id() as i32;
        // SAFETY: `info` has the size and layout of siginfo_t on 64-bit Linux.
        unsafe {
            if i64::from(tid) != libc::syscall(libc::SYS_gettid) {
                let at = info.as_ptr();
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGPROF, at);
            }
        }
    }
}

#[test]
fn threads_that_get_no_timer_are_counted_once_and_their_time_is_shown() {
    let _guard = start(97);
    let capture = pilotlight::Capture::begin().unwrap();
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is plain data. A timer needs room for its signal from the start.
    unsafe {
        let mut old = none;
        assert_eq!(libc::getrlimit(libc::RLIMIT_SIGPENDING, &mut old), 0);
        let lower = libc::rlimit {
            rlim_max: old.rlim_max,
            ..none
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_SIGPENDING, &lower), 0);
    }
    // Those that were there have theirs.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| burn(400_000_000));
        }
    });
    // The thread that looks names up would be one more.
    let refused = pilotlight::stats().timers_refused;
    let profile = capture.finish();
    assert_eq!(refused, 3);
    let shown = expiries(&profile, "[threads that ended unsampled]");
    assert!(shown > 90, "{shown}");
}

#[test]
fn a_handler_that_took_our_place_is_not_called_in_a_circle() {
    static OURS: AtomicU64 = AtomicU64::new(0);
    static CALLS: AtomicU64 = AtomicU64::new(0);

    /// As other profilers do: hands on whatever it gets.
    extern "C" fn chaining(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the address of the handler that this one replaced.
        let next: Handler = unsafe { std::mem::transmute(OURS.load(Ordering::Relaxed) as usize) };
        next(signal, info, context);
    }

    drop(start(97));
    // SAFETY: sigaction values are plain data; the handler is a function of this program.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        new.sa_sigaction = chaining as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGPROF, &new, &mut old), 0);
        OURS.store(old.sa_sigaction as u64, Ordering::Relaxed);
    }
    let _guard = start(97);
    let before = CALLS.load(Ordering::Relaxed);
    // SAFETY: a signal to this thread; it has a handler.
    unsafe { libc::raise(libc::SIGPROF) };
    assert_eq!(CALLS.load(Ordering::Relaxed), before + 1);
    // Our own signals come through the other handler.
    assert!(profile_of(|| burn(300_000_000)).total(0) > 20);
}
