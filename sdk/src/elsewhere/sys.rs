//! Clocks, errno and registers by libc.

#[path = "../sys/mask.rs"]
mod mask;

use std::mem::MaybeUninit;

pub(crate) use mask::{Blocked, block_sigprof};

/// Where the calling thread's errno is. Async-signal-safe.
pub(crate) fn errno() -> *mut libc::c_int {
    // SAFETY: no arguments, cannot fail.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        libc::__errno_location()
    }
    // SAFETY: no arguments, cannot fail.
    #[cfg(target_vendor = "apple")]
    unsafe {
        libc::__error()
    }
}

/// CPU time of the calling thread, nanoseconds. Async-signal-safe.
pub(crate) fn own_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, nanoseconds. Async-signal-safe.
pub(crate) fn process_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: fills `time`; zeros are one too, should it refuse.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A number of the calling thread that no other has now.
pub(crate) fn own_tid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() as usize as i32 }
}

/// Libraries that hold this code are the program's affair here.
pub(crate) fn pin_code(_address: usize) {}

/// A signal that no process sent.
pub(crate) fn is_by_kernel(info: &libc::siginfo_t) -> bool {
    /// The kernel itself: what `ITIMER_PROF` says on Linux.
    const SI_KERNEL: i32 = 0x80;
    // Others say nothing of their timer's signals.
    !cfg!(target_os = "linux") || info.si_code == SI_KERNEL
}

/// Where the code was interrupted, by the handler's third argument.
pub(crate) fn interrupted(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel hands a whole ucontext.
    let context = unsafe { &*context };
    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    // SAFETY: as above.
    return unsafe { (*context.uc_mcontext).__ss.__pc };
    #[cfg(all(target_vendor = "apple", target_arch = "x86_64"))]
    // SAFETY: as above.
    return unsafe { (*context.uc_mcontext).__ss.__rip };
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    return context.uc_mcontext.pc;
}
