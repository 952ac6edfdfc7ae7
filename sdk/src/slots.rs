//! What the signal handler knows of each thread: a table of slots, whose index travels in the signal,
//! so that a handler needs no thread-local storage.
//!
//! # What a sample weighs
//! The CPU time that its thread used since the thread's last sample, in whole periods. So it makes no
//! difference that a timer is served late (at the kernel's tick), that several expiries come with one
//! signal, that a counter does not see every switch of threads, or that the rate was changed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sys;

/// High half of the value that our timers send; the low half is the slot.
pub(crate) const TOKEN: u32 = 0x7069_6c74;

/// A pseudo address: CPU time that fell behind the last sample of a thread.
pub(crate) const BETWEEN_TICKS: u64 = 1;
/// A pseudo address: CPU time of threads that were never seen.
pub(crate) const UNSEEN: u64 = 2;

/// Threads that can be sampled at once, and two.
pub(crate) const SLOTS: usize = 16_384;
/// The slot of signals that no timer sent: each weighs what it says.
pub(crate) const NONE: u32 = 0;
/// The slot of the timer of the whole process.
pub(crate) const PROCESS: u32 = 1;
/// No slot: signals by which their own price is measured.
pub(crate) const NOBODY: u32 = u32::MAX;
/// The first slot that a thread may have.
pub(crate) const FIRST: u32 = 2;

/// File descriptors of perf events must be below this.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// In the zero pages of the program: a slot costs memory once it was used.
static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// The slot by descriptor of its perf event.
static BY_DESCRIPTOR: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(NONE) }; DESCRIPTORS];
/// Nanoseconds of CPU time that weigh 1.
static PERIOD_NS: AtomicU64 = AtomicU64::new(1_000_000_000);
/// SIGPROF by the kernel is that of our process timer.
static PROCESS_TIMER: AtomicBool = AtomicBool::new(false);

struct Slot {
    stack_start: AtomicUsize,
    stack_end: AtomicUsize,
    thread: AtomicI32,
    /// Where the thread's errno is, once its handler ran: what identifies it without a call.
    errno: AtomicUsize,
    /// CPU time of the thread up to which samples account for it.
    accounted_ns: AtomicU64,
    /// Signals so far.
    signals: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            stack_start: AtomicUsize::new(0),
            stack_end: AtomicUsize::new(0),
            thread: AtomicI32::new(0),
            errno: AtomicUsize::new(0),
            accounted_ns: AtomicU64::new(0),
            signals: AtomicU64::new(0),
        }
    }

    /// Whole periods from what is accounted for to `clock_ns`, which is accounted for from now on; one
    /// also when less than `early_ns` is missing.
    fn take(&self, clock_ns: u64, early_ns: u64) -> u64 {
        let period_ns = PERIOD_NS.load(Ordering::Relaxed);
        let mut accounted = self.accounted_ns.load(Ordering::Relaxed);
        loop {
            // Wrapping: a young thread is accounted for up to a moment before its clock began.
            let passed_ns = clock_ns.wrapping_sub(accounted) as i64;
            let periods = match passed_ns.max(0) as u64 / period_ns {
                0 if passed_ns + early_ns as i64 >= period_ns as i64 => 1,
                0 => return 0,
                periods => periods,
            };
            let swapped = self.accounted_ns.compare_exchange_weak(
                accounted,
                accounted.wrapping_add(periods * period_ns),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return periods,
                Err(now) => accounted = now,
            }
        }
    }

    fn is_of(&self, errno: usize) -> bool {
        let known = self.errno.load(Ordering::Relaxed);
        if known == 0 && self.thread.load(Ordering::Relaxed) == sys::own_tid() {
            self.errno.store(errno, Ordering::Relaxed);
            return true;
        }
        known == errno
    }
}

/// What a signal is about. Async-signal-safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// This many periods of CPU time.
    Periods(u64),
    /// Less than half a period passed since the last sample.
    Early,
    /// Sent for a thread that had this slot or descriptor before.
    Stray,
}

/// What a signal for `slot` weighs in the thread whose errno is at `errno`. Async-signal-safe.
pub(crate) fn weigh(slot: u32, errno: usize) -> Weight {
    let Some(entry) = TABLE.get(slot as usize) else {
        return Weight::Stray;
    };
    let clock_ns = match slot {
        PROCESS => sys::process_clock_ns(),
        _ if entry.is_of(errno) => sys::own_clock_ns(),
        _ => return Weight::Stray,
    };
    entry.signals.fetch_add(1, Ordering::Relaxed);
    // Timers vary around the period: a stack that comes early is kept, a later one weighs less.
    let early_ns = PERIOD_NS.load(Ordering::Relaxed) / 2;
    match entry.take(clock_ns, early_ns) {
        0 => Weight::Early,
        periods => Weight::Periods(periods),
    }
}

/// The stack of a thread, empty when not known. Async-signal-safe.
pub(crate) fn stack_of(slot: u32) -> Range<usize> {
    TABLE.get(slot as usize).map_or(0..0, |slot| {
        slot.stack_start.load(Ordering::Relaxed)..slot.stack_end.load(Ordering::Relaxed)
    })
}

/// The slot whose perf event has this descriptor, or [`NONE`]. Async-signal-safe.
pub(crate) fn of_descriptor(descriptor: i32) -> u32 {
    let entry = BY_DESCRIPTOR.get(descriptor as usize);
    entry.map_or(NONE, |slot| slot.load(Ordering::Relaxed))
}

/// Signals that the kernel sends for itself are those of our process timer. Async-signal-safe.
pub(crate) fn process_timer_runs() -> bool {
    PROCESS_TIMER.load(Ordering::Relaxed)
}

pub(crate) fn set_process_timer(runs: bool) {
    PROCESS_TIMER.store(runs, Ordering::SeqCst);
}

/// Nanoseconds of CPU time that weigh 1 from now on; no slot is in use.
pub(crate) fn set_period(period_ns: u64) {
    PERIOD_NS.store(period_ns.max(1), Ordering::SeqCst);
}

/// Gives `slot` to a thread, accounted for up to `accounted_ns` of its CPU time (which may be before
/// it began: wrapping).
pub(crate) fn give(slot: u32, thread: i32, stack: Range<usize>, accounted_ns: u64) {
    let entry = &TABLE[slot as usize];
    entry.stack_start.store(stack.start, Ordering::Relaxed);
    entry.stack_end.store(stack.end, Ordering::Relaxed);
    entry.thread.store(thread, Ordering::Relaxed);
    entry.errno.store(0, Ordering::Relaxed);
    entry.signals.store(0, Ordering::Relaxed);
    entry.accounted_ns.store(accounted_ns, Ordering::Release);
}

/// The stack of the thread that has `slot` is known now; an empty one says nothing.
pub(crate) fn set_stack(slot: u32, stack: Range<usize>) {
    if stack.is_empty() {
        return;
    }
    let entry = &TABLE[slot as usize];
    // Its own signal in between finds an empty range or one that ends right.
    entry.stack_end.store(0, Ordering::Relaxed);
    entry.stack_start.store(stack.start, Ordering::Relaxed);
    entry.stack_end.store(stack.end, Ordering::Relaxed);
}

/// Whole periods that no sample accounts for up to `clock_ns`; the caller accounts for them.
pub(crate) fn settle(slot: u32, clock_ns: u64) -> u64 {
    TABLE[slot as usize].take(clock_ns, 0)
}

/// CPU time up to which samples account for the thread of `slot`.
pub(crate) fn accounted_ns(slot: u32) -> u64 {
    TABLE[slot as usize].accounted_ns.load(Ordering::Relaxed)
}

/// Signals that reached the thread of `slot`.
pub(crate) fn signals(slot: u32) -> u64 {
    TABLE[slot as usize].signals.load(Ordering::Relaxed)
}

/// Signals with this descriptor are for `slot`.
pub(crate) fn set_descriptor(descriptor: i32, slot: u32) {
    if let Some(entry) = BY_DESCRIPTOR.get(descriptor as usize) {
        entry.store(slot, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_weighs_the_whole_periods_since_the_last_one() {
        set_period(10);
        let slot = Slot::new();
        slot.accounted_ns.store(1003, Ordering::Relaxed);
        assert_eq!(slot.take(1012, 0), 0);
        // A little early still counts.
        assert_eq!(slot.take(1012, 1), 1);
        assert_eq!(slot.take(1012, 1), 0);
        // What several expiries left, and nothing twice.
        assert_eq!(slot.take(1063, 0), 5);
        assert_eq!(slot.accounted_ns.load(Ordering::Relaxed), 1063);
        // A clock behind: nothing.
        assert_eq!(slot.take(900, 0), 0);
        slot.accounted_ns
            .store(3u64.wrapping_sub(10), Ordering::Relaxed);
        assert_eq!(slot.take(2, 0), 0);
        assert_eq!(slot.take(3, 0), 1);
    }

    #[test]
    fn a_signal_for_another_thread_is_a_stray() {
        set_period(1);
        let errno = 0x1000;
        give(FIRST, sys::own_tid(), 0..0, 0);
        assert!(matches!(weigh(FIRST, errno), Weight::Periods(1..)));
        let weigh_elsewhere = || weigh(FIRST, 0x2000);
        let elsewhere = std::thread::spawn(weigh_elsewhere).join().unwrap();
        assert_eq!(elsewhere, Weight::Stray);
        give(FIRST + 1, 1 << 30, 0..0, 0);
        assert_eq!(weigh(FIRST + 1, errno), Weight::Stray);
        assert_eq!(weigh(SLOTS as u32, errno), Weight::Stray);
    }
}
