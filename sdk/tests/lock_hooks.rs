//! What a program sees of its waits being timed: nothing. And the places where hooks must work:
//! before `main`, in destructors of thread-locals, in signal handlers, in forked children, in threads
//! that are cancelled.

#![cfg(feature = "lock-hooks")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::{Started, start_with};
use pilotlight::Config;

fn started() -> Started {
    start_with(Config::new("test").no_listener().lock_rate_ns(1))
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn set_errno(value: c_int) {
    // SAFETY: the calling thread's.
    unsafe { *libc::__errno_location() = value };
}

fn in_ms(clock: libc::clockid_t, ms: i64) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let ns = time.tv_nsec + ms * 1_000_000;
    time.tv_sec += ns / 1_000_000_000;
    time.tv_nsec = ns % 1_000_000_000;
    time
}

/// A futex wait of `ms`; what it returned, and errno.
fn futex_wait(word: &AtomicU32, expected: u32, ms: i64) -> (i64, c_int) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: ms * 1_000_000,
    };
    set_errno(77);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live.
    let answer =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, &time) };
    (answer, errno())
}

#[test]
fn answers_and_errno_are_those_of_libc() {
    for timed in [true, false] {
        let _guard = timed.then(started);
        let word = AtomicU32::new(5);
        assert_eq!(futex_wait(&word, 4, 1), (-1, libc::EAGAIN));
        assert_eq!(futex_wait(&word, 5, 1), (-1, libc::ETIMEDOUT));
        set_errno(77);
        // SAFETY: the kernel checks all of these.
        unsafe {
            let wake = libc::FUTEX_WAKE;
            assert_eq!(libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1), 0);
            assert_eq!(
                libc::syscall(libc::SYS_getpid),
                libc::c_long::from(libc::getpid())
            );
            assert_eq!(errno(), 77);
            assert_eq!(libc::syscall(9999), -1);
            assert_eq!(errno(), libc::ENOSYS);
            // All six arguments arrive: the fifth is no file, the sixth no multiple of a page.
            let (map, anonymous) = (libc::SYS_mmap, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::syscall(map, 0, 4096, libc::PROT_READ, anonymous, -1i64, 0i64);
            assert!(page > 0);
            assert_eq!(libc::syscall(map, 0, 4096, 1, anonymous, -1i64, 1i64), -1);
            assert_eq!(errno(), libc::EINVAL);
            assert_eq!(
                libc::syscall(map, 0, 4096, 1, libc::MAP_PRIVATE, 9999i64, 0i64),
                -1
            );
            assert_eq!(errno(), libc::EBADF);
        }
        pthread_answers();
    }
}

fn pthread_answers() {
    set_errno(77);
    // SAFETY: objects are initialized before they are used, and stay where they are.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
        let mut mutex = std::mem::zeroed();
        libc::pthread_mutex_init(&mut mutex, &attributes);
        let deadline = in_ms(libc::CLOCK_REALTIME, 5);
        assert_eq!(libc::pthread_mutex_lock(&mut mutex), 0);
        assert_eq!(libc::pthread_mutex_lock(&mut mutex), libc::EDEADLK);
        let mut condvar = std::mem::zeroed();
        libc::pthread_cond_init(&mut condvar, std::ptr::null());
        let timed_out = libc::pthread_cond_timedwait(&mut condvar, &mut mutex, &deadline);
        assert_eq!(timed_out, libc::ETIMEDOUT);
        assert_eq!(libc::pthread_mutex_unlock(&mut mutex), 0);
        let mut lock = std::mem::zeroed();
        libc::pthread_rwlock_init(&mut lock, std::ptr::null());
        assert_eq!(libc::pthread_rwlock_rdlock(&mut lock), 0);
        assert_eq!(libc::pthread_rwlock_rdlock(&mut lock), 0);
        assert_eq!(libc::pthread_rwlock_trywrlock(&mut lock), libc::EBUSY);
        assert_eq!(errno(), 77);
        let mut semaphore = std::mem::zeroed();
        libc::sem_init(&mut semaphore, 0, 1);
        assert_eq!(libc::sem_wait(&mut semaphore), 0);
        assert_eq!(errno(), 77);
        let deadline = in_ms(libc::CLOCK_REALTIME, 5);
        assert_eq!(libc::sem_timedwait(&mut semaphore, &deadline), -1);
        assert_eq!(errno(), libc::ETIMEDOUT);
    }
}

#[test]
fn a_signal_interrupts_a_wait_as_it_would_without_us() {
    static HANDLED: AtomicU64 = AtomicU64::new(0);

    /// Waits itself, as handlers should not but some do.
    extern "C" fn handler(_signal: c_int) {
        let word = AtomicU32::new(0);
        futex_wait(&word, 0, 1);
        futex_wait(&word, 1, 1);
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    let _guard = started();
    // SAFETY: plain data; the handler is a function of this program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
    let (ready, thread) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // SAFETY: no arguments.
            thread.store(unsafe { libc::pthread_self() } as u64, Ordering::SeqCst);
            let word = AtomicU32::new(0);
            ready.store(true, Ordering::SeqCst);
            let mut interrupted = 0;
            while interrupted < 100 {
                match futex_wait(&word, 0, 900) {
                    (-1, libc::EINTR) => interrupted += 1,
                    other => assert_eq!(other, (-1, libc::ETIMEDOUT)),
                }
            }
        });
        while !ready.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        while !waiter.is_finished() {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(thread.load(Ordering::SeqCst) as _, libc::SIGUSR1) };
            // Longer than the handler takes, or it would never end.
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    assert!(HANDLED.load(Ordering::Relaxed) >= 100);
}

#[test]
fn a_thread_that_waits_can_be_cancelled() {
    struct Pair(libc::pthread_mutex_t, libc::pthread_cond_t, AtomicBool);

    extern "C-unwind" fn wait(pair: *mut c_void) -> *mut c_void {
        let pair = pair.cast::<Pair>();
        // SAFETY: lives until this thread was joined.
        unsafe {
            libc::pthread_mutex_lock(&raw mut (*pair).0);
            (*pair).2.store(true, Ordering::SeqCst);
            loop {
                libc::pthread_cond_wait(&raw mut (*pair).1, &raw mut (*pair).0);
            }
        }
    }

    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    }

    let _guard = started();
    let mut pair = Pair(
        libc::PTHREAD_MUTEX_INITIALIZER,
        libc::PTHREAD_COND_INITIALIZER,
        AtomicBool::new(false),
    );
    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    type Unwinding = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the pair outlives the thread; the two types differ in what may pass through them.
    unsafe {
        let start = std::mem::transmute::<Unwinding, Start>(wait);
        let mut thread: libc::pthread_t = std::mem::zeroed();
        let mut result = null_mut();
        let argument = (&raw mut pair).cast();
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), start, argument),
            0
        );
        while !pair.2.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &mut result), 0);
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    }
}

static BEFORE_MAIN: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    let pair = (Mutex::new(()), Condvar::new());
    let guard = pair.0.lock().unwrap();
    drop(pair.1.wait_timeout(guard, Duration::from_millis(1)));
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mut condvar = libc::PTHREAD_COND_INITIALIZER;
    let deadline = in_ms(libc::CLOCK_REALTIME, 1);
    // SAFETY: initialized, and stay where they are.
    let timed_out = unsafe {
        libc::pthread_mutex_lock(&mut mutex);
        libc::pthread_cond_timedwait(&mut condvar, &mut mutex, &deadline)
    };
    BEFORE_MAIN.store(timed_out == libc::ETIMEDOUT, Ordering::SeqCst);
}

#[test]
fn hooks_work_before_main_and_in_destructors_of_thread_locals() {
    struct WaitsWhenDropped(Arc<Mutex<()>>);
    impl Drop for WaitsWhenDropped {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    thread_local! {
        static LAST: RefCell<Option<WaitsWhenDropped>> = const { RefCell::new(None) };
    }

    assert!(BEFORE_MAIN.load(Ordering::SeqCst));
    let _guard = started();
    let lock = Arc::new(Mutex::new(()));
    let before = pilotlight::stats();
    let held = lock.lock().unwrap();
    let ending = {
        let lock = Arc::clone(&lock);
        std::thread::spawn(move || LAST.set(Some(WaitsWhenDropped(lock))))
    };
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    ending.join().unwrap();
    let waited_ns = pilotlight::stats().waits_ns - before.waits_ns;
    assert!(waited_ns > 30_000_000, "{waited_ns}");
}

/// Waits for a child; false when it is still there after 20 s.
fn ends_well(child: libc::pid_t) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    let mut status = 0;
    while Instant::now() < until {
        // SAFETY: fills `status`.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: a child of this process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    false
}

#[test]
fn forked_children_wait_and_start_anew_while_the_parents_threads_wait() {
    let guard = started();
    let stop = AtomicBool::new(false);
    let lock = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    *lock.lock().unwrap() += 1;
                }
            });
        }
        for _ in 0..30 {
            // SAFETY: the child only does what a child of a threaded program may, and exits.
            match unsafe { libc::fork() } {
                0 => {
                    // Not through the parent's locks: their holders are not there.
                    let fresh = (Mutex::new(()), Condvar::new());
                    let guard = fresh.0.lock().unwrap();
                    drop(fresh.1.wait_timeout(guard, Duration::from_millis(1)));
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(0) };
                }
                child => assert!(ends_well(child)),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(guard);
    assert!(*lock.lock().unwrap() > 0);
}
