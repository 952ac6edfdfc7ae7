//! What a signal means: the process's timer, or somebody else's.

use super::install::forward;
use super::marks::{is_marked, mark};
use super::sample::sample;
use crate::stats::COUNTERS;
use crate::{slots, sys};

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
    // SAFETY: the kernel hands a siginfo_t.
    if slots::process_timer_runs() && sys::is_by_kernel(unsafe { &*info }) {
        COUNTERS.by_process_timer.add(1);
        let weight = slots::weigh(slots::PROCESS, errno_location as usize);
        sample(weight, sys::interrupted(context.cast()));
    } else {
        COUNTERS.forwarded.add(1);
        forward(signal, info, context);
    }
    mark(errno_location as usize, false);
    // SAFETY: as above.
    unsafe { *errno_location = errno };
}
