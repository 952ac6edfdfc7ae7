//! The thread context: trace and span id of what a thread works for.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::task::{Context as TaskContext, Poll};

use crate::context;

/// Ids of the trace and the span that run, as W3C trace context has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// All zero for none.
    pub trace_id: [u8; 16],
    /// All zero for none.
    pub span_id: [u8; 8],
    /// Trace flags; bit 0 says sampled.
    pub flags: u8,
}

const VALID: u32 = 1;

/// The record that `otel_thread_ctx_v1` points to, without attributes. Bytes 0..16 trace id, 16..24
/// span id, 24 valid, 25 flags, 26..28 size of the attributes that follow.
#[repr(C, align(8))]
pub(crate) struct ThreadRecord {
    trace_id: [AtomicU64; 2],
    span_id: AtomicU64,
    /// The last four bytes; little-endian targets only.
    tail: AtomicU32,
}

impl ThreadRecord {
    /// Of a thread that works for no trace.
    #[cfg(any(miri, not(target_os = "linux"), feature = "backtrace"))]
    pub(crate) const fn new() -> ThreadRecord {
        ThreadRecord {
            trace_id: [AtomicU64::new(0), AtomicU64::new(0)],
            span_id: AtomicU64::new(0),
            tail: AtomicU32::new(0),
        }
    }

    fn get(&self) -> Option<TraceContext> {
        let tail = self.tail.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let [high, low] = [0, 1].map(|at| self.trace_id[at].load(Ordering::Relaxed));
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&high.to_ne_bytes());
        trace_id[8..].copy_from_slice(&low.to_ne_bytes());
        (tail & 0xff == VALID).then(|| TraceContext {
            trace_id,
            span_id: self.span_id.load(Ordering::Relaxed).to_ne_bytes(),
            flags: (tail >> 8) as u8,
        })
    }

    /// A reader may stop this thread between any two instructions: the record is invalid meanwhile.
    fn set(&self, new: Option<TraceContext>) {
        self.tail.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let Some(new) = new else {
            return;
        };
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&new.trace_id[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        self.trace_id[0].store(half(0), Ordering::Relaxed);
        self.trace_id[1].store(half(8), Ordering::Relaxed);
        self.span_id
            .store(u64::from_ne_bytes(new.span_id), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.tail
            .store(VALID | u32::from(new.flags) << 8, Ordering::Relaxed);
    }
}

/// Whether samples say which span their thread worked for.
static IN_SAMPLES: AtomicBool = AtomicBool::new(false);

pub(crate) fn put_in_samples(on: bool) {
    IN_SAMPLES.store(on, Ordering::Relaxed);
}

/// What a sample of this thread is to say. Async-signal-safe.
pub(crate) fn for_sample() -> Option<TraceContext> {
    if IN_SAMPLES.load(Ordering::Relaxed) {
        TraceContext::current()
    } else {
        None
    }
}

/// Sets what this thread works for, and returns what it was.
pub(super) fn swap(new: Option<TraceContext>) -> Option<TraceContext> {
    // SAFETY: the calling thread's words.
    let (record, pointer) = unsafe { (&(*context::words()).record, &*context::otel_pointer()) };
    let before = record.get();
    record.set(new);
    let published = match new {
        Some(_) => std::ptr::from_ref(record).cast_mut().cast(),
        None => null_mut(),
    };
    pointer.store(published, Ordering::Relaxed);
    before
}

impl TraceContext {
    /// What the calling thread works for. Async-signal-safe.
    #[must_use]
    pub fn current() -> Option<TraceContext> {
        // SAFETY: the calling thread's words.
        unsafe { &(*context::words()).record }.get()
    }

    /// This thread works for this span until the guard is dropped. Drop guards in the reverse order
    /// of their making.
    #[must_use = "the context is gone when the guard is"]
    pub fn enter(self) -> TraceGuard {
        TraceGuard::new(Some(self))
    }

    /// For records of samples.
    pub(crate) fn to_words(self) -> [u64; 4] {
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        [
            word(&self.trace_id[..8]),
            word(&self.trace_id[8..]),
            word(&self.span_id),
            self.flags.into(),
        ]
    }

    /// The inverse of [`TraceContext::to_words`].
    pub(crate) fn from_words([high, low, span, flags]: [u64; 4]) -> TraceContext {
        let both = u128::from(high) << 64 | u128::from(low);
        TraceContext {
            trace_id: both.to_be_bytes(),
            span_id: span.to_be_bytes(),
            flags: flags as u8,
        }
    }

    /// Without a trace id there is nothing to publish.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

/// The thread works for a span while this lives.
#[derive(Debug)]
pub struct TraceGuard {
    before: Option<TraceContext>,
    /// Belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl TraceGuard {
    fn new(context: Option<TraceContext>) -> TraceGuard {
        TraceGuard {
            before: swap(context.filter(TraceContext::is_valid)),
            _thread: PhantomData,
        }
    }
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        swap(self.before);
    }
}

/// Puts a trace context on futures.
pub trait TraceExt: Future + Sized {
    /// Whichever thread polls this future works for this span meanwhile.
    fn traced(self, context: TraceContext) -> Traced<Self> {
        Traced {
            future: self,
            context,
        }
    }
}

impl<F: Future> TraceExt for F {}

/// A future with a trace context; see [`TraceExt`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Traced<F> {
    future: F,
    context: TraceContext,
}

impl<F: Future> Future for Traced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned as this is: it is never moved out, and there is no Drop.
        let this = unsafe { self.get_unchecked_mut() };
        let _guard = this.context.enter();
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_the_layout_of_otep_4947() {
        let context = TraceContext {
            trace_id: *b"0123456789abcdef",
            span_id: *b"ABCDEFGH",
            flags: 3,
        };
        let outer = context.enter();
        // SAFETY: the calling thread's pointer and what it points to.
        let bytes: [u8; 28] = unsafe {
            let record = (*context::otel_pointer()).load(Ordering::Relaxed);
            record.cast::<[u8; 28]>().read()
        };
        assert_eq!(&bytes[..24], b"0123456789abcdefABCDEFGH");
        assert_eq!(bytes[24..], [1, 3, 0, 0]);
        let inner = TraceContext {
            flags: 0,
            ..context
        };
        drop(inner.enter());
        assert_eq!(TraceContext::current(), Some(context));
        drop(TraceContext::default().enter());
        drop(outer);
        assert_eq!(TraceContext::current(), None);
        // SAFETY: the calling thread's pointer.
        let pointer = unsafe { &*context::otel_pointer() };
        assert!(pointer.load(Ordering::Relaxed).is_null());
    }
}
