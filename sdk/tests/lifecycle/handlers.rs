//! Other handlers of SIGPROF.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::common::{burn, own_tid, profile_of, send, start};

static SEEN: AtomicU64 = AtomicU64::new(0);
static VALUE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn with_info(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: handed on as the kernel made them.
    let value = unsafe { (*info).si_value().sival_ptr };
    if signal == libc::SIGPROF && !context.is_null() {
        VALUE.store(value as usize, Ordering::Relaxed);
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn plain(_: c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

fn install(function: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: zeroed values are valid; the functions have the type that the flags say.
    unsafe {
        let (mut action, mut old): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction = function;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, &mut old), 0);
        old
    }
}

/// A signal of somebody else's, with a value, delivered before this returns.
fn queue(value: usize) {
    assert!(send(own_tid(), value as u64));
}

#[test]
fn foreign_signals_reach_a_handler_that_takes_what_the_kernel_says() {
    install(with_info as *const () as usize, libc::SA_SIGINFO);
    let _guard = start(97);
    for value in [7, 8, 9] {
        queue(value);
        assert_eq!(VALUE.load(Ordering::Relaxed), value);
    }
    assert_eq!(SEEN.load(Ordering::Relaxed), 3);
}

#[test]
fn foreign_signals_that_nobody_handled_are_ignored() {
    for disposition in [libc::SIG_DFL, libc::SIG_IGN] {
        install(disposition, 0);
        let guard = start(97);
        let before = pilotlight::stats().forwarded;
        (0..100).for_each(queue);
        assert_eq!(pilotlight::stats().forwarded, before + 100);
        drop(guard);
        (0..100).for_each(queue);
    }
}

#[test]
fn a_profiler_that_was_installed_after_ours_gets_its_signals_and_we_ours() {
    let _guard = start(1000);
    let ours = install(plain as *const () as usize, 0);
    // The next capture takes the place back, and hands on.
    let profile = profile_of(|| {
        burn(300_000_000);
        (0..10).for_each(queue);
    });
    assert!(profile.total(0) > 200, "{}", profile.total(0));
    assert_eq!(SEEN.load(Ordering::Relaxed), 10);
    // The other one stops, and puts back what it found: us.
    install(ours.sa_sigaction, ours.sa_flags);
    let profile = profile_of(|| burn(300_000_000));
    assert!(profile.total(0) > 200, "{}", profile.total(0));
    assert_eq!(SEEN.load(Ordering::Relaxed), 10);
}
