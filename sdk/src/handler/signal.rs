//! What a signal means, and what is done about it.

use super::install::forward;
use super::marks::{is_marked, mark};
use super::sample::{dump, sample, sample_wall};
use crate::slots::{self, TOKEN, Weight};
use crate::stats::COUNTERS;
use crate::{sys, wall};

/// The head of the kernel's siginfo, as timers and `sigqueue` fill it; perf events put their band
/// over the two numbers, and their descriptor in the low half of the value.
#[repr(C)]
struct SignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    timer_or_pid: i32,
    overrun_or_uid: i32,
    value: u64,
}

/// What a signal is for.
enum Meaning {
    /// A slot's CPU time; and periods, where only the sender knows.
    Cpu(u32, u64),
    /// The thread's stack, for a slot of the wall clock.
    Wall(u32),
    /// The thread's stack, for a slot of a dump of all.
    Dump(u32),
    /// Its own price is measured.
    Nothing,
    /// Not ours.
    Foreign,
}

impl SignalInfo {
    fn meaning(&self) -> Meaning {
        /// Input is there: what a perf event says by `F_SETSIG`.
        const POLL_IN: i32 = 1;
        /// The kernel itself: what `ITIMER_PROF` says.
        const SI_KERNEL: i32 = 0x80;
        let (token, slot) = ((self.value >> 32) as u32, self.value as u32);
        match (self.code, token) {
            (libc::SI_QUEUE, TOKEN) if slot == slots::NOBODY => Meaning::Nothing,
            (libc::SI_TIMER, TOKEN) => {
                COUNTERS.by_timer.add(1);
                Meaning::Cpu(slot, 1 + self.overrun_or_uid.max(0) as u64)
            }
            (libc::SI_QUEUE, TOKEN) => Meaning::Cpu(slot, 1),
            (libc::SI_TIMER | libc::SI_QUEUE, wall::TOKEN) => Meaning::Wall(slot),
            (libc::SI_TIMER, wall::DUMP_TOKEN) => Meaning::Dump(slot),
            (POLL_IN, _) => match slots::of_descriptor(slot as i32) {
                slots::NONE => Meaning::Foreign,
                slots::NOBODY => Meaning::Nothing,
                slot => {
                    COUNTERS.by_perf.add(1);
                    Meaning::Cpu(slot, 1)
                }
            },
            (SI_KERNEL, _) if slots::process_timer_runs() => {
                COUNTERS.by_process_timer.add(1);
                Meaning::Cpu(slots::PROCESS, 1)
            }
            _ => Meaning::Foreign,
        }
    }
}

pub(super) extern "C" fn on_sigprof(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno_location = sys::errno();
    // SAFETY: the calling thread's own.
    let errno = unsafe { *errno_location };
    // Two handlers that each keep the other as "previous" call each other: the second round ends here.
    if is_marked(errno_location as usize) {
        return;
    }
    mark(errno_location as usize, true);
    // SAFETY: the kernel hands a siginfo_t of at least these fields.
    match unsafe { &*info.cast::<SignalInfo>() }.meaning() {
        Meaning::Cpu(slot, sent) => {
            let weight = match slot {
                slots::NONE => Weight::Periods(sent),
                _ => slots::weigh(slot, errno_location as usize),
            };
            // SAFETY: the context is the interrupted one of this thread.
            unsafe { sample(slot, weight, context.cast()) };
        }
        // SAFETY: as above.
        Meaning::Wall(slot) => unsafe { sample_wall(slot, context.cast()) },
        // SAFETY: as above.
        Meaning::Dump(slot) => unsafe { dump(slot, context.cast()) },
        Meaning::Nothing => {}
        Meaning::Foreign => {
            COUNTERS.forwarded.add(1);
            forward(signal, info, context);
        }
    }
    mark(errno_location as usize, false);
    // SAFETY: as above.
    unsafe { *errno_location = errno };
}
