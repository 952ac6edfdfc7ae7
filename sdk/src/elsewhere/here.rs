//! The stack of the calling thread by the crate `backtrace`.

use std::cell::Cell;

use crate::config;
use crate::handler::scratch::ScratchPool;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Here {
    /// Frames written.
    pub(crate) len: usize,
    /// The stack goes on behind the last frame.
    pub(crate) truncated: bool,
    /// There is one generation of modules only.
    pub(crate) generation: u32,
}

static BUFFERS: ScratchPool = ScratchPool::new();

thread_local! {
    /// The unwinder may allocate, and the allocator asks for stacks.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work` with the stack of the caller, leaf first; without frames when it is asked for while
/// one is taken in this thread.
#[inline(never)]
pub(crate) fn with_stack<T>(depth: usize, work: impl FnOnce(Here, &[u64]) -> T) -> T {
    let scratch = match INSIDE.replace(true) {
        true => None,
        false => BUFFERS.acquire(depth),
    };
    let Some(mut scratch) = scratch else {
        return work(Here::default(), &[]);
    };
    let frames = scratch.frames(depth.min(config::MAX_DEPTH));
    let here = walk(frames);
    INSIDE.set(false);
    work(here, &frames[..here.len])
}

/// As [`with_stack`], into room of the caller's.
#[inline(never)]
pub(crate) fn here(frames: &mut [u64]) -> Here {
    if INSIDE.replace(true) {
        return Here::default();
    }
    let here = walk(frames);
    INSIDE.set(false);
    here
}

/// The stack of the caller's caller.
#[inline(never)]
fn walk(frames: &mut [u64]) -> Here {
    let mut here = Here::default();
    // This function and its caller, once the unwinder's own frames are passed.
    let mut ours = 2;
    // SAFETY: neither names are looked up here, nor is anything kept.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            if ours > 0 {
                let is_own = std::ptr::eq(frame.symbol_address(), walk as *const std::ffi::c_void);
                ours -= i32::from(is_own || ours == 1);
                return true;
            }
            here.truncated = here.len == frames.len();
            if frame.ip().is_null() || here.truncated {
                return false;
            }
            // Calls lie before the return address.
            frames[here.len] = frame.ip() as u64 - 1;
            here.len += 1;
            true
        });
    }
    here
}

/// Walks need no snapshot here.
pub(crate) fn each_walk_ended() -> bool {
    true
}

/// In a forked child: walks of threads that are not there any more hold nothing.
pub(crate) fn forget_in_child() {
    BUFFERS.free_all();
}
