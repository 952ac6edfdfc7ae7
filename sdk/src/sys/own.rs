//! System calls of the signal handler, made without libc: a program may define `clock_gettime` or
//! `syscall` itself, with locks in them.

use std::mem::MaybeUninit;

#[cfg(not(miri))]
use super::arch::call;

/// Miri runs no assembly.
#[cfg(miri)]
unsafe fn call(number: libc::c_long, first: usize, second: usize) -> isize {
    // SAFETY: passed on to the caller.
    unsafe {
        match number {
            libc::SYS_gettid => libc::gettid() as isize,
            _ => libc::clock_gettime(first as _, second as *mut _) as isize,
        }
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
    // SAFETY: the kernel writes a timespec; zeros are one too, should it refuse.
    let time = unsafe {
        let at = time.as_mut_ptr() as usize;
        call(libc::SYS_clock_gettime, clock as usize, at);
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's id of the calling thread. Async-signal-safe.
pub(crate) fn own_tid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { call(libc::SYS_gettid, 0, 0) as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_ids_are_those_of_libc() {
        // SAFETY: no arguments.
        assert_eq!(own_tid(), unsafe { libc::gettid() });
        let (thread, process) = (own_clock_ns(), process_clock_ns());
        assert!(0 < thread && thread <= process, "{thread} {process}");
        assert!(own_clock_ns() > thread);
    }
}
