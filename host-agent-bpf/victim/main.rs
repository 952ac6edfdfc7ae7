//! A program of everything that is hard to unwind, without frame pointers; the agent's tests sample it.
//!
//! `victim [SECONDS] [WORK…]`: runs the named kinds of work (default: all) in turn on two threads.
//! `victim ROUNDS waits`: waits in several ways, and prints how long each took it, in nanoseconds.
#![allow(missing_docs)]

mod waits;

use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(10.0);
    let named: Vec<String> = args.collect();
    if named.iter().any(|n| n == "waits") {
        return waits::run(seconds as u32);
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let kinds: Vec<fn()> = KINDS
        .iter()
        .filter(|(name, _)| named.is_empty() || named.iter().any(|n| n == name))
        .map(|(_, work)| *work)
        .collect();
    if named.is_empty() || named.iter().any(|n| n == "signal") {
        arm_timer();
    }
    kinds.iter().for_each(|work| work());
    println!("ready");
    let work = move || {
        while Instant::now() < until {
            kinds.iter().for_each(|work| work());
        }
    };
    let second = std::thread::spawn(work.clone());
    work();
    let _ = second.join();
}

const KINDS: [(&str, fn()); 8] = [
    ("recursion", recurse_deeply),
    ("qsort", sort_by_libc),
    ("panic", catch_a_panic),
    ("clock", read_the_clock),
    ("copy", copy_memory),
    ("read", read_from_the_kernel),
    ("malloc", allocate),
    ("dlopen", open_a_library),
];

#[inline(never)]
fn recurse_deeply() {
    // Long enough at the bottom to be a tenth of the work: stacks this deep have to be among any thousand samples.
    black_box(recurse(90, 200_000));
}

#[inline(never)]
fn recurse(depth: u64, n: u64) -> u64 {
    if depth == 0 {
        return (0..n).fold(0, |sum, i| black_box(sum ^ i.wrapping_mul(0x9e37_79b9)));
    }
    let saved = [depth; 5];
    let next: fn(u64, u64) -> u64 = black_box(recurse);
    next(depth - 1, n).wrapping_add(black_box(&saved)[2])
}

extern "C" fn compare(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
    // SAFETY: qsort hands out pointers to elements of the array.
    let (a, b) = unsafe { (*a.cast::<u32>(), *b.cast::<u32>()) };
    black_box(a).cmp(&black_box(b)) as libc::c_int
}

#[inline(never)]
fn sort_by_libc() {
    let mut numbers: Vec<u32> = (0..3000u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    // SAFETY: the array lives through the call.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare)) };
    black_box(numbers);
}

#[inline(never)]
fn catch_a_panic() {
    std::panic::set_hook(Box::new(|_| {}));
    // Not more: while libgcc enters a landing pad, it writes the pad's registers over those that its own frame saved,
    // and no unwinder gets past that frame.
    for _ in 0..5 {
        let _ = std::panic::catch_unwind(|| fails(black_box(12)));
    }
}

#[inline(never)]
fn fails(depth: u32) -> u32 {
    assert!(depth > 0, "at the bottom");
    fails(depth - 1) + black_box(1)
}

#[inline(never)]
fn read_the_clock() {
    for _ in 0..3000 {
        black_box(Instant::now());
    }
}

#[inline(never)]
fn copy_memory() {
    let from = vec![7u8; 1 << 20];
    let mut to = vec![0u8; 1 << 20];
    for _ in 0..4 {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
}

#[inline(never)]
fn read_from_the_kernel() {
    use std::io::Read;
    let mut bytes = vec![0u8; 64 << 10];
    for _ in 0..10 {
        let file = std::fs::File::open("/dev/zero");
        let _ = file.and_then(|mut file| file.read(black_box(&mut bytes)));
    }
}

#[inline(never)]
fn allocate() {
    for size in 1..1500usize {
        drop(black_box(vec![0u8; size * 7]));
    }
}

#[inline(never)]
fn open_a_library() {
    // It stays open. SAFETY: a library that comes with the C library; nothing of it is called.
    unsafe {
        let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if !library.is_null() {
            black_box(libc::dlsym(library, c"cosf".as_ptr()));
        }
    }
}

extern "C" fn on_alarm(_: libc::c_int) {
    black_box(recurse(5, 20_000));
}

/// A signal each 3 ms whose handler works for a while.
fn arm_timer() {
    // SAFETY: a valid action and timer; the handler only computes.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let each = libc::timeval {
            tv_sec: 0,
            tv_usec: 3000,
        };
        let timer = libc::itimerval {
            it_interval: each,
            it_value: each,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}
