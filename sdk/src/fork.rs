//! What happens around a fork, by three callbacks of `pthread_atfork`.
//!
//! A fork while timers run restarts for ever in large processes: the forking thread blocks the signal.
//! A child inherits locks taken by threads that it does not have: each [`Lock`] is taken before and
//! given back after. The child has no timers and no background thread; what it does is
//! [`crate::AfterFork`].

use std::cell::{Cell, UnsafeCell};
use std::sync::{
    Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use crate::sys::{self, Blocked};
use crate::{
    context, engine, handler, http, labels, lived, modules, otel, spans, symbols, threads, types,
    wall,
};

/// A mutex that no forked child finds taken. To be listed in [`locks`].
pub(crate) struct Lock<T: 'static> {
    mutex: Mutex<T>,
    /// While a fork is under way.
    held: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: `held` is only used by the thread that forks, while it holds the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: `held` is filled only where the lock is borrowed for ever and so cannot be moved.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock {
            mutex: Mutex::new(value),
            held: UnsafeCell::new(None),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// As [`Lock`], for what is mostly read.
pub(crate) struct ReadMostly<T: 'static> {
    lock: RwLock<T>,
    /// While a fork is under way.
    held: UnsafeCell<Option<RwLockWriteGuard<'static, T>>>,
}

// SAFETY: `held` is only used by the thread that forks, while it alone has the lock.
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}
// SAFETY: `held` is filled only where the lock is borrowed for ever and so cannot be moved.
unsafe impl<T: Send> Send for ReadMostly<T> {}

impl<T> ReadMostly<T> {
    pub(crate) const fn new(value: T) -> ReadMostly<T> {
        ReadMostly {
            lock: RwLock::new(value),
            held: UnsafeCell::new(None),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One or more locks of any content.
pub(crate) trait Held: Sync {
    fn hold(&'static self);
    fn give_back(&'static self);
}

impl<T: Send> Held for Lock<T> {
    fn hold(&'static self) {
        let guard = self.lock();
        // SAFETY: the mutex is held.
        unsafe { *self.held.get() = Some(guard) };
    }

    fn give_back(&'static self) {
        // SAFETY: the mutex is held, by `hold` in this thread; in a child, in its only thread.
        drop(unsafe { (*self.held.get()).take() });
    }
}

impl<T: Send + Sync> Held for ReadMostly<T> {
    fn hold(&'static self) {
        let guard = self.write();
        // SAFETY: nobody else has the lock.
        unsafe { *self.held.get() = Some(guard) };
    }

    fn give_back(&'static self) {
        // SAFETY: the lock is held, by `hold` in this thread; in a child, in its only thread.
        drop(unsafe { (*self.held.get()).take() });
    }
}

impl<H: Held, const N: usize> Held for [H; N] {
    fn hold(&'static self) {
        self.iter().for_each(Held::hold);
    }

    fn give_back(&'static self) {
        self.iter().rev().for_each(Held::give_back);
    }
}

/// Every lock of the process. None is ever taken under another one of them.
fn locks() -> [&'static dyn Held; 15] {
    let [modules, loader] = modules::locks();
    let [span_tree, span_sites, live_tasks, span_waits] = spans::locks();
    [
        context::lock(),
        http::stream::lock(),
        labels::lock(),
        lived::lock(),
        live_tasks,
        modules,
        loader,
        otel::process::lock(),
        span_sites,
        span_tree,
        span_waits,
        symbols::lock(),
        threads::lock(),
        types::lock(),
        wall::lock(),
    ]
}

/// Registers the callbacks where [`AT_LOAD`] did not, and makes the linker keep it. To be called before
/// the first lock of the list is taken that a program may take without a start.
pub(crate) fn watch() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // The callbacks of allocators come first: ours may allocate between theirs.
        drop(std::hint::black_box(Box::new(0_u8)));
        // SAFETY: as every malloc.
        unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
        // SAFETY: the callbacks are functions of this program.
        unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// Before `main`: a fork that began before the registration would run no callback, and leave its child
/// what other threads took or were making meanwhile.
#[used]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg(not(miri))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        watch();
    }
    at_load
};

thread_local! {
    /// The forking thread's signal mask. Without a destructor, or a fork in the last moments of a
    /// thread would panic.
    static MASK: Cell<Option<Blocked>> = const { Cell::new(None) };
}

unsafe extern "C" fn before() {
    MASK.set(Some(sys::block_sigprof()));
    locks().iter().for_each(|lock| lock.hold());
}

fn restore_mask() {
    if let Some(mask) = MASK.take() {
        mask.restore();
    }
}

unsafe extern "C" fn parent() {
    locks().iter().rev().for_each(|lock| lock.give_back());
    restore_mask();
}

unsafe extern "C" fn child() {
    locks().iter().rev().for_each(|lock| lock.give_back());
    threads::forget_in_child();
    wall::forget_in_child();
    spans::forget_in_child();
    context::forget_in_child();
    symbols::forget_in_child();
    handler::forget_in_child();
    engine::forget_in_child();
    restore_mask();
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fork_waits_for_what_other_threads_hold_though_nothing_was_started() {
        let (held, is_held) = mpsc::channel();
        let status = std::thread::scope(|scope| {
            scope.spawn(move || {
                types::lock().hold();
                held.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                types::lock().give_back();
            });
            is_held.recv().unwrap();
            // SAFETY: the child takes one lock and leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: a child that waits for ever is ended.
                unsafe { libc::alarm(10) };
                types::lock().hold();
                // SAFETY: no exit handler of the parent runs.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            status
        });
        assert_eq!(status, 0, "the child found the lock taken");
    }
}
