//! Which threads there are, one CPU timer for each, and the account of the CPU time of those that
//! come and go.
//!
//! A slot is what the handler knows of a thread; its index travels in the timer's signal, so that a
//! handler needs no thread-local storage.

pub(crate) mod created;
#[cfg(feature = "thread-hook")]
mod hook;
pub(crate) mod timer;

use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::stats::COUNTERS;
use timer::{Timer, thread_clock_ns};

/// Threads that can have a timer at once.
const SLOTS: usize = 16_384;

/// A pseudo address: CPU time that fell between two ticks at the end of a thread.
pub(crate) const BETWEEN_TICKS: u64 = 1;
/// A pseudo address: CPU time of threads that were never seen.
pub(crate) const UNSEEN: u64 = 2;

/// In the zero pages of the program: a slot costs memory once it was used.
static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// Threads that start get a timer at once.
static ARMED: AtomicBool = AtomicBool::new(false);
static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

struct Slot {
    stack_start: AtomicUsize,
    stack_end: AtomicUsize,
    /// Expiries that the handler was told of.
    expiries: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            stack_start: AtomicUsize::new(0),
            stack_end: AtomicUsize::new(0),
            expiries: AtomicU64::new(0),
        }
    }

    fn reset(&self, stack: Range<usize>) {
        self.stack_start.store(stack.start, Ordering::Relaxed);
        self.stack_end.store(stack.end, Ordering::Relaxed);
        self.expiries.store(0, Ordering::Relaxed);
    }
}

/// Counts expiries of a thread's timer. Async-signal-safe.
pub(crate) fn note_expiries(slot: u32, weight: u32) {
    if let Some(slot) = TABLE.get(slot as usize) {
        slot.expiries
            .fetch_add(u64::from(weight), Ordering::Relaxed);
    }
}

/// The stack of a thread, empty when not known. Async-signal-safe.
pub(crate) fn stack_of(slot: u32) -> Range<usize> {
    TABLE.get(slot as usize).map_or(0..0, |slot| {
        slot.stack_start.load(Ordering::Relaxed)..slot.stack_end.load(Ordering::Relaxed)
    })
}

/// A thread with a timer.
struct Armed {
    slot: u32,
    /// Runs until this is dropped.
    #[cfg_attr(
        not(feature = "thread-hook"),
        expect(dead_code, reason = "held, and used by the hook")
    )]
    timer: Timer,
    /// The thread's CPU clock when its timer was made, and when last read.
    clock_at_start_ns: u64,
    clock_ns: u64,
    first_expiry_ns: u64,
    /// What was delivered when last looked at, and since when (monotonic clock) it has been that.
    heard: u64,
    heard_at_ns: u64,
}

/// All threads with a timer, while captures run.
struct Threads {
    period_ns: u64,
    armed: HashMap<i32, Armed>,
    /// Threads that live without a timer; each is tried again, and counted once.
    refused: HashSet<i32>,
    free: Vec<u32>,
    next_slot: u32,
    random: u64,
    process_clock_at_start_ns: u64,
    /// CPU time of threads that ended, as far as they were seen.
    ended_ns: u64,
    reported: Unsampled,
}

fn threads() -> MutexGuard<'static, Option<Threads>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes sure that the linker takes the hook in.
pub(crate) fn keep_hook() {
    #[cfg(feature = "thread-hook")]
    hook::keep();
}

/// Gives every thread a timer; threads that start later get theirs by hook or by [`scan`].
pub(crate) fn arm(period: Duration) {
    *threads() = Some(Threads::new(period.as_nanos() as u64));
    ARMED.store(true, Ordering::SeqCst);
    scan();
}

/// Takes all timers away.
pub(crate) fn disarm() {
    ARMED.store(false, Ordering::SeqCst);
    *threads() = None;
}

thread_local! {
    /// Held around a fork, so that the child does not inherit a lock that nobody will release.
    /// Without a destructor, or a fork in the last moments of a thread would panic.
    static HELD: std::cell::RefCell<Option<ManuallyDrop<MutexGuard<'static, Option<Threads>>>>> =
        const { std::cell::RefCell::new(None) };
}

/// Before a fork, in the forking thread.
pub(crate) fn lock_for_fork() {
    HELD.with(|held| *held.borrow_mut() = Some(ManuallyDrop::new(threads())));
}

/// After a fork, in the same thread of parent and child.
pub(crate) fn unlock_after_fork() {
    let held = HELD.with(|held| held.borrow_mut().take());
    drop(held.map(ManuallyDrop::into_inner));
}

/// A forked child has none of the timers.
pub(crate) fn forget_in_child() {
    ARMED.store(false, Ordering::SeqCst);
    // The timers are the parent's: deleting their ids here could delete others.
    if let Some(old) = threads().take() {
        std::mem::forget(old);
    }
}

/// Finds threads that started and ended; returns how many live.
pub(crate) fn scan() -> usize {
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let tid =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let tids: Vec<i32> = entries.filter_map(tid).collect();
    let mut guard = threads();
    let Some(threads) = guard.as_mut() else {
        return tids.len();
    };
    threads.remove_ended();
    for &tid in &tids {
        threads.add(tid, 0..0);
    }
    tids.len()
}

/// Expiries without a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsampled {
    /// Of CPU time that no thread accounts for: threads that lived and ended unseen.
    pub(crate) unseen: u64,
    /// Of threads that block the signal.
    pub(crate) blocked: u64,
}

/// Expiries without a stack since the last call.
pub(crate) fn take_unsampled() -> Unsampled {
    threads()
        .as_mut()
        .map_or_else(Unsampled::default, Threads::take_unsampled)
}

impl Threads {
    fn new(period_ns: u64) -> Threads {
        let now = timer::process_clock_ns();
        Threads {
            period_ns,
            armed: HashMap::new(),
            refused: HashSet::new(),
            free: Vec::new(),
            // Slot 0 belongs to signals that no timer sent.
            next_slot: 1,
            random: timer::monotonic_ns() ^ u64::from(std::process::id()) << 40,
            process_clock_at_start_ns: now,
            ended_ns: 0,
            reported: Unsampled::default(),
        }
    }

    fn random(&mut self) -> u64 {
        // splitmix64: https://prng.di.unimi.it/splitmix64.c
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn add(&mut self, tid: i32, stack: Range<usize>) {
        if self.armed.contains_key(&tid) {
            return;
        }
        let Some(slot) = self.free.pop().or_else(|| self.fresh_slot()) else {
            return self.refuse(tid);
        };
        // Uniform in (0, period]: threads shorter than a period count fairly.
        let first_expiry_ns = 1 + self.random() % self.period_ns;
        TABLE[slot as usize].reset(stack);
        let clock_at_start_ns = thread_clock_ns(tid).unwrap_or(0);
        match Timer::start(tid, slot, first_expiry_ns, self.period_ns) {
            Some(timer) => {
                let armed = Armed {
                    slot,
                    timer,
                    clock_at_start_ns,
                    clock_ns: clock_at_start_ns,
                    first_expiry_ns,
                    heard: 0,
                    heard_at_ns: timer::monotonic_ns(),
                };
                self.armed.insert(tid, armed);
                self.refused.remove(&tid);
            }
            None => {
                self.free.push(slot);
                // Otherwise the thread ended between the listing and here.
                if thread_clock_ns(tid).is_some() {
                    self.refuse(tid);
                }
            }
        }
    }

    fn fresh_slot(&mut self) -> Option<u32> {
        let slot = self.next_slot;
        let is_there = (slot as usize) < SLOTS;
        self.next_slot += u32::from(is_there);
        is_there.then_some(slot)
    }

    fn refuse(&mut self, tid: i32) {
        COUNTERS
            .timers_refused
            .add(u64::from(self.refused.insert(tid)));
    }

    /// Threads that are gone, and those whose id a younger thread took over: its clock is behind.
    /// A listing would not tell: threads start and are added while it is read.
    fn remove_ended(&mut self) {
        self.refused.retain(|tid| thread_clock_ns(*tid).is_some());
        let mut ended = Vec::new();
        for (tid, armed) in &mut self.armed {
            match thread_clock_ns(*tid) {
                Some(now) if now >= armed.clock_ns => armed.clock_ns = now,
                _ => ended.push(*tid),
            }
        }
        for tid in ended {
            if let Some(mut armed) = self.armed.remove(&tid) {
                // Nobody read its last clock; what was sampled behind the last reading counts too.
                let sampled_ns = armed.delivered() * self.period_ns;
                armed.clock_ns = armed.clock_ns.max(armed.clock_at_start_ns + sampled_ns);
                self.retire(&armed);
            }
        }
    }

    fn retire(&mut self, armed: &Armed) {
        self.ended_ns += armed.clock_ns.saturating_sub(armed.clock_at_start_ns);
        self.free.push(armed.slot);
    }

    fn take_unsampled(&mut self) -> Unsampled {
        // The process clock first: what threads run meanwhile must not look unseen.
        let process_ns = timer::process_clock_ns().saturating_sub(self.process_clock_at_start_ns);
        let mut seen_ns = self.ended_ns;
        let mut blocked = 0;
        let at_ns = timer::monotonic_ns();
        for (tid, armed) in &mut self.armed {
            let now = thread_clock_ns(*tid).unwrap_or(armed.clock_ns);
            let now = now.max(armed.clock_ns);
            seen_ns += now.saturating_sub(armed.clock_at_start_ns);
            if armed.is_silent(at_ns) {
                let due = armed.due(now, self.period_ns);
                let missing = due.saturating_sub(armed.heard);
                if missing > 1 && blocks_signal(*tid) {
                    blocked += missing;
                }
            }
        }
        let unseen = process_ns.saturating_sub(seen_ns) / self.period_ns;
        let fresh = Unsampled {
            unseen: unseen.saturating_sub(self.reported.unseen),
            blocked: blocked.saturating_sub(self.reported.blocked),
        };
        self.reported.unseen += fresh.unseen;
        self.reported.blocked += fresh.blocked;
        COUNTERS.unseen.add(fresh.unseen);
        COUNTERS.blocked.add(fresh.blocked);
        fresh
    }
}

/// Threads that no signal reached for so long are asked whether they block it; fork does so for a
/// moment only.
const SILENCE_NS: u64 = 1_000_000_000;

/// The signal mask of a thread holds SIGPROF.
fn blocks_signal(tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
    let mask = status.as_deref().ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    mask.is_some_and(|mask| mask >> (libc::SIGPROF - 1) & 1 == 1)
}

impl Armed {
    /// Expiries that were due at the thread's CPU time `clock_ns`.
    fn due(&self, clock_ns: u64, period_ns: u64) -> u64 {
        let ran_ns = clock_ns.saturating_sub(self.clock_at_start_ns);
        ran_ns
            .checked_sub(self.first_expiry_ns)
            .map_or(0, |after| after / period_ns + 1)
    }

    /// No signal came for a long time.
    fn is_silent(&mut self, at_ns: u64) -> bool {
        let delivered = self.delivered();
        if delivered != self.heard {
            (self.heard, self.heard_at_ns) = (delivered, at_ns);
        }
        at_ns.saturating_sub(self.heard_at_ns) >= SILENCE_NS
    }

    /// Expiries that the handler was told of.
    fn delivered(&self) -> u64 {
        TABLE[self.slot as usize].expiries.load(Ordering::Relaxed)
    }
}
