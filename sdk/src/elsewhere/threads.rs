//! One timer for the process; see `threads` for what Linux does.

use std::sync::MutexGuard;
use std::time::Duration;

#[path = "../threads/choice.rs"]
mod choice;
#[path = "../threads/created.rs"]
pub(crate) mod created;
#[path = "../threads/process.rs"]
mod process;
#[path = "../threads/unsampled.rs"]
mod unsampled;

pub use choice::Engine;
pub(crate) use unsampled::Unsampled;

use crate::fork::{Held, Lock};
use crate::stats::COUNTERS;
use crate::{slots, sys};
use process::ProcessTimer;

/// What a sample costs at most, nanoseconds: unwinding by libgcc.
const SAMPLE_NS: u64 = 60_000;

static ARMED: Lock<Option<Armed>> = Lock::new(None);

/// While captures run.
struct Armed {
    _timer: Option<ProcessTimer>,
    /// CPU time of the process when it was last told.
    told_ns: u64,
}

fn armed() -> MutexGuard<'static, Option<Armed>> {
    ARMED.lock()
}

/// Nothing stands before `pthread_create` here.
pub(crate) fn keep_hook() {}

/// Samples whichever thread runs, at a rate within the budget.
pub(crate) fn arm(_engine: Engine, period: Duration, budget_percent: f64) {
    // The unwinder loads what it needs before a handler asks for it.
    backtrace::trace(|_| true);
    let period_ns = period.as_nanos() as u64;
    slots::set_period(period_ns);
    let now = sys::process_clock_ns();
    slots::give(slots::PROCESS, 0, 0..0, now);
    let least_ns = (SAMPLE_NS as f64 * 100.0 / budget_percent) as u64;
    let stretch = least_ns.div_ceil(period_ns).max(1);
    let timer = ProcessTimer::start(period_ns * stretch);
    COUNTERS.timers_refused.add(u64::from(timer.is_none()));
    COUNTERS.held_hz.set(1_000_000_000 / (period_ns * stretch));
    *armed() = Some(Armed {
        _timer: timer,
        told_ns: now,
    });
}

/// Ends all sampling.
pub(crate) fn disarm() {
    drop(armed().take());
}

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &ARMED
}

/// A forked child has no timer.
pub(crate) fn forget_in_child() {
    slots::set_process_timer(false);
    std::mem::forget(armed().take());
}

/// The timer knows no threads.
pub(crate) fn scan() {}

/// Periods of CPU time without a stack; with `settle`, all that no sample accounts for so far.
pub(crate) fn take_unsampled(settle: bool) -> Unsampled {
    let mut taken = Unsampled::default();
    if let Some(armed) = armed().as_mut() {
        let now = sys::process_clock_ns();
        let told_ns = std::mem::replace(&mut armed.told_ns, now);
        COUNTERS.sampled_cpu_ns.add(now.saturating_sub(told_ns));
        if settle {
            taken.behind = slots::settle(slots::PROCESS, now);
            COUNTERS.between_ticks.add(taken.behind);
        }
    }
    taken
}
