//! Work of known length, and reading profiles.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use pilotlight::{Capture, Config, Guard, Profile};

/// One sampler at a time, also where the tests of a file share a process.
pub struct Started {
    _guard: Guard,
    _turn: std::sync::MutexGuard<'static, ()>,
}

/// Starts pilotlight with `config`, once the test before has ended.
pub fn start_with(config: Config) -> Started {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Started {
        _guard: config.start().unwrap(),
        _turn: turn,
    }
}

/// Starts pilotlight without a listener.
pub fn start(frequency_hz: u32) -> Started {
    start_with(Config::new("test").no_listener().frequency_hz(frequency_hz))
}

/// CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Burns CPU time of this thread.
#[inline(always)]
pub fn burn(ns: u64) {
    let until = thread_cpu_ns() + ns;
    let mut x = 1u64;
    while thread_cpu_ns() < until {
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
        }
    }
}

/// Captures while `work` runs.
pub fn profile_of(work: impl FnOnce()) -> Profile {
    let capture = Capture::begin().unwrap();
    work();
    capture.finish()
}

/// Expiries (column 0) of stacks that hold a function whose name contains `name`.
pub fn expiries(profile: &Profile, name: &str) -> i64 {
    pilotlight_profile::top(profile, 0)
        .iter()
        .filter(|row| row.name.contains(name))
        .map(|row| row.total_value)
        .max()
        .unwrap_or(0)
}

/// The kernel's siginfo for `sigqueue`.
#[repr(C)]
struct Queued {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    pid: i32,
    uid: u32,
    value: u64,
    rest: [u64; 12],
}

/// Sends SIGPROF with a value to a thread of this process; false when the queue is full.
pub fn send(tid: i32, value: u64) -> bool {
    let pid = std::process::id() as i32;
    let info = Queued {
        signal: libc::SIGPROF,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid,
        uid: 0,
        value,
        rest: [0; 12],
    };
    // SAFETY: the kernel reads `info`, which has its size and layout.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGPROF, &info) == 0 }
}

pub fn own_tid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}
