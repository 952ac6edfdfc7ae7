//! The profiling signal, blocked for the calling thread.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// What the calling thread's mask was.
#[derive(Clone, Copy)]
pub(crate) struct Blocked(libc::sigset_t);

/// Blocks SIGPROF in the calling thread until [`Blocked::restore`].
pub(crate) fn block_sigprof() -> Blocked {
    let mut old = MaybeUninit::uninit();
    // SAFETY: the mask is the calling thread's; the call fills the old one.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &sigprof(), old.as_mut_ptr());
        Blocked(old.assume_init())
    }
}

impl Blocked {
    /// Takes each SIGPROF that waits for the calling thread, for nobody.
    #[cfg(all(
        feature = "thread-hook",
        target_os = "linux",
        not(feature = "backtrace")
    ))]
    pub(crate) fn discard_waiting(&self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: reads the set and the time.
        while unsafe { libc::sigtimedwait(&sigprof(), null_mut(), &at_once) } == libc::SIGPROF {}
    }

    /// The mask is as it was.
    pub(crate) fn restore(self) {
        // SAFETY: `block_sigprof` got it from the system.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

fn sigprof() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPROF);
        set.assume_init()
    }
}
