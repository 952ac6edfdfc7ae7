//! What the profile must show: CPU time of the hot function, measured by the kernel's clocks and
//! not by sampling. The true share of an interval is the quotient of two differences of [`read`].

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

static HOT_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// Cumulative CPU times in nanoseconds.
#[derive(Debug, Serialize)]
pub struct Truth {
    /// Inside `price_basket`, all threads.
    pub hot_cpu_ns: u64,
    /// The whole process, user and system.
    pub process_cpu_ns: u64,
}

impl Truth {
    /// Runs `hot` and adds its CPU time. One reading of the clock costs well below a microsecond.
    pub fn measure<T>(hot: impl FnOnce() -> T) -> T {
        let start = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let result = hot();
        let end = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        HOT_CPU_NS.fetch_add(end.saturating_sub(start), Ordering::Relaxed);
        result
    }
}

/// The times up to now.
pub fn read() -> Truth {
    Truth {
        hot_cpu_ns: HOT_CPU_NS.load(Ordering::Relaxed),
        process_cpu_ns: clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID),
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call fills. Both clocks exist on Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
