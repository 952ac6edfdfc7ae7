//! What happened to every signal.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that a signal handler may add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one; what it was before.
    pub(crate) fn number(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// For what is a level rather than a count.
    pub(crate) fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) delivered: Counter,
    pub(crate) taken: Counter,
    pub(crate) ring_full: Counter,
    pub(crate) busy: Counter,
    pub(crate) off: Counter,
    pub(crate) early: Counter,
    pub(crate) stray: Counter,
    pub(crate) cpu_samples: Counter,
    pub(crate) frames: Counter,
    pub(crate) held_hz: Counter,
    pub(crate) by_perf: Counter,
    pub(crate) by_timer: Counter,
    pub(crate) by_process_timer: Counter,
    pub(crate) sampled_cpu_ns: Counter,
    pub(crate) expiries: Counter,
    pub(crate) expiries_lost: Counter,
    pub(crate) truncated: Counter,
    pub(crate) incomplete: Counter,
    pub(crate) forwarded: Counter,
    pub(crate) over_budget: Counter,
    pub(crate) timers_refused: Counter,
    pub(crate) between_ticks: Counter,
    pub(crate) unseen: Counter,
    pub(crate) blocked: Counter,
    pub(crate) wall_ticks: Counter,
    pub(crate) wall_ticks_cut: Counter,
    pub(crate) wall_looks: Counter,
    pub(crate) wall_unmoved: Counter,
    pub(crate) wall_read: Counter,
    pub(crate) wall_partial: Counter,
    pub(crate) wall_asked: Counter,
    pub(crate) wall_woken: Counter,
    pub(crate) wall_refused: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) snapshots_leaked: Counter,
    pub(crate) names_over_memory: Counter,
    pub(crate) pushed: Counter,
    pub(crate) push_failed_tries: Counter,
    pub(crate) push_lost_queue_full: Counter,
    pub(crate) push_lost_refused: Counter,
    pub(crate) push_lost_unsent: Counter,
    pub(crate) push_lost_taking: Counter,
    pub(crate) labels_cut: Counter,
    pub(crate) labels_dropped: Counter,
    pub(crate) label_sets_overflowed: Counter,
    pub(crate) labels_lost: Counter,
    pub(crate) span_stacks_overflowed: Counter,
    pub(crate) heap_looks: Counter,
    pub(crate) waits: Counter,
    pub(crate) waits_ns: Counter,
    pub(crate) waits_kept: Counter,
}

pub(crate) static COUNTERS: Counters = Counters {
    delivered: Counter::new(),
    taken: Counter::new(),
    ring_full: Counter::new(),
    busy: Counter::new(),
    off: Counter::new(),
    early: Counter::new(),
    stray: Counter::new(),
    cpu_samples: Counter::new(),
    frames: Counter::new(),
    held_hz: Counter::new(),
    by_perf: Counter::new(),
    by_timer: Counter::new(),
    by_process_timer: Counter::new(),
    sampled_cpu_ns: Counter::new(),
    expiries: Counter::new(),
    expiries_lost: Counter::new(),
    truncated: Counter::new(),
    incomplete: Counter::new(),
    forwarded: Counter::new(),
    over_budget: Counter::new(),
    timers_refused: Counter::new(),
    between_ticks: Counter::new(),
    unseen: Counter::new(),
    blocked: Counter::new(),
    wall_ticks: Counter::new(),
    wall_ticks_cut: Counter::new(),
    wall_looks: Counter::new(),
    wall_unmoved: Counter::new(),
    wall_read: Counter::new(),
    wall_partial: Counter::new(),
    wall_asked: Counter::new(),
    wall_woken: Counter::new(),
    wall_refused: Counter::new(),
    snapshots: Counter::new(),
    snapshots_leaked: Counter::new(),
    names_over_memory: Counter::new(),
    pushed: Counter::new(),
    push_failed_tries: Counter::new(),
    push_lost_queue_full: Counter::new(),
    push_lost_refused: Counter::new(),
    push_lost_unsent: Counter::new(),
    push_lost_taking: Counter::new(),
    labels_cut: Counter::new(),
    labels_dropped: Counter::new(),
    label_sets_overflowed: Counter::new(),
    labels_lost: Counter::new(),
    span_stacks_overflowed: Counter::new(),
    heap_looks: Counter::new(),
    waits: Counter::new(),
    waits_ns: Counter::new(),
    waits_kept: Counter::new(),
};

/// Counts since the process started. `taken + dropped() == delivered`, but for signals that are being
/// handled at the moment of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Signals of ours that the handler got.
    pub delivered: u64,
    /// Signals that became a sample, or told registers that a sample from outside needed.
    pub taken: u64,
    /// Signals dropped because the ring was full: the aggregator did not keep up.
    pub dropped_ring_full: u64,
    /// Signals dropped because all scratch buffers were in use by other threads.
    pub dropped_busy: u64,
    /// Signals that arrived while nobody was capturing, at the end of a capture.
    pub dropped_off: u64,
    /// Signals that came before half a period of CPU time had passed since the last sample of their
    /// thread: its next sample stands for that time.
    pub dropped_early: u64,
    /// Signals for a thread that ended, and whose place another one has now.
    pub dropped_stray: u64,
    /// Samples of CPU time, among those taken.
    pub cpu_samples: u64,
    /// Samples per second of CPU time that the CPU budget leaves of those asked for; not counted up.
    pub held_hz: u64,
    /// Signals of perf events: [`crate::Engine::Perf`].
    pub by_perf: u64,
    /// Signals of threads' timers: [`crate::Engine::Timer`].
    pub by_timer: u64,
    /// Signals of the process's timer: [`crate::Engine::ProcessTimer`].
    pub by_process_timer: u64,
    /// CPU time of this process while captures ran, nanoseconds: `cpu_samples` in this time is the
    /// rate that was achieved.
    pub sampled_cpu_ns: u64,
    /// Periods of CPU time that the taken signals stand for: a signal carries those that passed since
    /// the last one of its thread.
    pub expiries: u64,
    /// Periods of CPU time of signals that were dropped while a capture ran; in profiles under
    /// `[dropped samples]`.
    pub expiries_lost: u64,
    /// Taken samples whose stack is deeper than the configured depth.
    pub truncated: u64,
    /// Taken samples whose walk ended before the root for want of unwind information.
    pub incomplete: u64,
    /// Signals that were not ours, handed to the handler that was there before.
    pub forwarded: u64,
    /// Samples put under `[over the memory budget]`.
    pub over_budget: u64,
    /// Threads that no engine samples, because the system refused (`RLIMIT_SIGPENDING`,
    /// `RLIMIT_NOFILE`) or 16,382 are sampled; each counts once a capture. Their CPU time is under `[threads that ended unsampled]`.
    pub timers_refused: u64,
    /// Periods of CPU time behind the last sample of a thread that ended, or of a capture; in profiles
    /// under `[ended between two ticks]`.
    pub between_ticks: u64,
    /// Expiries of threads that lived and ended unseen, or have no timer; in profiles under
    /// `[threads that ended unsampled]`.
    pub unseen: u64,
    /// Expiries of threads that block SIGPROF; in profiles under
    /// `[threads that block SIGPROF]`.
    pub blocked: u64,
    /// Ticks of the sampler of wall-clock time.
    pub wall_ticks: u64,
    /// Ticks that looked at fewer threads than set, so as to use no more than 1 % of a CPU.
    pub wall_ticks_cut: u64,
    /// Looks at a thread.
    pub wall_looks: u64,
    /// Looks that found a waiting thread where it was: counted again, nothing read.
    pub wall_unmoved: u64,
    /// Looks that read a waiting thread's stack from outside.
    pub wall_read: u64,
    /// Of those, stacks that could not be read to the root; in profiles under `[truncated]`.
    pub wall_partial: u64,
    /// Looks that found a thread running: asked to sample itself while it runs.
    pub wall_asked: u64,
    /// Signals to waiting threads, whose stack could not be read from outside: these may end a
    /// system call with `EINTR`.
    pub wall_woken: u64,
    /// Threads that could not be asked (`RLIMIT_SIGPENDING`, or they ended).
    pub wall_refused: u64,
    /// Module snapshots published.
    pub snapshots: u64,
    /// Snapshots that were never freed, because a handler was stopped while it held one.
    pub snapshots_leaked: u64,
    /// Addresses in profiles that lack lines and inlined functions, or any name, because names may
    /// hold no more memory ([`Config::symbolize_bytes`](crate::Config::symbolize_bytes)).
    pub names_over_memory: u64,
    /// Profiles that a server took (feature `push`, as all of `push_…`).
    pub pushed: u64,
    /// Tries that failed and were made again, or given up.
    pub push_failed_tries: u64,
    /// Profiles dropped because the server was away for longer than the queue holds.
    pub push_lost_queue_full: u64,
    /// Profiles that the server refused for good (most statuses of 4xx).
    pub push_lost_refused: u64,
    /// Profiles given up after ten tries, or at the end of the process.
    pub push_lost_unsent: u64,
    /// Profiles that could not be taken.
    pub push_lost_taking: u64,
    /// Keys and values of labels that were cut to their limit.
    pub labels_cut: u64,
    /// Labels left out because their set had 16 already.
    pub labels_dropped: u64,
    /// Label sets that became `labels="[overflow]"`, because all 16,384 or 4 MiB are held, or a
    /// capture's budget is used up.
    pub label_sets_overflowed: u64,
    /// Label sets that made room for others before a sample of theirs was read; the sample has none.
    pub labels_lost: u64,
    /// Logical stacks that became `[overflow]`, because there were 16,384 already.
    pub span_stacks_overflowed: u64,
    /// Allocations that [`Alloc`](crate::Alloc) looked at.
    pub heap_looks: u64,
    /// Mean bytes between two of them: the interval in effect, which the budget may have made longer
    /// than asked for; 0 is off.
    pub heap_interval_bytes: u64,
    /// Waits of threads for each other that were timed: see [`Config::lock_rate_ns`].
    ///
    /// [`Config::lock_rate_ns`]: crate::Config::lock_rate_ns
    pub waits: u64,
    /// How long these took together, nanoseconds.
    pub waits_ns: u64,
    /// Those of them that are in the profiles; the others are accounted for by weight.
    pub waits_kept: u64,
}

impl Stats {
    /// Signals that became no sample, for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_ring_full
            + self.dropped_busy
            + self.dropped_off
            + self.dropped_early
            + self.dropped_stray
    }
}

/// Counts since the process started.
#[must_use]
pub fn stats() -> Stats {
    let c = &COUNTERS;
    // Outcomes before `delivered`: never more outcomes than signals.
    Stats {
        taken: c.taken.get(),
        dropped_ring_full: c.ring_full.get(),
        dropped_busy: c.busy.get(),
        dropped_off: c.off.get(),
        dropped_early: c.early.get(),
        dropped_stray: c.stray.get(),
        cpu_samples: c.cpu_samples.get(),
        held_hz: c.held_hz.get(),
        by_perf: c.by_perf.get(),
        by_timer: c.by_timer.get(),
        by_process_timer: c.by_process_timer.get(),
        sampled_cpu_ns: c.sampled_cpu_ns.get(),
        expiries: c.expiries.get(),
        expiries_lost: c.expiries_lost.get(),
        truncated: c.truncated.get(),
        incomplete: c.incomplete.get(),
        forwarded: c.forwarded.get(),
        over_budget: c.over_budget.get(),
        timers_refused: c.timers_refused.get(),
        between_ticks: c.between_ticks.get(),
        unseen: c.unseen.get(),
        blocked: c.blocked.get(),
        wall_ticks: c.wall_ticks.get(),
        wall_ticks_cut: c.wall_ticks_cut.get(),
        wall_looks: c.wall_looks.get(),
        wall_unmoved: c.wall_unmoved.get(),
        wall_read: c.wall_read.get(),
        wall_partial: c.wall_partial.get(),
        wall_asked: c.wall_asked.get(),
        wall_woken: c.wall_woken.get(),
        wall_refused: c.wall_refused.get(),
        snapshots: c.snapshots.get(),
        snapshots_leaked: c.snapshots_leaked.get(),
        names_over_memory: c.names_over_memory.get(),
        pushed: c.pushed.get(),
        push_failed_tries: c.push_failed_tries.get(),
        push_lost_queue_full: c.push_lost_queue_full.get(),
        push_lost_refused: c.push_lost_refused.get(),
        push_lost_unsent: c.push_lost_unsent.get(),
        push_lost_taking: c.push_lost_taking.get(),
        labels_cut: c.labels_cut.get(),
        labels_dropped: c.labels_dropped.get(),
        label_sets_overflowed: c.label_sets_overflowed.get(),
        labels_lost: c.labels_lost.get(),
        span_stacks_overflowed: c.span_stacks_overflowed.get(),
        heap_looks: c.heap_looks.get(),
        heap_interval_bytes: crate::heap::interval_bytes(),
        waits: c.waits.get(),
        waits_ns: c.waits_ns.get(),
        waits_kept: c.waits_kept.get(),
        delivered: c.delivered.get(),
    }
}
