//! Which engine samples a thread, by what was asked for, what the system permits, and what is left.

use super::choice::Engine;
use super::perf::PerfEvent;
use super::process::ProcessTimer;
use super::timer::Timer;

/// What signals a thread; it does so until this is dropped.
#[derive(Debug)]
pub(super) enum Source {
    Perf(PerfEvent),
    Timer(Timer),
}

impl Source {
    /// Signals first after `first_ns` where the engine can tell the first apart, then every
    /// `period_ns`.
    pub(super) fn set(&self, first_ns: u64, period_ns: u64) {
        match self {
            Source::Perf(event) => event.set_period(period_ns),
            // It runs, so it can be set; what a refusal would lose, the next sample stands for.
            Source::Timer(timer) => drop(timer.set(first_ns, period_ns)),
        }
    }
}

/// How many threads have which engine, and how many may.
pub(super) struct Supply {
    perf: Share,
    timers: Share,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    used: usize,
    limit: usize,
}

impl Share {
    fn is_left(self) -> bool {
        self.used < self.limit
    }
}

impl Supply {
    /// What may be used; the process's timer where threads may have none.
    pub(super) fn probe(
        asked: Engine,
        wants_perf: bool,
        period_ns: u64,
    ) -> (Supply, Option<ProcessTimer>) {
        let perf = match wants_perf && PerfEvent::probe().is_ok() {
            true => limit(libc::RLIMIT_NOFILE) / 10,
            false => 0,
        };
        let timers = match asked != Engine::ProcessTimer && Timer::probe() {
            true => limit(libc::RLIMIT_SIGPENDING) / 2,
            false => 0,
        };
        let process = match perf == 0 && timers == 0 {
            true => ProcessTimer::start(period_ns),
            false => None,
        };
        // Asked for, but the program has it: timers then.
        if asked == Engine::ProcessTimer && process.is_none() {
            return Supply::probe(Engine::Timer, false, period_ns);
        }
        let share = |limit| Share { used: 0, limit };
        let supply = Supply {
            perf: share(perf),
            timers: share(timers),
        };
        (supply, process)
    }

    /// The best that is left for thread `tid`.
    pub(super) fn source(
        &mut self,
        tid: i32,
        slot: u32,
        first_ns: u64,
        period_ns: u64,
    ) -> Option<Source> {
        if self.perf.is_left()
            && let Ok(event) = PerfEvent::start(tid, slot, period_ns)
        {
            self.perf.used += 1;
            return Some(Source::Perf(event));
        }
        if !self.timers.is_left() {
            return None;
        }
        let timer = Timer::start(tid, slot, first_ns, period_ns)?;
        self.timers.used += 1;
        Some(Source::Timer(timer))
    }

    /// Whether threads have perf events.
    pub(super) fn uses_perf(&self) -> bool {
        self.perf.used > 0
    }

    /// No thread gets a perf event any more.
    pub(super) fn stop_perf(&mut self) {
        self.perf.limit = 0;
    }

    /// A thread's source is not used any more.
    pub(super) fn give_back(&mut self, source: Source) {
        match source {
            Source::Perf(_) => self.perf.used -= 1,
            Source::Timer(_) => self.timers.used -= 1,
        }
    }
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// A limit of this process, as it is now.
fn limit(resource: Resource) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills `limit` when it returns 0; otherwise it stays 0.
    unsafe { libc::getrlimit(resource, &mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
