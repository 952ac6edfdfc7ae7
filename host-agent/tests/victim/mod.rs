//! A program to be sampled: this test binary again, built like any release program, without frame pointers.

#![allow(clippy::unwrap_used)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Which work the child does; its presence makes it the child.
const WORK: &str = "PILOTLIGHT_VICTIM";

/// A running child; killed when dropped.
pub struct Victim(Child);

impl Victim {
    /// Starts `work` by the test `name`, which must call [`serve`] first.
    pub fn start(name: &str, work: &str) -> Victim {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(WORK, work)
            .stdout(Stdio::null())
            .spawn();
        Victim(child.unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In the child: works until it is killed, two minutes at most. In the test: returns.
pub fn serve() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    let until = Instant::now() + Duration::from_secs(120);
    if work == "mixed" {
        alarm();
    }
    while Instant::now() < until {
        match work.as_str() {
            "mixed" => mixed(),
            _ => drop(black_box(victim_hot_loop(1 << 20))),
        }
    }
    std::process::exit(0);
}

/// The function that tests look for.
#[inline(never)]
pub fn victim_hot_loop(n: u64) -> u64 {
    (0..n).fold(1, |sum: u64, i| black_box(sum.wrapping_mul(31) ^ i))
}

fn mixed() {
    black_box(deep(60));
    sort();
    caught();
    system_calls();
    let text: Vec<u8> = vec![7; 1 << 20];
    black_box(text.clone());
}

/// Frames of changing size, so that no two rules are alike.
#[inline(never)]
fn deep(depth: u64) -> u64 {
    let room = [depth; 17];
    black_box(&room);
    if depth == 0 {
        return victim_hot_loop(1 << 19);
    }
    deep(depth - 1).wrapping_add(room[3])
}

/// Back into Rust through glibc's `qsort`.
fn sort() {
    unsafe extern "C" fn compare(a: *const c_void, b: *const c_void) -> c_int {
        // SAFETY: `qsort` hands out pointers to its elements.
        let (a, b) = unsafe { (*a.cast::<u32>(), *b.cast::<u32>()) };
        black_box(a.wrapping_mul(2_654_435_761)).cmp(&black_box(b.wrapping_mul(2_654_435_761)))
            as c_int
    }
    let mut numbers: Vec<u32> = (0..20_000).collect();
    // SAFETY: length and size of the elements of `numbers`.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare)) };
    black_box(numbers);
}

fn caught() {
    std::panic::set_hook(Box::new(|_| {}));
    for _ in 0..20 {
        let _ = black_box(std::panic::catch_unwind(|| panic_at(8)));
    }
}

#[inline(never)]
fn panic_at(depth: u32) {
    if depth == 0 {
        panic!("as planned");
    }
    panic_at(depth - 1);
    black_box(depth);
}

fn system_calls() {
    use std::io::Read;
    let mut zero = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..200 {
        zero.read_exact(&mut buffer).unwrap();
    }
}

/// Every 3 ms a signal's handler works a while, on top of whatever is interrupted.
fn alarm() {
    extern "C" fn handler(_: c_int) {
        black_box(victim_hot_loop(100_000));
    }
    // SAFETY: the handler computes only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 3000,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}
