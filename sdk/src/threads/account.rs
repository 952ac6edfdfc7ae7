//! The account of CPU time: what no sample stands for is told with its reason.

use std::time::{Duration, Instant};

use super::timer::{self, thread_clock_ns};
use super::unsampled::Unsampled;
use super::{Armed, Threads, next_random};
use crate::slots;
use crate::stats::COUNTERS;

/// Threads that no signal reached for so long are asked whether they block it; fork does so for a
/// moment only.
const SILENCE_NS: u64 = 1_000_000_000;

/// How often threads are asked for their clocks, unless a capture ends.
const ASKED_EVERY: Duration = Duration::from_millis(250);
/// Timers that get a new phase each time.
const REPHASED: u64 = 64;

impl Threads {
    /// What came up since the last call; with `settle`, all that samples do not account for so far.
    pub(super) fn take_unsampled(&mut self, settle: bool) -> Unsampled {
        let recent = |told: Instant| told.elapsed() < ASKED_EVERY;
        if !settle && self.told.is_some_and(recent) {
            return Unsampled::default();
        }
        self.told = Some(Instant::now());
        // The process clock first: what threads run meanwhile must not look unseen.
        let process_clock_ns = timer::process_clock_ns();
        let process_ns = process_clock_ns.saturating_sub(self.process_clock_at_start_ns);
        let told_ns = std::mem::replace(&mut self.process_ns, process_ns);
        COUNTERS
            .sampled_cpu_ns
            .add(process_ns.saturating_sub(told_ns));
        let mut fresh = Unsampled::default();
        if self.process_timer.is_some() {
            if settle {
                fresh.behind = slots::settle(slots::PROCESS, process_clock_ns);
            }
        } else {
            self.of_threads(process_ns, settle, &mut fresh);
        }
        self.hold_budget();
        COUNTERS.unseen.add(fresh.unseen);
        COUNTERS.blocked.add(fresh.blocked);
        COUNTERS.between_ticks.add(fresh.behind);
        fresh
    }

    fn of_threads(&mut self, process_ns: u64, settle: bool, fresh: &mut Unsampled) {
        let mut seen_ns = self.ended_ns;
        let at_ns = timer::monotonic_ns();
        let one_in = (self.armed.len() as u64 / REPHASED).max(1);
        let mut random = self.random();
        for (tid, armed) in &mut self.armed {
            let now = thread_clock_ns(*tid).unwrap_or(armed.clock_ns);
            let now = now.max(armed.clock_ns);
            seen_ns += now.saturating_sub(armed.clock_at_start_ns);
            // None stays in step with periodic work of its thread.
            random = next_random(random);
            if now > armed.clock_ns && random.is_multiple_of(one_in) {
                armed.rephase(random, self.period_ns * self.budget.stretch);
            }
            armed.clock_ns = now;
            if armed.is_silent(at_ns) && armed.waits(now, self.period_ns) && blocks_signal(*tid) {
                fresh.blocked += slots::settle(armed.slot, now);
            } else if settle {
                fresh.behind += slots::settle(armed.slot, now);
            }
        }
        let unseen = process_ns.saturating_sub(seen_ns) / self.period_ns;
        fresh.unseen = unseen.saturating_sub(self.unseen);
        self.unseen += fresh.unseen;
    }
}

impl Armed {
    /// The next sample comes after any part of a period.
    fn rephase(&self, random: u64, period_ns: u64) {
        let first_ns = 1 + (random >> 16) % period_ns;
        // By a sixteenth at most: the rate stays, on average.
        let varied_ns = period_ns - period_ns / 16 + (random >> 32) % (period_ns / 8 + 1);
        self.source.set(first_ns, varied_ns);
    }

    /// More than a late signal would explain is not accounted for.
    fn waits(&self, clock_ns: u64, period_ns: u64) -> bool {
        let behind_ns = clock_ns.wrapping_sub(slots::accounted_ns(self.slot)) as i64;
        behind_ns >= 2 * period_ns as i64
    }

    /// No signal came for a long time.
    fn is_silent(&mut self, at_ns: u64) -> bool {
        let signals = slots::signals(self.slot);
        if signals != self.heard {
            (self.heard, self.heard_at_ns) = (signals, at_ns);
        }
        at_ns.saturating_sub(self.heard_at_ns) >= SILENCE_NS
    }
}

/// The signal mask of a thread holds SIGPROF.
fn blocks_signal(tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
    let mask = status.as_deref().ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    mask.is_some_and(|mask| mask >> (libc::SIGPROF - 1) & 1 == 1)
}
