//! A program that another takes the place of by `exec` leaves it no signal of ours.
//!
//! The kernel deletes timers and handlers at `exec` and keeps signals that wait: one that expired
//! during the call would end the program after us. So the calling thread is let go before.
//! `posix_spawn` and children of a fork have no timers and do not come here; the `execl` family of C
//! calls libc's inner functions and does not either.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};

use super::{ARMED, THREADS};
use crate::sys;

/// The process that is sampled: a child of `vfork` has our memory and another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Sampling starts in this process.
pub(super) fn note_process() {
    PROCESS.store(own_process(), Ordering::Relaxed);
}

fn own_process() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getpid() }
}

/// Makes sure that the linker takes the functions in.
pub(super) fn keep() {
    std::hint::black_box(execve as *const ());
}

/// The calling thread has no timer, and no signal of one waits for it. Where the call that follows
/// fails, the next scan finds the thread again.
fn let_go() {
    if !ARMED.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) != own_process() {
        return;
    }
    let mask = sys::block_sigprof();
    // Held by this thread itself where a signal handler calls `exec`: then it stays as it was.
    if let Some(mut threads) = THREADS.try_lock()
        && let Some(threads) = threads.as_mut()
        && let Some(armed) = threads.armed.remove(&sys::own_tid())
    {
        let clock_ns = armed.clock_ns;
        threads.retire(armed, clock_ns);
    }
    mask.discard_waiting();
    mask.restore();
}

type Strings = *const *const c_char;

/// Where libc is part of the program there is nothing to stand before: this is the system call itself,
/// which all of musl's family, and glibc's `execve`, come down to.
///
/// # Safety
/// As libc's function of this name.
#[cfg(target_feature = "crt-static")]
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let_go();
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_execve, path, arguments, environment) as c_int }
}

#[cfg(not(target_feature = "crt-static"))]
macro_rules! replaced {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// # Safety
        /// As libc's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            type Function = unsafe extern "C" fn($($kind),*) -> c_int;
            let_go();
            let name = concat!(stringify!($name), "\0").as_ptr().cast();
            // SAFETY: a lookup by a constant name.
            let next: *mut std::ffi::c_void = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
            if next.is_null() {
                // SAFETY: the calling thread's.
                unsafe { *sys::errno() = libc::ENOSYS };
                return -1;
            }
            // SAFETY: libc's function of this name has this type; the caller's arguments.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(next)($($argument),*) }
        }
    )*};
}

#[cfg(not(target_feature = "crt-static"))]
replaced! {
    execv(path: *const c_char, arguments: Strings);
    execve(path: *const c_char, arguments: Strings, environment: Strings);
    execvp(file: *const c_char, arguments: Strings);
    execvpe(file: *const c_char, arguments: Strings, environment: Strings);
    fexecve(file: c_int, arguments: Strings, environment: Strings);
}
