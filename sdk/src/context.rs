//! What a thread is doing, as one word that a signal handler may read: which labels hold, and which
//! logical span runs.
//!
//! The words live in static thread-local storage and are reached from the thread pointer without a
//! call: neither the first access in a thread nor one inside a handler ever enters the loader. In the
//! same block stands the record of the OpenTelemetry thread context, which readers outside of the
//! process find by the symbol `otel_thread_ctx_v1`.

#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
use std::arch::global_asm;
use std::collections::BTreeMap;
#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::fork::{Held, Lock};
use crate::otel::ThreadRecord;
use crate::spans::Entry;
use crate::sys::own_tid;
#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
use crate::sys::tls::static_tls;
use crate::wall;

#[cfg(any(miri, not(target_os = "linux"), feature = "backtrace"))]
#[path = "elsewhere/words.rs"]
mod elsewhere;
#[cfg(any(miri, not(target_os = "linux"), feature = "backtrace"))]
pub(crate) use elsewhere::{otel_pointer, words};

#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".globl otel_thread_ctx_v1",
    ".type otel_thread_ctx_v1, @object",
    "otel_thread_ctx_v1:",
    ".zero 8",
    ".size otel_thread_ctx_v1, 8",
    ".balign 8",
    ".globl pilotlight_thread_words",
    ".hidden pilotlight_thread_words",
    ".type pilotlight_thread_words, @object",
    "pilotlight_thread_words:",
    ".zero {size}",
    ".size pilotlight_thread_words, {size}",
    ".popsection",
    size = const size_of::<ThreadWords>(),
);

/// Labels in the low half, the logical span in the high half; 0 in either is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Context(pub(crate) u64);

impl Context {
    pub(crate) fn new(labels: u32, node: u32) -> Context {
        Context(u64::from(node) << 32 | u64::from(labels))
    }

    /// Id of the label set.
    pub(crate) fn labels(self) -> u32 {
        self.0 as u32
    }

    /// Id of the logical span.
    pub(crate) fn node(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// This one, with what it leaves open taken from `other`.
    pub(crate) fn or(self, other: Context) -> Context {
        let pick = |own: u32, other: u32| if own == 0 { other } else { own };
        Context::new(
            pick(self.labels(), other.labels()),
            pick(self.node(), other.node()),
        )
    }
}

/// A thread's own words. Only the thread itself writes; a handler in it reads, and whoever looks at
/// the thread from outside ([`of_thread`]).
#[repr(C, align(8))]
pub(crate) struct ThreadWords {
    context: AtomicU64,
    /// The thread's id, once others can find these words.
    tid: AtomicU64,
    /// The spanned future that is polled, null outside of one. Valid while its poll is on the stack.
    entry: AtomicPtr<Entry>,
    pub(crate) record: ThreadRecord,
}

/// The calling thread's words; they live as long as the thread.
#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
#[inline(always)]
pub(crate) fn words() -> *const ThreadWords {
    static_tls!("pilotlight_thread_words") as *const ThreadWords
}

/// Where the pointer of the OpenTelemetry thread context stands for the calling thread.
#[cfg(not(any(miri, not(target_os = "linux"), feature = "backtrace")))]
#[inline(always)]
pub(crate) fn otel_pointer() -> *const AtomicPtr<c_void> {
    static_tls!("otel_thread_ctx_v1") as *const AtomicPtr<c_void>
}

/// What the calling thread is doing. Async-signal-safe.
#[inline(always)]
pub(crate) fn current() -> Context {
    // SAFETY: the calling thread's words.
    Context(unsafe { &*words() }.context.load(Ordering::Relaxed))
}

/// The spanned future whose poll runs in this thread, or null.
#[inline(always)]
pub(crate) fn current_entry() -> *mut Entry {
    // SAFETY: the calling thread's words.
    unsafe { &*words() }.entry.load(Ordering::Relaxed)
}

/// Sets the logical span alone.
#[cfg(feature = "tracing")]
pub(crate) fn set_node(node: u32) {
    // SAFETY: the calling thread's words.
    let own = unsafe { &*words() };
    if own.tid.load(Ordering::Relaxed) == 0 {
        own.register();
    }
    let context = Context::new(current().labels(), node);
    own.context.store(context.0, Ordering::Relaxed);
}

/// Sets the context until dropped. Not to be sent to another thread: holds a raw pointer.
#[derive(Debug)]
pub(crate) struct Entered {
    words: *const ThreadWords,
    before: Context,
}

impl Entered {
    #[inline(always)]
    pub(crate) fn new(context: Context) -> Entered {
        let words = words();
        // SAFETY: the calling thread's words.
        let own = unsafe { &*words };
        if own.tid.load(Ordering::Relaxed) == 0 {
            own.register();
        }
        let before = Context(own.context.load(Ordering::Relaxed));
        own.context.store(context.0, Ordering::Relaxed);
        Entered { words, before }
    }
}

/// Where the words of threads are that ever had a context.
static THREADS: Lock<BTreeMap<i32, usize>> = Lock::new(BTreeMap::new());
/// Beyond so many, those of threads that are gone are forgotten.
const MAX_THREADS: usize = 65_536;

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &THREADS
}

impl ThreadWords {
    #[cold]
    fn register(&self) {
        // Who finds it taken tries again with its next context.
        let Some(mut threads) = THREADS.try_lock() else {
            return;
        };
        if threads.len() >= MAX_THREADS {
            threads.retain(|&tid, &mut words| read(tid, words).is_some());
        }
        let tid = own_tid();
        threads.insert(tid, std::ptr::from_ref(self) as usize);
        self.tid.store(tid as u64, Ordering::Relaxed);
    }
}

/// Context and id in the words at an address, if they still are those of the thread.
fn read(tid: i32, words: usize) -> Option<Context> {
    let mut bytes = [0; 16];
    if wall::read_memory(words as u64, &mut bytes) < bytes.len() {
        return None;
    }
    let word = |at: usize| {
        bytes[at..at + 8]
            .iter()
            .rev()
            .fold(0, |w, b| w << 8 | u64::from(*b))
    };
    (word(8) == tid as u64).then(|| Context(word(0)))
}

/// What another thread is doing, which waits.
pub(crate) fn of_thread(tid: i32) -> Context {
    for _ in 0..100 {
        if let Some(threads) = THREADS.try_lock() {
            let words = threads.get(&tid).copied();
            drop(threads);
            return words.and_then(|words| read(tid, words)).unwrap_or_default();
        }
        std::thread::yield_now();
    }
    Context::default()
}

/// In a forked child the calling thread has another id.
pub(crate) fn forget_in_child() {
    // SAFETY: the calling thread's words.
    unsafe { &*words() }.tid.store(0, Ordering::Relaxed);
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the words of the thread that made this, which is this one: it is not Send.
        unsafe { &(*self.words).context }.store(self.before.0, Ordering::Relaxed);
    }
}

/// As [`Entered`], for the poll of a spanned future.
pub(crate) struct Polling {
    entered: Entered,
    outer: *mut Entry,
}

impl Polling {
    #[inline(always)]
    pub(crate) fn new(context: Context, entry: *mut Entry) -> Polling {
        let entered = Entered::new(context);
        // SAFETY: the calling thread's words.
        let cell = unsafe { &(*entered.words).entry };
        let outer = cell.load(Ordering::Relaxed);
        cell.store(entry, Ordering::Relaxed);
        Polling { entered, outer }
    }
}

impl Drop for Polling {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as in `Entered`.
        unsafe { &(*self.entered.words).entry }.store(self.outer, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_words_of_their_own_that_start_empty() {
        let here = words() as usize;
        let _entered = Entered::new(Context::new(7, 9));
        let (there, context) = std::thread::spawn(|| (words() as usize, current()))
            .join()
            .unwrap();
        assert_ne!(here, there);
        assert_eq!(context, Context::default());
        assert_eq!((current().labels(), current().node()), (7, 9));
    }

    #[test]
    fn a_thread_is_seen_from_outside_until_it_ends() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _entered = Entered::new(Context::new(3, 4));
            tell.send(own_tid()).unwrap();
            gone.recv().unwrap();
        });
        let tid = told.recv().unwrap();
        assert_eq!(of_thread(tid), Context::new(3, 4));
        go.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(of_thread(tid), Context::default());
    }

    #[test]
    fn leaving_restores_what_was_there() {
        let outer = Entered::new(Context::new(1, 0));
        drop(Entered::new(Context::new(2, 5)));
        assert_eq!(current(), Context::new(1, 0));
        assert_eq!(current().or(Context::new(9, 8)), Context::new(1, 8));
        drop(outer);
        assert_eq!(current(), Context::default());
    }
}
