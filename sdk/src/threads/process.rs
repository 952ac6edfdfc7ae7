//! `ITIMER_PROF`: one timer for the whole process, where no thread may have its own. The kernel signals
//! whichever thread runs at a tick, so shares of threads are rougher; sums are right all the same.
//! <https://man7.org/linux/man-pages/man2/setitimer.2.html>

use std::mem::MaybeUninit;

use crate::slots;

/// The process's timer; it has one only.
#[derive(Debug)]
pub(crate) struct ProcessTimer(());

impl ProcessTimer {
    /// Signals the process every `period_ns` of its CPU time; `None` when the program uses the timer
    /// itself, or the system refuses.
    pub(crate) fn start(period_ns: u64) -> Option<ProcessTimer> {
        let mut present = MaybeUninit::<libc::itimerval>::uninit();
        // SAFETY: the kernel fills `present` when it returns 0.
        let present = unsafe {
            if libc::getitimer(libc::ITIMER_PROF, present.as_mut_ptr()) != 0 {
                return None;
            }
            present.assume_init()
        };
        if present.it_value.tv_sec != 0 || present.it_value.tv_usec != 0 {
            return None;
        }
        slots::set_process_timer(true);
        let timer = ProcessTimer(());
        timer.set(period_ns).then_some(timer)
    }

    /// Signals every `period_ns` from now on.
    pub(crate) fn set(&self, period_ns: u64) -> bool {
        let micros = (period_ns / 1000).max(1);
        let time = libc::timeval {
            tv_sec: (micros / 1_000_000) as _,
            tv_usec: (micros % 1_000_000) as _,
        };
        set(time)
    }
}

fn set(time: libc::timeval) -> bool {
    let times = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: the kernel reads `times`; the old value is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &times, std::ptr::null_mut()) == 0 }
}

impl Drop for ProcessTimer {
    fn drop(&mut self) {
        set(libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        });
        slots::set_process_timer(false);
    }
}
