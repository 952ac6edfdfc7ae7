//! Inside the handler no function of libc that allocates, locks or asks the loader is entered: this
//! program defines them itself and aborts when a handler runs in the same thread.

#![allow(clippy::unwrap_used, reason = "tests may panic")]
// A program that holds its libc has no `dlsym` to find what these definitions stand before.
#![cfg(not(target_feature = "crt-static"))]

mod common;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use common::{burn, profile_of, start};

thread_local! {
    static IN_FAULT: Cell<bool> = const { Cell::new(false) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The frame of the handler is on this thread's stack exactly when its marker says so.
fn forbidden_in_handler(name: &str) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if !pilotlight::testing::this_thread_handles_a_signal() || IN_FAULT.replace(true) {
        return;
    }
    let text = format!("{name} was entered inside the signal handler\n");
    // SAFETY: writes bytes that live.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    std::process::abort();
}

/// Looks `name` up once.
fn next(slot: &AtomicPtr<c_void>, name: *const c_char) -> *mut c_void {
    let mut found = slot.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a lookup by a constant name.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        slot.store(found, Ordering::Relaxed);
    }
    found
}

macro_rules! forbid {
    ($name:ident ( $($argument:ident : $type:ty),* ) -> $result:ty) => {
        /// # Safety
        /// As libc's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            forbidden_in_handler(stringify!($name));
            let found = next(&NEXT, concat!(stringify!($name), "\0").as_ptr().cast());
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: libc's function of this name has this type.
            unsafe { std::mem::transmute::<*mut c_void, Function>(found)($($argument),*) }
        }
    };
}

forbid!(malloc(size: usize) -> *mut c_void);
forbid!(realloc(old: *mut c_void, size: usize) -> *mut c_void);
forbid!(free(old: *mut c_void) -> ());
forbid!(posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int);
forbid!(pthread_mutex_lock(mutex: *mut c_void) -> c_int);
forbid!(pthread_rwlock_rdlock(lock: *mut c_void) -> c_int);
forbid!(pthread_rwlock_wrlock(lock: *mut c_void) -> c_int);
forbid!(dl_iterate_phdr(callback: *mut c_void, data: *mut c_void) -> c_int);
forbid!(_Unwind_Backtrace(callback: *mut c_void, data: *mut c_void) -> c_int);
forbid!(syscall(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64);

#[inline(never)]
fn allocate_and_burn() {
    for round in 0..200 {
        let mut vectors: Vec<Vec<u8>> = Vec::new();
        for size in 1..200 {
            vectors.push(vec![round as u8; size * 37]);
        }
        std::hint::black_box(&vectors);
        burn(5_000_000);
    }
}

#[test]
fn handler_enters_no_allocator_lock_loader_or_system_call() {
    let _guard = start(1000);
    let before = CALLS.load(Ordering::Relaxed);
    let profile = profile_of(|| {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(allocate_and_burn))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let stats = pilotlight::stats();
    assert!(profile.total(0) > 3000, "{}", profile.total(0));
    assert!(stats.taken > 100, "{stats:?}");
    // The replacements are really in use.
    assert!(CALLS.load(Ordering::Relaxed) - before > 100_000);
}

#[test]
fn a_call_inside_the_handler_would_be_noticed() {
    pilotlight::testing::pretend_in_handler(true);
    assert!(pilotlight::testing::this_thread_handles_a_signal());
    pilotlight::testing::pretend_in_handler(false);
    assert!(!pilotlight::testing::this_thread_handles_a_signal());
}
