//! Small and alternate stacks.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::common::{burn, profile_of, start};

/// A stack for signals, filled with a pattern.
struct Painted(Box<[u64]>);

const PAINT: u64 = 0x5a5a_a5a5_c3c3_3c3c;
static ENTRY: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_entry(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    let local = 0u8;
    ENTRY.store(&raw const local as usize, Ordering::Relaxed);
}

impl Painted {
    /// The calling thread's signals run on it from now on.
    fn new() -> Painted {
        let mut words = vec![PAINT; 8192].into_boxed_slice();
        // SAFETY: `words` lives until `sigaltstack` is told otherwise.
        unsafe {
            let stack = libc::stack_t {
                ss_sp: words.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: words.len() * 8,
            };
            assert_eq!(libc::sigaltstack(&stack, null_mut()), 0);
        }
        Painted(words)
    }

    /// Bytes from the stack pointer at a handler's begin down to the deepest byte that was written.
    fn used_below(&self, entry: usize) -> usize {
        let start = self.0.as_ptr() as usize;
        // Volatile: handlers wrote behind the compiler's back.
        let is_painted = |word: &u64| {
            // SAFETY: a reference.
            unsafe { std::ptr::from_ref(word).read_volatile() == PAINT }
        };
        let clean = self.0.iter().take_while(|word| is_painted(word)).count();
        entry.saturating_sub(start + clean * 8)
    }
}

impl Drop for Painted {
    fn drop(&mut self) {
        // SAFETY: switches the alternate stack off before its memory goes.
        unsafe {
            let mut off: libc::stack_t = zeroed();
            off.ss_flags = libc::SS_DISABLE;
            libc::sigaltstack(&off, null_mut());
        }
    }
}

#[inline(never)]
fn deep(levels: u32) -> u64 {
    if levels == 0 {
        burn(100_000_000);
        return 1;
    }
    std::hint::black_box(deep(std::hint::black_box(levels - 1))) + 1
}

#[test]
fn the_handler_needs_less_than_2_kb_of_an_alternate_stack() {
    // Where a handler begins on this stack is told by one that does nothing.
    let painted = Painted::new();
    // SAFETY: zeroed values are valid; the handler has the type that the flags say.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = note_entry as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
        libc::raise(libc::SIGUSR1);
    }
    let entry = ENTRY.load(Ordering::Relaxed);
    assert!(painted.0.as_ptr_range().contains(&(entry as *const u64)));
    drop(painted);

    let painted = Painted::new();
    let offset = entry - {
        // The same distance from the upper end, in another box.
        ENTRY.store(0, Ordering::Relaxed);
        // SAFETY: has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        ENTRY.load(Ordering::Relaxed)
    };
    let entry = entry - offset;
    let _guard = start(1000);
    let profile = profile_of(|| {
        std::hint::black_box(deep(900));
        let _ = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(1)));
        std::hint::black_box(Instant::now());
    });
    assert!(profile.total(0) > 50, "{}", profile.total(0));
    assert!(pilotlight::stats().taken > 10);
    let used = painted.used_below(entry);
    println!("{used} bytes of stack");
    assert!((100..2048).contains(&used), "{used} bytes of stack");
}

#[test]
fn threads_on_the_smallest_stacks_with_an_alternate_one_are_sampled() {
    let _guard = start(1000);
    let profile = profile_of(|| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let builder = std::thread::Builder::new().stack_size(16 << 10);
                let run = || {
                    let _painted = Painted::new();
                    burn(50_000_000);
                };
                builder.spawn(run).unwrap()
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    assert!(profile.total(0) > 200, "{}", profile.total(0));
    let stats = pilotlight::stats();
    assert_eq!(stats.taken + stats.dropped(), stats.delivered);
}
