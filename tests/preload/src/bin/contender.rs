//! Two locks, of the standard library and of pthreads, each held while another thread waits for it.
//! Prints how many nanoseconds the waits took, as this program saw them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 6;

struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made for it.
unsafe impl Sync for Pthread {}

fn nap_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `with` runs its argument while it holds a lock.
fn contended(with: impl Fn(&mut dyn FnMut()) + Sync) -> u128 {
    let (held, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut waited = 0;
            for round in 1..=ROUNDS {
                nap_until(|| held.load(SeqCst) == round);
                let began = Instant::now();
                with(&mut || waited += began.elapsed().as_nanos());
                taken.store(round, SeqCst);
            }
            waited
        });
        for round in 1..=ROUNDS {
            with(&mut || {
                held.store(round, SeqCst);
                std::thread::sleep(Duration::from_millis(30));
            });
            nap_until(|| taken.load(SeqCst) == round);
        }
        nap_until(|| waiter.is_finished());
        waiter.join().unwrap_or(0)
    })
}

fn main() {
    let own = std::sync::Mutex::new(());
    let of_std = contended(|work| {
        let _guard = own.lock();
        work();
    });
    let c = Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let of_c = contended(|work| {
        // Whole, not its field.
        let c = &c;
        // SAFETY: initialized, and unlocked by the thread that locked it.
        unsafe {
            libc::pthread_mutex_lock(c.0.get());
            work();
            libc::pthread_mutex_unlock(c.0.get());
        }
    });
    println!("{}", of_std + of_c);
}
