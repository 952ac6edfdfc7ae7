//! A running thread's stack for somebody who waits for it: the thread's handler puts it down here.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::config::MAX_DEPTH;
use crate::threads::timer::Timer;

/// High half of the value that these signals carry; below it the place, and which request it is.
pub(crate) const DUMP_TOKEN: u32 = 0x7069_6c64;
/// Threads asked at once.
pub(super) const PLACES: usize = 16;
/// A thread that runs for so long without a tick of the kernel waits for a CPU.
const PATIENCE: Duration = Duration::from_millis(60);

const FREE: u32 = 0;
const ASKED: u32 = 1;
const WRITING: u32 = 2;
const DONE: u32 = 3;

struct Place {
    state: AtomicU32,
    /// Which request: a signal that comes too late belongs to another one.
    request: AtomicU32,
    length: AtomicU32,
    truncated: AtomicBool,
    frames: [AtomicU64; MAX_DEPTH],
}

/// In the zero pages of the program.
static DUMPS: [Place; PLACES] = [const {
    Place {
        state: AtomicU32::new(FREE),
        request: AtomicU32::new(0),
        length: AtomicU32::new(0),
        truncated: AtomicBool::new(false),
        frames: [const { AtomicU64::new(0) }; MAX_DEPTH],
    }
}; PLACES];

/// Lets the interrupted thread put its stack down, if the request still stands. Async-signal-safe.
pub(crate) fn claim(value: u32) -> Option<Claimed> {
    let (at, request) = (value as usize % PLACES, value / PLACES as u32);
    let place = &DUMPS[at];
    if place.request.load(Ordering::Acquire) != request {
        return None;
    }
    let swapped = place
        .state
        .compare_exchange(ASKED, WRITING, Ordering::AcqRel, Ordering::Relaxed);
    swapped.is_ok().then_some(Claimed(at))
}

/// A place that one handler writes to.
pub(crate) struct Claimed(usize);

impl Claimed {
    /// Puts a stack down. Async-signal-safe.
    pub(crate) fn put(self, frames: &[u64], truncated: bool) {
        let place = &DUMPS[self.0];
        for (kept, frame) in place.frames.iter().zip(frames) {
            kept.store(*frame, Ordering::Relaxed);
        }
        place.length.store(frames.len() as u32, Ordering::Relaxed);
        place.truncated.store(truncated, Ordering::Relaxed);
        place.state.store(DONE, Ordering::Release);
    }
}

/// Stacks of up to [`PLACES`] running threads; without frames where one did not run for long enough.
/// One caller at a time.
pub(super) fn of_running(tids: &[i32]) -> Vec<(Vec<u64>, bool)> {
    let timers: Vec<Option<Timer>> = tids.iter().enumerate().map(ask).collect();
    let deadline = Instant::now() + PATIENCE;
    let is_waited_for = |at: usize| {
        let state = DUMPS[at].state.load(Ordering::Acquire);
        timers[at].is_some() && state != DONE
    };
    while (0..tids.len()).any(is_waited_for) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(timers);
    (0..tids.len()).map(take).collect()
}

/// The signal comes at the kernel's next tick while the thread runs: it ends no system call early.
fn ask((at, &tid): (usize, &i32)) -> Option<Timer> {
    let place = &DUMPS[at];
    let request = place.request.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    // What a handler compares has fewer bits.
    let request = request % (u32::MAX / PLACES as u32);
    place.request.store(request, Ordering::Release);
    place.state.store(ASKED, Ordering::Release);
    let value = u64::from(DUMP_TOKEN) << 32 | u64::from(request * PLACES as u32 + at as u32);
    Timer::create(tid, value).filter(|timer| timer.set(1, 0))
}

fn take(at: usize) -> (Vec<u64>, bool) {
    let place = &DUMPS[at];
    let cancelled = place
        .state
        .compare_exchange(ASKED, FREE, Ordering::AcqRel, Ordering::Acquire);
    if cancelled.is_ok() {
        return (Vec::new(), false);
    }
    // A handler is at it: microseconds, unless it lost its CPU.
    let deadline = Instant::now() + PATIENCE;
    while place.state.load(Ordering::Acquire) == WRITING && Instant::now() < deadline {
        std::thread::yield_now();
    }
    if place.state.load(Ordering::Acquire) != DONE {
        return (Vec::new(), false);
    }
    let length = place.length.load(Ordering::Relaxed) as usize;
    let frames = place.frames.iter().take(length);
    let frames = frames.map(|frame| frame.load(Ordering::Relaxed)).collect();
    place.state.store(FREE, Ordering::Release);
    (frames, place.truncated.load(Ordering::Relaxed))
}
