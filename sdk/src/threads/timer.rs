//! POSIX CPU timers that signal one thread, and the clocks they run on.
//! <https://man7.org/linux/man-pages/man2/timer_create.2.html>

use std::mem::MaybeUninit;

use crate::slots::TOKEN;
use crate::sys;

/// A timer on one thread's CPU clock.
#[derive(Debug)]
pub(crate) struct Timer {
    id: libc::c_int,
}

impl Timer {
    /// Whether this process may have a timer at all.
    pub(crate) fn probe() -> bool {
        Timer::create(sys::own_tid(), 0).is_some()
    }

    /// Signals thread `tid` first after `first_ns`, then every `period_ns` of its CPU time.
    /// `None` when the thread is gone or the system refuses.
    pub(crate) fn start(tid: i32, slot: u32, first_ns: u64, period_ns: u64) -> Option<Timer> {
        let timer = Timer::create(tid, u64::from(TOKEN) << 32 | u64::from(slot))?;
        timer.set(first_ns, period_ns).then_some(timer)
    }

    /// A timer that sends `value` to thread `tid`, once it is set.
    pub(crate) fn create(tid: i32, value: u64) -> Option<Timer> {
        // SAFETY: a zeroed sigevent is a valid value of the type.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = tid;
        event.sigev_value.sival_ptr = value as *mut _;
        let mut id: libc::c_int = 0;
        let clock = clock_of(tid);
        // SAFETY: the kernel reads `event` and writes `id`.
        let made = unsafe { libc::syscall(libc::SYS_timer_create, clock, &event, &mut id) };
        // Made only when there is one: dropping it deletes the timer of that id, whoever has it.
        (made == 0).then(|| Timer { id })
    }

    /// Fires first after `first_ns` of the thread's CPU time, then every `period_ns`; once when
    /// that is 0. False when the thread is gone.
    pub(crate) fn set(&self, first_ns: u64, period_ns: u64) -> bool {
        let times = libc::itimerspec {
            it_value: timespec(first_ns),
            it_interval: timespec(period_ns),
        };
        // SAFETY: the kernel reads `times`; the old value is not asked for.
        let set = unsafe {
            libc::syscall(
                libc::SYS_timer_settime,
                self.id,
                0,
                &times,
                std::ptr::null_mut::<libc::itimerspec>(),
            )
        };
        set == 0
    }
}

impl Drop for Timer {
    /// No signal of this timer is sent after it.
    fn drop(&mut self) {
        // SAFETY: the id is ours and was not deleted before.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.id) };
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// The CPU clock of a thread of this process, by the kernel's encoding
/// (`include/linux/posix-timers.h`: CPUCLOCK_SCHED of a thread).
fn clock_of(tid: i32) -> libc::clockid_t {
    const CPUCLOCK_PERTHREAD: libc::clockid_t = 4;
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    !tid << 3 | CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel fills `time` when it returns 0.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled.
    let time = unsafe { time.assume_init() };
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of a thread, nanoseconds; `None` when it is gone.
pub(crate) fn thread_clock_ns(tid: i32) -> Option<u64> {
    read(clock_of(tid))
}

/// CPU time of this process, nanoseconds, ended threads included.
pub(crate) fn process_clock_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Nanoseconds since some fixed moment.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// How often a second the kernel looks at CPU timers, by the resolution of its coarse clock.
pub(crate) fn ticks_per_second() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel fills `time` when it returns 0.
    if unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, time.as_mut_ptr()) } != 0 {
        return 100;
    }
    // SAFETY: filled.
    let tick_ns = unsafe { time.assume_init() }.tv_nsec.max(1);
    (1_000_000_000 / tick_ns) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_timer_deletes_nobody_elses() {
        // The first timer of a process has the id 0.
        let own = Timer::create(sys::own_tid(), 0).unwrap();
        let nobody = 4_194_303;
        assert!((0..4).all(|_| Timer::create(nobody, 0).is_none()));
        assert!(own.set(1_000_000_000, 0), "it is still there");
    }
}
