//! Prints what it costs to time waits of threads for each other, `name value`, in nanoseconds of CPU.

use std::cell::UnsafeCell;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex};

use pilotlight::{Config, Guard};
use pilotlight_bench_kit::{
    Rng, SITES, at_depth, at_sites, process_cpu_ns, rss_kib, thread_cpu_ns,
};

const PASSES: usize = 15;
const HANDOFF_PASSES: usize = 7;
const WAITS: u64 = 5_000;
const HANDOFFS: u64 = 20_000;
const FREE: u64 = 1_000_000;
/// No wait is so long: all are timed, hardly any is kept.
const HARDLY_EVER: u64 = 10_000_000_000;

fn start(rate_ns: u64) -> Result<Option<Guard>, pilotlight::Error> {
    let config = Config::new("bench").no_listener().lock_rate_ns(rate_ns);
    (rate_ns > 0).then(|| config.start()).transpose()
}

/// A wait that the kernel ends at once: for a lock that this thread holds itself. One that sleeps
/// costs so much more that nothing could be told from it.
fn wait(word: &AtomicU32) {
    let operation = libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG;
    let forever: *const libc::timespec = std::ptr::null();
    // SAFETY: the word lives; the kernel refuses.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, forever) };
}

/// A lock of the calling thread's, as the kernel has it.
fn own_lock() -> AtomicU32 {
    // SAFETY: no arguments.
    AtomicU32::new(unsafe { libc::syscall(libc::SYS_gettid) } as u32)
}

fn smallest(passes: usize, mut pass: impl FnMut() -> f64) -> f64 {
    (0..passes).map(|_| pass()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of CPU a wait below `depth` frames, always by the same stack.
fn same_stack(depth: usize) -> f64 {
    let lock = own_lock();
    smallest(PASSES, || {
        let mut spent = 0;
        at_depth(depth, &mut || {
            let began = thread_cpu_ns();
            for _ in 0..WAITS {
                wait(&lock);
            }
            spent = thread_cpu_ns() - began;
        });
        spent as f64 / WAITS as f64
    })
}

/// The same, with another of 1,000 stacks for each wait; the walk down to it counts as well.
fn many_stacks(depth: usize) -> f64 {
    let lock = own_lock();
    let mut rng = Rng::new(5);
    let mut path = || (0..depth).map(|_| rng.below(SITES) as u16).collect();
    let paths: Vec<Vec<u16>> = (0..1000).map(|_| path()).collect();
    smallest(PASSES, || {
        let began = thread_cpu_ns();
        for round in 0..WAITS {
            let path = &paths[(round % 1000) as usize];
            at_sites(path, &mut || wait(&lock));
        }
        (thread_cpu_ns() - began) as f64 / WAITS as f64
    })
}

/// CPU time of both threads for each wait, while they take turns through a condition variable; on
/// one CPU, because two wake each other at prices that differ tenfold from run to run.
fn handoff() -> f64 {
    on_one_cpu();
    let (turn, changed) = (Mutex::new(0u64), Condvar::new());
    let take_turns = |own: u64| {
        at_depth(30, &mut || {
            for round in 0..HANDOFFS {
                let Ok(turn) = turn.lock() else { return };
                let mine = changed.wait_while(turn, |turn| *turn != 2 * round + own);
                if let Ok(mut turn) = mine {
                    *turn += 1;
                }
                changed.notify_one();
            }
        });
    };
    let began = process_cpu_ns();
    std::thread::scope(|scope| {
        scope.spawn(|| take_turns(0));
        scope.spawn(|| take_turns(1));
    });
    (process_cpu_ns() - began) as f64 / (2 * HANDOFFS) as f64
}

/// Threads that this one starts stay on its CPU as well.
fn on_one_cpu() {
    // SAFETY: the set is plain data; a refusal only makes the figure noisier.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn free_std() -> f64 {
    let lock = Mutex::new(0u64);
    smallest(PASSES, || {
        let began = thread_cpu_ns();
        for _ in 0..FREE {
            if let Ok(mut value) = black_box(&lock).lock() {
                *value += 1;
            }
        }
        (thread_cpu_ns() - began) as f64 / FREE as f64
    })
}

type Lock = unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> libc::c_int;

fn free_pthread(lock: Lock) -> f64 {
    let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
    smallest(PASSES, || {
        let began = thread_cpu_ns();
        for _ in 0..FREE {
            // SAFETY: initialized, and unlocked by the thread that locked it.
            unsafe {
                black_box(lock)(black_box(mutex.get()));
                libc::pthread_mutex_unlock(mutex.get());
            }
        }
        (thread_cpu_ns() - began) as f64 / FREE as f64
    })
}

/// libc's own function, behind pilotlight's.
fn of_libc() -> Result<Lock, &'static str> {
    // SAFETY: a lookup by constant names.
    let found = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlsym(libc, c"pthread_mutex_lock".as_ptr())
    };
    if found.is_null() {
        return Err("libc has no pthread_mutex_lock");
    }
    // SAFETY: libc's function of this name has this type.
    Ok(unsafe { std::mem::transmute::<*mut libc::c_void, Lock>(found) })
}

fn main() -> Result<(), Box<dyn Error>> {
    // The smallest start comes first: libraries are in memory afterwards.
    let (cpu, rss) = (thread_cpu_ns(), rss_kib()?);
    drop(Config::new("bench").no_listener().start()?);
    println!("start_off_cpu {}", thread_cpu_ns() - cpu);
    println!("start_off_kib {}", rss_kib()? - rss);
    let (cpu, rss) = (thread_cpu_ns(), rss_kib()?);
    drop(start(100_000)?);
    println!("start_on_cpu {}", thread_cpu_ns() - cpu);
    println!("start_on_kib {}", rss_kib()? - rss);
    // A program of one thread locks in fewer instructions: this one has had a second by now.
    println!("pthread_free_libc {}", free_pthread(of_libc()?));
    for (name, rate_ns) in [
        ("off", 0),
        ("timed", HARDLY_EVER),
        ("default", 100_000),
        ("kept", 1),
    ] {
        let _guard = start(rate_ns)?;
        println!("wait_30_{name} {}", same_stack(30));
        println!("wait_108_{name} {}", same_stack(108));
        println!("wait_sites_{name} {}", many_stacks(30));
        println!("handoff_{name} {}", smallest(HANDOFF_PASSES, handoff));
        println!("std_free_{name} {}", free_std());
        println!(
            "pthread_free_{name} {}",
            free_pthread(libc::pthread_mutex_lock)
        );
    }
    Ok(())
}
