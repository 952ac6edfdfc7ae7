//! What a sample costs on this machine, measured once: in virtual machines the timer's interrupt can
//! cost ten times what it costs elsewhere.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::perf::PerfEvent;
use crate::slots::{NOBODY, TOKEN};
use crate::sys;

/// A handler's work besides the walk, and the walk of a frame that is in no cache.
const HANDLER_NS: u64 = 1_500;
const FRAME_NS: u64 = 60;
/// What a switch of threads costs more with a perf event: see ADR 13.
pub(super) const PERF_SWITCH_NS: u64 = 4_000;
/// What the tick does for a timer.
const TICK_NS: u64 = 1_000;

/// A sample of `frames` by a thread's timer, nanoseconds.
pub(super) fn by_timer_ns(frames: u64) -> u64 {
    static SIGNAL_NS: AtomicU64 = AtomicU64::new(UNKNOWN);
    TICK_NS + once(&SIGNAL_NS, signal_ns) + work_ns(frames)
}

/// A sample of `frames` by a perf event, nanoseconds.
pub(super) fn by_perf_ns(frames: u64) -> u64 {
    static EVENT_NS: AtomicU64 = AtomicU64::new(UNKNOWN);
    once(&EVENT_NS, event_ns) + work_ns(frames)
}

const UNKNOWN: u64 = u64::MAX;

/// Without a lock, which a forked child could find taken: at worst two threads measure.
fn once(known: &AtomicU64, measure: fn() -> u64) -> u64 {
    match known.load(Ordering::Relaxed) {
        UNKNOWN => {
            let measured = measure();
            known.store(measured, Ordering::Relaxed);
            measured
        }
        known => known,
    }
}

fn work_ns(frames: u64) -> u64 {
    HANDLER_NS + FRAME_NS * frames
}

/// A signal to oneself that the handler throws away.
fn signal_ns() -> u64 {
    const SIGNALS: u64 = 16;
    let mut info = [0u64; 16];
    // The kernel's siginfo: number, code, and the value of `sigqueue`.
    info[0] = libc::SIGPROF as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[3] = u64::from(TOKEN) << 32 | u64::from(NOBODY);
    let round = || {
        let before = sys::own_clock_ns();
        for _ in 0..SIGNALS {
            let (process, thread) = (std::process::id(), sys::own_tid());
            let (call, at) = (libc::SYS_rt_tgsigqueueinfo, info.as_ptr());
            // SAFETY: the kernel reads `info`, which has the size and layout of its siginfo.
            unsafe { libc::syscall(call, process, thread, libc::SIGPROF, at) };
        }
        (sys::own_clock_ns() - before) / SIGNALS
    };
    middle([(); 5].map(|()| round()))
}

/// A perf event that interrupts this thread: work that takes longer with it than without.
fn event_ns() -> u64 {
    const PERIOD_NS: u64 = 50_000;
    const ROUNDS: u64 = 1_000_000;
    let spin = || {
        let before = sys::own_clock_ns();
        let mut x = black_box(1u64);
        for _ in 0..ROUNDS {
            x = x.wrapping_mul(31).rotate_left(7);
        }
        black_box(x);
        sys::own_clock_ns() - before
    };
    let without = middle([(); 5].map(|()| spin()));
    let Ok(event) = PerfEvent::start(sys::own_tid(), NOBODY, PERIOD_NS) else {
        return 0;
    };
    let with = middle([(); 5].map(|()| spin()));
    drop(event);
    with.saturating_sub(without) * PERIOD_NS / with.max(1)
}

fn middle<const N: usize>(mut values: [u64; N]) -> u64 {
    values.sort_unstable();
    values[N / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_stacks_cost_more_and_a_signal_costs_microseconds() {
        crate::handler::install().unwrap();
        let (flat, deep) = (by_timer_ns(10), by_timer_ns(1000));
        assert!((2_000..1_000_000).contains(&flat), "{flat}");
        assert_eq!(deep - flat, 990 * FRAME_NS);
        if PerfEvent::probe().is_ok() {
            let event = by_perf_ns(10);
            assert!((2_000..1_000_000).contains(&event), "{event}");
        }
    }
}
