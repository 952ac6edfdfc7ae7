//! What differs between processors and C libraries, and nothing else.
//!
//! | file | holds |
//! |---|---|
//! | `x86_64`, `aarch64` | registers of an interrupted thread, its thread pointer, what lies below its stack pointer |
//! | `mask` | the profiling signal, blocked for a thread |
//! | `own` | the system calls of the signal handler |
//! | `tls` | thread-local words that a handler may read |
//! | `shared_libc`, `static_libc` | finding the function that ours stands before, keeping code mapped |

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
// A program that holds its libc has no loader: `dlsym` and `dlopen` are stubs there.
#[cfg_attr(target_feature = "crt-static", path = "static_libc.rs")]
#[cfg_attr(not(target_feature = "crt-static"), path = "shared_libc.rs")]
mod linked;
mod mask;
mod own;
#[cfg(not(miri))]
pub(crate) mod tls;

#[cfg(feature = "thread-hook")]
pub(crate) use arch::thread_pointer;
pub(crate) use arch::{RED_ZONE, Registers, frame_pointer, interrupted, own_registers, unwind};
pub(crate) use linked::pin_code;
#[cfg(feature = "thread-hook")]
pub(crate) use linked::pthread_create;
pub(crate) use mask::{Blocked, block_sigprof};
pub(crate) use own::{own_clock_ns, own_tid, process_clock_ns};

#[cfg(feature = "thread-hook")]
pub(crate) mod thread {
    //! The type of `pthread_create`.

    use std::ffi::{c_int, c_void};

    pub(crate) type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    pub(crate) type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Start,
        *mut c_void,
    ) -> c_int;
}

/// Where the calling thread's errno is: one address a thread, known without thread-local storage of
/// ours. Async-signal-safe.
pub(crate) fn errno() -> *mut libc::c_int {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::__errno_location() }
}
