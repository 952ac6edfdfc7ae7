//! Wall-clock time: a thread of its own looks at all threads, whether they run or wait.
//!
//! A thread that waits is not disturbed: its CPU clock says that it has not run since the last look,
//! so it still stands where it stood. Where it has moved, its stack is read from outside (`look`). A
//! thread that runs gets one signal, by a timer on its CPU clock: so the signal comes while it runs
//! and never ends a system call early. Only a waiting thread whose stack cannot be read from outside
//! is signalled where it waits, once for each wait.
//!
//! Every look counts the time since the last look at the same thread. So weights add up to the time
//! that threads lived, however few of them a tick looks at.
//!
//! | module | job |
//! |---|---|
//! | `sampler` | which thread is looked at when, what it counts |
//! | `thread` | what it knows of one |
//! | `stacks`, `dump` | all threads at one moment; what those that run put down |
//! | `settings` | what can be set |
//! | `started` | threads that start while it samples |
//! | `ask` | signals to threads that run |
//! | `look` | one look at a thread |
//! | `memory`, `outside`, `prologue` | its stack, the walk over it, its frame pointer |

mod ask;
mod dump;
mod look;
mod memory;
#[cfg_attr(not(target_arch = "x86_64"), path = "outside_unknown.rs")]
mod outside;
#[cfg(target_arch = "x86_64")]
mod prologue;
mod sampler;
mod settings;
mod stacks;
mod started;
mod thread;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use ask::{TOKEN, answer, give_back};
pub(crate) use dump::{DUMP_TOKEN, claim};
pub(crate) use memory::read as read_memory;
use sampler::Sampler;
pub(crate) use settings::Settings;
pub(crate) use stacks::{ThreadStack, all as stacks};
#[cfg(feature = "thread-hook")]
pub(crate) use started::thread_started;

use crate::context::Context;
use crate::fork::{Held, Lock};
use crate::modules::Generation;
use crate::threads::timer::monotonic_ns;

/// How long the end of a capture waits for threads that were just told to sample themselves: a few
/// of the kernel's ticks.
const SETTLE: Duration = Duration::from_millis(25);

static SAMPLER: Lock<Option<Sampler>> = Lock::new(None);
static RUNS: AtomicBool = AtomicBool::new(false);

/// What was seen of threads: some stack, for some time.
pub(crate) struct Seen {
    /// Leaf first; every address is inside its instruction.
    pub(crate) frames: Box<[u64]>,
    pub(crate) truncated: bool,
    pub(crate) generation: Arc<Generation>,
    pub(crate) context: Context,
    /// Looks.
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

fn sampler() -> MutexGuard<'static, Option<Sampler>> {
    SAMPLER.lock()
}

/// Threads can be looked at.
pub(crate) const SEES_THREADS: bool = true;

/// What threads wait for can be told.
pub(crate) const READS_STACKS: bool = outside::CAN_READ;

/// The sampler's thread.
pub(crate) struct Wall(Option<JoinHandle<()>>);

impl Wall {
    /// Looks at all threads once, and from now on again and again.
    pub(crate) fn start(
        settings: &Settings,
        max_depth: usize,
        generation: &Arc<Generation>,
    ) -> Wall {
        let mut fresh = Sampler::new(settings.clone(), max_depth, Arc::clone(generation));
        fresh.scan();
        fresh.round(monotonic_ns());
        *sampler() = Some(fresh);
        RUNS.store(true, Ordering::SeqCst);
        let thread = std::thread::Builder::new().name("pilotlight-wall".into());
        // Without a thread only the looks at begin and end of captures are made.
        Wall(thread.spawn(run).ok())
    }

    /// Modules as they are now.
    pub(crate) fn publish(&self, generation: &Arc<Generation>) {
        if let Some(sampler) = sampler().as_mut() {
            sampler.publish(Arc::clone(generation));
        }
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        RUNS.store(false, Ordering::SeqCst);
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
        *sampler() = None;
    }
}

/// Looks at every thread, so that all time up to now is counted, and waits for those that run.
pub(crate) fn settle() {
    let until = Instant::now() + SETTLE;
    if let Some(sampler) = sampler().as_mut() {
        sampler.round(monotonic_ns());
    }
    while sampler().as_ref().is_some_and(Sampler::is_asking) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What was seen since the last call; with `all`, also of threads that still stand where they stood.
pub(crate) fn take(all: bool) -> Vec<Seen> {
    sampler()
        .as_mut()
        .map_or_else(Vec::new, |sampler| sampler.take(all))
}

/// Nanoseconds of threads that ran and were not sampled yet.
pub(crate) fn unanswered_ns() -> u64 {
    sampler().as_ref().map_or(0, Sampler::unanswered_ns)
}

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &SAMPLER
}

/// A forked child has no sampler, and its timers are the parent's.
pub(crate) fn forget_in_child() {
    RUNS.store(false, Ordering::SeqCst);
    stacks::forget_in_child();
    std::mem::forget(sampler().take());
}

/// The sampler's thread: absolute deadlines, so that neither a late wake-up nor a signal shifts them.
fn run() {
    block_foreign_signals();
    let mut next_ns = monotonic_ns();
    while RUNS.load(Ordering::SeqCst) {
        let Some(pause_ns) = sampler().as_mut().map(Sampler::pause_ns) else {
            return;
        };
        // A machine that did not let this run owes no burst of ticks: weights are real time.
        next_ns = (next_ns + pause_ns).max(monotonic_ns());
        sleep_until(next_ns);
        if let Some(sampler) = sampler().as_mut() {
            sampler.tick();
        }
    }
}

fn sleep_until(at_ns: u64) {
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as _,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    let absolute = libc::TIMER_ABSTIME;
    // SAFETY: reads `at`; the rest is not asked for with absolute times.
    while unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, absolute, &at, std::ptr::null_mut())
    } == libc::EINTR
    {}
}

/// The program's handlers run on the program's threads. SIGPROF stays: this thread's CPU time is
/// sampled like any other.
fn block_foreign_signals() {
    // SAFETY: the set is plain data, filled before use; the mask is the calling thread's.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::sigdelset(&mut set, libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}
