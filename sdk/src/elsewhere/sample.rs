//! A sample, unwound by the crate `backtrace`.

use std::sync::atomic::Ordering;

use super::{ARMED, MAX_DEPTH, RING, SCRATCH, SNAPSHOT};
use crate::context::Context;
use crate::kind::Record;
use crate::ring::Header;
use crate::slots::{PROCESS, Weight};
use crate::stats::COUNTERS;

/// A sample of CPU time, of code that was interrupted at `pc`.
pub(super) fn sample(weight: Weight, pc: u64) {
    COUNTERS.delivered.add(1);
    let weight = match weight {
        Weight::Periods(weight) => weight,
        Weight::Early => return COUNTERS.early.add(1),
        Weight::Stray => return COUNTERS.stray.add(1),
    };
    let lost = |counter: &crate::stats::Counter| {
        counter.add(1);
        COUNTERS.expiries_lost.add(weight);
    };
    let Some(mut scratch) = SCRATCH.acquire(PROCESS as usize) else {
        return lost(&COUNTERS.busy);
    };
    // After the scratch buffer was acquired: see `disarm`.
    if !ARMED.load(Ordering::Acquire) {
        return COUNTERS.off.add(1);
    }
    // SAFETY: the scratch buffer is held, and the ring is never freed.
    let (snapshot, ring) = unsafe { (SNAPSHOT.get(), RING.load(Ordering::Acquire).as_ref()) };
    let (Some(snapshot), Some(ring)) = (snapshot, ring) else {
        return COUNTERS.off.add(1);
    };
    let frames = scratch.frames(MAX_DEPTH.load(Ordering::Relaxed));
    let (len, truncated) = walk(pc, frames);
    let header = Header {
        record: Record::Cpu,
        weight,
        generation: snapshot.generation,
        truncated,
        // Thread-locals are no safe reading in a handler here.
        context: Context::default(),
        trace: None,
    };
    if !ring.push(header, &frames[..len]) {
        return lost(&COUNTERS.ring_full);
    }
    COUNTERS.taken.add(1);
    COUNTERS.cpu_samples.add(1);
    COUNTERS.expiries.add(weight);
    COUNTERS.frames.add(len as u64);
    COUNTERS.truncated.add(u64::from(truncated));
    COUNTERS.incomplete.add(u64::from(len < 2));
}

/// The interrupted stack into `frames`, leaf first: how many, and whether it goes on behind them.
/// The frames of the handler are left out.
fn walk(pc: u64, frames: &mut [u64]) -> (usize, bool) {
    frames[0] = pc;
    let (mut len, mut is_inside, mut truncated) = (1, false, false);
    // SAFETY: other threads may unwind at the same time: neither names are looked up here, nor is
    // anything kept.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let ip = frame.ip() as u64;
            if !is_inside {
                // Unwinders say where the frame was interrupted, or where it would go on.
                is_inside = ip == pc || ip == pc + 1;
                return true;
            }
            truncated = len == frames.len();
            if ip == 0 || truncated {
                return false;
            }
            // Calls lie before the return address.
            frames[len] = ip - 1;
            len += 1;
            true
        });
    }
    (len, truncated)
}
