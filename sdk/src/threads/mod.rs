//! Which threads there are, what samples each, and the account of the CPU time of those that come and
//! go.

mod account;
mod budget;
mod choice;
pub(crate) mod created;
mod engines;
#[cfg(feature = "thread-hook")]
mod exec;
#[cfg(not(feature = "thread-hook"))]
mod exec {
    pub(super) fn keep() {}
    pub(super) fn note_process() {}
}
#[cfg(feature = "thread-hook")]
mod hook;
mod perf;
mod price;
mod process;
pub(crate) mod timer;
mod unsampled;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fork::{Held, Lock};
use crate::slots::{self, SLOTS};
use crate::stats::COUNTERS;
use budget::Budget;
pub use choice::Engine;
use engines::{Source, Supply};
use process::ProcessTimer;
use timer::thread_clock_ns;
pub(crate) use unsampled::Unsampled;

/// Threads that start are sampled at once.
static ARMED: AtomicBool = AtomicBool::new(false);
static THREADS: Lock<Option<Threads>> = Lock::new(None);

/// While the number of threads is the one that is known, the list of them is read this often: most
/// threads tell by the hook.
const LISTED_EVERY: Duration = match cfg!(feature = "thread-hook") {
    true => Duration::from_secs(1),
    false => Duration::ZERO,
};

/// A thread that is sampled.
struct Armed {
    slot: u32,
    source: Source,
    /// The thread's CPU clock when sampling began, and when last read.
    clock_at_start_ns: u64,
    clock_ns: u64,
    /// What samples accounted for at the start (before the clock, by less than a period: wrapping).
    accounted_at_start_ns: u64,
    /// Signals when last looked at, and since when (monotonic clock) it has been that many.
    heard: u64,
    heard_at_ns: u64,
}

/// All threads that are sampled, while captures run.
struct Threads {
    /// CPU time that weighs 1, nanoseconds.
    period_ns: u64,
    budget: Budget,
    supply: Supply,
    /// In the place of all others.
    process_timer: Option<ProcessTimer>,
    armed: HashMap<i32, Armed>,
    /// Threads that nothing samples; each is tried again, and counted once.
    refused: HashSet<i32>,
    free: Vec<u32>,
    next_slot: u32,
    random: u64,
    listed: Option<Instant>,
    process_clock_at_start_ns: u64,
    /// CPU time of the process so far, and when that was read.
    process_ns: u64,
    told: Option<Instant>,
    /// CPU time of threads that ended, as far as they were seen.
    ended_ns: u64,
    /// Periods that were told as unseen.
    unseen: u64,
}

fn threads() -> MutexGuard<'static, Option<Threads>> {
    THREADS.lock()
}

/// Makes sure that the linker takes the hook in.
pub(crate) fn keep_hook() {
    #[cfg(feature = "thread-hook")]
    hook::keep();
    exec::keep();
}

/// Samples every thread; those that start later are found by hook or by [`scan`].
pub(crate) fn arm(engine: Engine, period: Duration, budget_percent: f64) {
    let armed = Threads::new(engine, period.as_nanos() as u64, budget_percent);
    *threads() = Some(armed);
    exec::note_process();
    ARMED.store(true, Ordering::SeqCst);
    scan();
}

/// Ends all sampling.
pub(crate) fn disarm() {
    ARMED.store(false, Ordering::SeqCst);
    *threads() = None;
}

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &THREADS
}

/// A forked child is not sampled.
pub(crate) fn forget_in_child() {
    ARMED.store(false, Ordering::SeqCst);
    slots::set_process_timer(false);
    let Some(mut old) = threads().take() else {
        return;
    };
    for (_, armed) in old.armed.drain() {
        match armed.source {
            Source::Perf(event) => event.forget_in_child(),
            // The parent's: deleting the id here could delete another.
            Source::Timer(timer) => std::mem::forget(timer),
        }
    }
    // A child has no timer of the process.
    std::mem::forget(old.process_timer.take());
}

/// Finds threads that started and ended.
pub(crate) fn scan() {
    let mut guard = threads();
    let Some(threads) = guard.as_mut() else {
        return;
    };
    if threads.process_timer.is_some() || threads.know_all() {
        return;
    }
    // Threads must not wait for the listing.
    drop(guard);
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    let tid =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let tids: Vec<i32> = entries.filter_map(tid).collect();
    if let Some(threads) = self::threads().as_mut() {
        threads.remove_ended();
        for &tid in &tids {
            threads.add(tid, 0..0);
        }
    }
}

/// Periods of CPU time without a stack since the last call; with `settle`, all that no sample
/// accounts for so far.
pub(crate) fn take_unsampled(settle: bool) -> Unsampled {
    let mut guard = threads();
    let taken = guard.as_mut().map(|threads| threads.take_unsampled(settle));
    taken.unwrap_or_default()
}

impl Threads {
    fn new(engine: Engine, period_ns: u64, budget_percent: f64) -> Threads {
        slots::set_period(period_ns);
        let rate_hz = 1_000_000_000 / period_ns;
        let (budget, wants_perf) = Budget::new(budget_percent, rate_hz, engine);
        let stretched_ns = period_ns * budget.stretch;
        let (supply, process_timer) = Supply::probe(engine, wants_perf, stretched_ns);
        let now = timer::process_clock_ns();
        let mut threads = Threads {
            period_ns,
            budget,
            supply,
            process_timer,
            armed: HashMap::new(),
            refused: HashSet::new(),
            // All there will be: `exec` may be called where nothing can be allocated.
            free: Vec::with_capacity(SLOTS),
            next_slot: slots::FIRST,
            random: timer::monotonic_ns() ^ u64::from(std::process::id()) << 40,
            listed: None,
            process_clock_at_start_ns: now,
            process_ns: 0,
            told: None,
            ended_ns: 0,
            unseen: 0,
        };
        let phase_ns = threads.random() % period_ns;
        slots::give(slots::PROCESS, 0, 0..0, now.wrapping_sub(phase_ns));
        threads
    }

    fn random(&mut self) -> u64 {
        self.random = next_random(self.random);
        self.random
    }

    fn add(&mut self, tid: i32, stack: Range<usize>) {
        if self.process_timer.is_some() {
            return;
        }
        if let Some(armed) = self.armed.get(&tid) {
            // A scan found the thread before it said itself where its stack is.
            return slots::set_stack(armed.slot, stack);
        }
        let Some(slot) = self.free.pop().or_else(|| self.fresh_slot()) else {
            return self.refuse(tid);
        };
        // Uniform in (0, period]: threads shorter than a period count fairly.
        let first_ns = 1 + self.random() % self.period_ns;
        let clock_at_start_ns = thread_clock_ns(tid).unwrap_or(0);
        let accounted_at_start_ns = (clock_at_start_ns + first_ns).wrapping_sub(self.period_ns);
        slots::give(slot, tid, stack, accounted_at_start_ns);
        let (first_sample_ns, every_ns) = self.stretched(first_ns);
        match self.supply.source(tid, slot, first_sample_ns, every_ns) {
            Some(source) => {
                let armed = Armed {
                    slot,
                    source,
                    clock_at_start_ns,
                    clock_ns: clock_at_start_ns,
                    accounted_at_start_ns,
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

    /// The first sample and the time between two, where a period would first end after `first_ns`.
    fn stretched(&mut self, first_ns: u64) -> (u64, u64) {
        let stretch = self.budget.stretch;
        let later = self.random() % stretch;
        (first_ns + later * self.period_ns, stretch * self.period_ns)
    }

    /// Gives a thread the best source that is left now in the place of the one that it has.
    fn change_source(&mut self, tid: i32) {
        let Some(mut armed) = self.armed.remove(&tid) else {
            return;
        };
        let first_ns = 1 + self.random() % self.period_ns;
        let (first_ns, every_ns) = self.stretched(first_ns);
        match self.supply.source(tid, armed.slot, first_ns, every_ns) {
            Some(source) => {
                let old = std::mem::replace(&mut armed.source, source);
                self.supply.give_back(old);
                self.armed.insert(tid, armed);
            }
            None => {
                let clock_ns = armed.clock_ns;
                self.retire(armed, clock_ns);
                self.refuse(tid);
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

    /// Whether a listing would be in vain, as far as the number of threads tells: the folder of
    /// threads has a link for each, and two.
    fn know_all(&mut self) -> bool {
        let recent = |listed: Instant| listed.elapsed() < LISTED_EVERY;
        let known = self.armed.len() + self.refused.len();
        let is_recent = self.listed.is_some_and(recent);
        if is_recent && self.refused.is_empty() {
            let there = std::fs::metadata("/proc/self/task").map(|folder| folder.nlink());
            if there.is_ok_and(|links| links == known as u64 + 2) {
                return true;
            }
        }
        self.listed = Some(Instant::now());
        false
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
            if let Some(armed) = self.armed.remove(&tid) {
                // Nobody read its last clock. Seen is what samples account for: the rest shows as
                // time of threads that ended unsampled.
                let sampled_ns = slots::accounted_ns(armed.slot);
                let sampled_ns = sampled_ns.wrapping_sub(armed.accounted_at_start_ns);
                let clock_ns = armed.clock_at_start_ns + sampled_ns;
                self.retire(armed, clock_ns);
            }
        }
    }

    fn retire(&mut self, armed: Armed, clock_ns: u64) {
        self.ended_ns += clock_ns.saturating_sub(armed.clock_at_start_ns);
        self.free.push(armed.slot);
        self.supply.give_back(armed.source);
    }
}

/// A number that looks unlike `last`: splitmix64, <https://prng.di.unimi.it/splitmix64.c>.
fn next_random(last: u64) -> u64 {
    let mut z = last.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_a_scan_found_first_says_where_its_stack_is() {
        const NEVER_NS: u64 = 3_600_000_000_000;
        crate::handler::install().unwrap();
        let mut threads = Threads::new(Engine::Timer, NEVER_NS, 100.0);
        let tid = crate::sys::own_tid();
        threads.add(tid, 0..0);
        let slot = threads.armed[&tid].slot;
        assert_eq!(slots::stack_of(slot), 0..0);
        threads.add(tid, 0x1000..0x9000);
        assert_eq!(slots::stack_of(slot), 0x1000..0x9000);
        // A later scan takes nothing away.
        threads.add(tid, 0..0);
        assert_eq!(slots::stack_of(slot), 0x1000..0x9000);
        assert_eq!(threads.armed.len(), 1);
    }
}
