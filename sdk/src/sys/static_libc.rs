//! libc is part of the program. Nothing can be unloaded, and there is no loader to ask; glibc and
//! musl both hold the function behind `pthread_create` under a second name.

/// Code of the program is never unmapped.
pub(crate) fn pin_code(_address: usize) {}

/// libc's own `pthread_create`.
#[cfg(feature = "thread-hook")]
pub(crate) fn pthread_create() -> Option<super::thread::Create> {
    use super::thread::Start;
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn __pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const libc::pthread_attr_t,
            start: Start,
            argument: *mut c_void,
        ) -> c_int;
    }
    Some(__pthread_create)
}
