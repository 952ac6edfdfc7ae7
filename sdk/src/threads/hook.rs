//! Threads that start and end are seen at once: `pthread_create`, as this program's Rust code calls
//! it, is ours.
//!
//! The linker resolves the standard library's call to this definition, since it comes before libc.
//! Threads that other shared libraries start are found by scanning. Without the hook a thread that
//! lives for a millisecond would never be seen.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::timer::thread_clock_ns;
use super::{ARMED, Threads, threads};
use crate::handler;
use crate::slots::{self, BETWEEN_TICKS};
use crate::stats::COUNTERS;
use crate::sys::{self, thread::Start};

struct Call {
    start: Start,
    argument: *mut c_void,
    stack_size: usize,
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
    let Some(next) = sys::pthread_create() else {
        return libc::EAGAIN;
    };
    let call = Box::into_raw(Box::new(Call {
        start,
        argument,
        // SAFETY: the caller's attributes.
        stack_size: unsafe { stack_size(attributes) },
    }));
    super::created::note();
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
    let Call {
        start,
        argument,
        stack_size,
    } = *call;
    let stack = own_stack(stack_size);
    crate::here::note_stack(stack.clone());
    started(stack);
    crate::wall::thread_started();
    let result = start(argument);
    ended();
    result
}

/// Bytes of stack that a thread made with `attributes` gets; 0 where libc decides.
///
/// # Safety
/// As for `pthread_create`.
unsafe fn stack_size(attributes: *const libc::pthread_attr_t) -> usize {
    let mut size = 0;
    if !attributes.is_null() {
        // SAFETY: the caller's attributes are initialized.
        unsafe { libc::pthread_attr_getstacksize(attributes, &mut size) };
    }
    size
}

/// The calling thread's stack of `size` bytes: glibc and musl put the thread's control
/// block, where the thread pointer leads, at its upper end. `pthread_getattr_np` would tell too, but allocates and
/// locks, which a hook should not. Empty when the size is not known: the mappings then tell.
fn own_stack(size: usize) -> Range<usize> {
    /// At the low end there may be a guard page; no frame is there.
    const MARGIN: usize = 16 << 10;
    let end = sys::thread_pointer();
    match end.checked_sub(size) {
        Some(start) if size > MARGIN => start + MARGIN..end,
        _ => 0..0,
    }
}

/// The calling thread starts.
fn started(stack: Range<usize>) {
    if !ARMED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(threads) = threads().as_mut() {
        threads.add(sys::own_tid(), stack);
    }
}

/// The calling thread ends.
fn ended() {
    if !ARMED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(threads) = threads().as_mut() {
        threads.end(sys::own_tid());
    }
}

impl Threads {
    /// The calling thread ends: what no sample accounts for becomes one record.
    fn end(&mut self, tid: i32) {
        let Some(mut armed) = self.armed.remove(&tid) else {
            return;
        };
        armed.clock_ns = thread_clock_ns(tid).unwrap_or(armed.clock_ns);
        let (slot, clock_ns) = (armed.slot, armed.clock_ns);
        self.retire(armed, clock_ns);
        let missed = slots::settle(slot, clock_ns);
        if missed == 0 {
            return;
        }
        let counter = match handler::push(&[BETWEEN_TICKS], missed, 0) {
            true => &COUNTERS.between_ticks,
            false => &COUNTERS.expiries_lost,
        };
        counter.add(missed);
    }
}
