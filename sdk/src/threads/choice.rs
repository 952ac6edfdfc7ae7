//! Which engine is asked for.

/// What interrupts threads. Each falls back to those after it, as far as the system refuses it or its
/// share of the system's limits is used up: threads of one process may have different engines.
/// Profiles say in a comment which were used, and the rate that came out.
///
/// Whichever it is, a sample weighs the CPU time that its thread used since its last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// [`Engine::Timer`] for rates up to the kernel's tick (often 250 Hz), [`Engine::Perf`] above it.
    #[default]
    Auto,
    /// Perf events on each thread's task clock: as many stacks as were asked for, at any rate. Needs
    /// `CAP_PERFMON` or `kernel.perf_event_paranoid` below 2, and a file descriptor for each thread
    /// (a tenth of `RLIMIT_NOFILE` at most). Costs about 30 µs a sample and 4 µs each time that a
    /// thread comes and goes on a CPU. Never without time in the kernel.
    Perf,
    /// A POSIX CPU timer for each thread: served at the kernel's tick, so that stacks get no finer
    /// above it. Needs a pending signal for each thread (half of `RLIMIT_SIGPENDING` at most).
    Timer,
    /// `ITIMER_PROF`, one timer for the process: shares of threads are rougher. It is left alone
    /// where the program uses it.
    ///
    /// The kernel keeps this timer when a process executes another program, which SIGPROF then ends: a
    /// program that calls `exec` without a fork drops its [`Guard`](crate::Guard) before. The other
    /// engines end with the program, and a forked child has no timer.
    ProcessTimer,
}
