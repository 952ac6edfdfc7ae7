//! Waits of known length.

use std::io::{PipeReader, Read, Write};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const EACH: Duration = Duration::from_millis(10);

/// Waits `rounds` times in each way; a line of its name and nanoseconds for each.
pub fn run(rounds: u32) {
    println!("ready");
    // Whoever samples says when it does.
    let _ = std::io::stdin().read_line(&mut String::new());
    let Ok((mut from, to)) = std::io::pipe() else {
        return;
    };
    tell("sleep", rounds, || std::thread::sleep(EACH));
    tell("poll", rounds, poll);
    tell("futex", rounds, futex);
    std::thread::spawn(move || write_again_and_again(to));
    tell("io", rounds, || read_a_pipe(&mut from));
    println!("end");
    // Samples are taken before it ends.
    std::thread::sleep(Duration::from_secs(60));
}

fn tell(name: &str, rounds: u32, mut wait: impl FnMut()) {
    let mut sum = Duration::ZERO;
    for _ in 0..rounds {
        let began = Instant::now();
        wait();
        sum += began.elapsed();
    }
    println!("{name} {}", sum.as_nanos());
}

#[inline(never)]
fn poll() {
    // SAFETY: no descriptors.
    unsafe { libc::poll(std::ptr::null_mut(), 0, EACH.as_millis() as libc::c_int) };
}

#[inline(never)]
fn futex() {
    let mutex = Mutex::new(());
    if let Ok(guard) = mutex.lock() {
        drop(Condvar::new().wait_timeout(guard, EACH));
    }
}

#[inline(never)]
fn read_a_pipe(from: &mut PipeReader) {
    let _ = from.read_exact(&mut [0]);
}

fn write_again_and_again(mut to: impl Write) {
    while to.write_all(&[1]).is_ok() {
        std::thread::sleep(EACH);
    }
}
