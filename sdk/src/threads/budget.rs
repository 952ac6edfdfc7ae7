//! Keeps the share of CPU time that sampling takes below what the user set: the rate falls first.

use std::time::{Duration, Instant};

use super::choice::Engine;
use super::engines::Source;
use super::timer::ticks_per_second;
use super::{Threads, price};
use crate::stats::COUNTERS;
use crate::{heap, sys};

/// How often the share is looked at.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// Of what is left for samples; the rest is for what is not foreseen.
const USED: f64 = 0.8;
/// Frames of a stack before any was seen.
const USUAL_FRAMES: u64 = 40;

/// What was spent up to a moment.
#[derive(Clone, Copy)]
struct Spent {
    process_ns: u64,
    /// By the background thread.
    own_ns: u64,
    /// On looks at allocations.
    heap_ns: u64,
    samples: u64,
    frames: u64,
    /// Threads that left a CPU.
    switches: u64,
}

/// The share that may be taken, and the rate that follows from it.
pub(super) struct Budget {
    /// Of the process's CPU time, above 0, up to 1.
    share: f64,
    /// A sample each so many periods.
    pub(super) stretch: u64,
    last: Option<(Instant, Spent)>,
}

impl Spent {
    fn so_far(process_ns: u64) -> Spent {
        Spent {
            process_ns,
            own_ns: sys::own_clock_ns(),
            heap_ns: heap::spent_ns(),
            samples: COUNTERS.cpu_samples.get(),
            frames: COUNTERS.frames.get(),
            switches: switches(),
        }
    }
}

/// Times that threads of this process left a CPU.
fn switches() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills it; zeros are a value too, should it refuse.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw as u64 + usage.ru_nivcsw as u64
}

/// A sample each so many periods, so that samples take `share` of the CPU time at most.
fn stretch(rate_hz: u64, price_ns: u64, share: f64) -> u64 {
    let asked = rate_hz as f64 * price_ns as f64 * 1e-9;
    ((asked / share.max(1e-6)).ceil() as u64).clamp(1, rate_hz.max(1))
}

impl Budget {
    /// At `rate_hz` before anything was spent; and whether perf events give more stacks than timers
    /// within the budget.
    pub(super) fn new(percent: f64, rate_hz: u64, asked: Engine) -> (Budget, bool) {
        let share = percent / 100.0;
        let at = |price_ns| stretch(rate_hz, price_ns, share * USED);
        let may_use_perf = match asked {
            Engine::Auto => rate_hz > ticks_per_second(),
            other => other == Engine::Perf,
        };
        let by_perf = may_use_perf.then(|| at(price::by_perf_ns(USUAL_FRAMES)));
        let is_finer =
            |stretch: &u64| asked == Engine::Perf || rate_hz / stretch > ticks_per_second();
        let by_perf = by_perf.filter(is_finer);
        let budget = Budget {
            share,
            stretch: by_perf.unwrap_or_else(|| at(price::by_timer_ns(USUAL_FRAMES))),
            last: None,
        };
        COUNTERS.held_hz.set(rate_hz / budget.stretch);
        (budget, by_perf.is_some())
    }
}

impl Threads {
    /// Looks at what was spent, and changes rate and engine where that is too much or too little.
    pub(super) fn hold_budget(&mut self) {
        let now = Spent::so_far(self.process_ns);
        let (looked, before) = *self.budget.last.get_or_insert((Instant::now(), now));
        if looked.elapsed() < LOOKED_EVERY {
            return;
        }
        self.budget.last = Some((Instant::now(), now));
        let cpu_ns = now.process_ns.saturating_sub(before.process_ns);
        let samples = now.samples - before.samples;
        // Too little to judge by.
        if cpu_ns < 50_000_000 {
            return;
        }
        let frames = match samples {
            0 => USUAL_FRAMES,
            _ => (now.frames - before.frames) / samples,
        };
        let allowed_ns = self.budget.share * cpu_ns as f64;
        let heap_ns = now.heap_ns.saturating_sub(before.heap_ns);
        let mut other_ns = (now.own_ns - before.own_ns + heap_ns) as f64;
        let uses_perf = self.supply.uses_perf();
        if uses_perf {
            let switches_ns = ((now.switches - before.switches) * price::PERF_SWITCH_NS) as f64;
            if switches_ns > allowed_ns / 2.0 {
                return self.without_perf();
            }
            other_ns += switches_ns;
        }
        let price_ns = match uses_perf {
            true => price::by_perf_ns(frames),
            false => price::by_timer_ns(frames),
        };
        // What does not come from samples cannot be lowered here; a tenth is left to them always.
        let for_samples_ns = (allowed_ns - other_ns).max(allowed_ns / 10.0) * USED;
        let rate_hz = 1_000_000_000 / self.period_ns;
        let wanted = stretch(rate_hz, price_ns, for_samples_ns / cpu_ns as f64);
        self.set_stretch(wanted);
    }

    /// Perf events cost too much for how often threads come and go: timers.
    fn without_perf(&mut self) {
        self.supply.stop_perf();
        let rate_hz = 1_000_000_000 / self.period_ns;
        let price_ns = price::by_timer_ns(USUAL_FRAMES);
        self.budget.stretch = stretch(rate_hz, price_ns, self.budget.share * USED);
        let by_perf = |armed: &super::Armed| matches!(armed.source, Source::Perf(_));
        let tids = self.armed.iter().filter(|(_, armed)| by_perf(armed));
        for tid in tids.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.change_source(tid);
        }
        COUNTERS.held_hz.set(rate_hz / self.budget.stretch);
    }

    /// Small changes are not worth the calls.
    fn set_stretch(&mut self, wanted: u64) {
        let now = self.budget.stretch;
        if wanted == now || (wanted < now && wanted * 5 > now * 4) {
            return;
        }
        self.budget.stretch = wanted;
        COUNTERS
            .held_hz
            .set(1_000_000_000 / (self.period_ns * wanted).max(1));
        let period_ns = self.period_ns * wanted;
        if let Some(timer) = &self.process_timer {
            timer.set(period_ns);
        }
        let mut random = self.random();
        for armed in self.armed.values() {
            random = super::next_random(random);
            armed.source.set(1 + random % period_ns, period_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_as_far_as_the_share_demands() {
        // 10 µs at 1,000 Hz are 1 %.
        assert_eq!(stretch(1000, 10_000, 0.02), 1);
        assert_eq!(stretch(1000, 10_000, 0.01), 1);
        assert_eq!(stretch(1000, 10_000, 0.004), 3);
        // Never slower than one a second.
        assert_eq!(stretch(1000, 10_000, 0.0), 1000);
    }
}
