//! Threads that start and end are seen at once: `pthread_create`, as this program's Rust code calls
//! it, is ours.
//!
//! The linker resolves the standard library's call to this definition, since it comes before libc.
//! Threads that other shared libraries start are found by scanning. Without the hook a thread that
//! lives for a millisecond would never be seen.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// libc's own function.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

struct Call {
    start: Start,
    argument: *mut c_void,
}

/// Makes sure that the linker takes this file's `pthread_create` in.
pub(crate) fn keep() {
    std::hint::black_box(pthread_create as *const ());
}

/// # Safety
/// As libc's `pthread_create`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(next) = next() else {
        return libc::EAGAIN;
    };
    let call = Box::into_raw(Box::new(Call { start, argument }));
    // SAFETY: the caller's arguments, but for a start routine that runs the caller's.
    let made = unsafe { next(thread, attributes, run, call.cast()) };
    if made != 0 {
        // SAFETY: the thread does not exist: the box is still ours.
        drop(unsafe { Box::from_raw(call) });
    }
    made
}

extern "C-unwind" fn run(call: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` for this thread alone.
    let call = unsafe { Box::from_raw(call.cast::<Call>()) };
    let Call { start, argument } = *call;
    super::started(own_stack);
    let result = start(argument);
    super::ended();
    result
}

fn next() -> Option<Create> {
    let mut found = NEXT.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a lookup by a constant name.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        NEXT.store(found, Ordering::Relaxed);
    }
    // SAFETY: libc's function of this name has this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Create>(found) })
}

/// The calling thread's stack, empty when libc does not tell.
fn own_stack() -> Range<usize> {
    // SAFETY: a zeroed pthread_attr_t is only written to.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: asks about the calling thread.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) } != 0 {
        return 0..0;
    }
    let (mut start, mut size) = (null_mut(), 0);
    // SAFETY: `attributes` was filled above.
    let got = unsafe { libc::pthread_attr_getstack(&attributes, &mut start, &mut size) };
    // SAFETY: as above, and not used afterwards.
    unsafe { libc::pthread_attr_destroy(&mut attributes) };
    if got == 0 {
        start as usize..start as usize + size
    } else {
        0..0
    }
}
