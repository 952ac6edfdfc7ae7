//! A sample: the walk over the interrupted stack, and the record of it.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pilotlight_unwind::{End, Unwound};

use super::{ARMED, MAX_DEPTH, RING, SCRATCH, SNAPSHOT, note_stale};
use crate::kind::Record;
use crate::modules::Snapshot;
use crate::ring::Header;
use crate::slots::{self, Weight};
use crate::stats::COUNTERS;
use crate::{context, otel, sys, wall};

/// How far the main thread's stack may have grown since its mapping was read, bytes.
const MAIN_STACK_GROWTH: usize = 64 << 20;

/// What became of a signal.
#[derive(PartialEq, Eq)]
enum Outcome {
    Taken,
    /// Nobody samples.
    Off,
    /// There was no room.
    Lost,
}

/// A sample of CPU time.
///
/// # Safety
/// `context` is the ucontext of the interrupted code of this thread.
pub(super) unsafe fn sample(slot: u32, weight: Weight, context: *const libc::ucontext_t) {
    COUNTERS.delivered.add(1);
    let weight = match weight {
        Weight::Periods(weight) => weight,
        Weight::Early => return COUNTERS.early.add(1),
        Weight::Stray => return COUNTERS.stray.add(1),
    };
    // SAFETY: promised by the caller.
    let registers = unsafe { sys::interrupted(context) };
    // SAFETY: they are this thread's.
    match unsafe { record(Record::Cpu, weight, slot, registers) } {
        Outcome::Taken => {
            COUNTERS.cpu_samples.add(1);
            COUNTERS.expiries.add(weight);
        }
        Outcome::Lost => COUNTERS.expiries_lost.add(weight),
        Outcome::Off => {}
    }
}

/// The sampler of wall-clock time asks for this thread's stack.
///
/// # Safety
/// `context` is the ucontext of the interrupted code of this thread.
pub(super) unsafe fn sample_wall(slot: u32, context: *const libc::ucontext_t) {
    COUNTERS.delivered.add(1);
    // SAFETY: promised by the caller.
    let registers = unsafe { sys::interrupted(context) };
    let ns = wall::answer(slot, registers.sp, sys::frame_pointer(&registers));
    if ns == 0 {
        return COUNTERS.taken.add(1);
    }
    // SAFETY: they are this thread's. Its stack is looked for among the mappings.
    if unsafe { record(Record::Wall, ns, 0, registers) } != Outcome::Taken {
        wall::give_back(slot, ns);
    }
}

/// Somebody waits for this thread's stack.
///
/// # Safety
/// `context` is the ucontext of the interrupted code of this thread.
pub(super) unsafe fn dump(value: u32, context: *const libc::ucontext_t) {
    COUNTERS.delivered.add(1);
    let scratch = SCRATCH.acquire(value as usize);
    // SAFETY: lives as long as the scratch buffer is held.
    let snapshot = unsafe { SNAPSHOT.get() };
    let (Some(mut scratch), Some(snapshot)) = (scratch, snapshot) else {
        return COUNTERS.busy.add(1);
    };
    let Some(claimed) = wall::claim(value) else {
        return COUNTERS.off.add(1);
    };
    // SAFETY: promised by the caller.
    let registers = unsafe { sys::interrupted(context) };
    let frames = scratch.frames(crate::config::MAX_DEPTH);
    // SAFETY: they are this thread's.
    let (unwound, _) = unsafe { walk(registers, 0, snapshot, frames) };
    claimed.put(&frames[..unwound.frames], unwound.end == End::Truncated);
    COUNTERS.taken.add(1);
}

/// Walks the stack and writes a record.
///
/// # Safety
/// `registers` are those of the interrupted code of this thread.
unsafe fn record(record: Record, weight: u64, slot: u32, registers: sys::Registers) -> Outcome {
    let no = |counter: &crate::stats::Counter, outcome| {
        counter.add(1);
        outcome
    };
    let Some(mut scratch) = SCRATCH.acquire(slot as usize) else {
        return no(&COUNTERS.busy, Outcome::Lost);
    };
    // After the scratch buffer was acquired: see `disarm`.
    if !ARMED.load(Ordering::Acquire) {
        return no(&COUNTERS.off, Outcome::Off);
    }
    // SAFETY: the scratch buffer is held, and the ring is never freed.
    let (snapshot, ring) = unsafe { (SNAPSHOT.get(), RING.load(Ordering::Acquire).as_ref()) };
    let (Some(snapshot), Some(ring)) = (snapshot, ring) else {
        return no(&COUNTERS.off, Outcome::Off);
    };
    let depth = MAX_DEPTH.load(Ordering::Relaxed);
    let frames = scratch.frames(depth);
    // SAFETY: promised by the caller.
    let (unwound, is_whole) = unsafe { walk(registers, slot, snapshot, frames) };
    let header = Header {
        record,
        weight,
        generation: snapshot.generation,
        truncated: unwound.end == End::Truncated,
        context: context::current(),
        trace: otel::for_sample(),
    };
    if !ring.push(header, &frames[..unwound.frames]) {
        return no(&COUNTERS.ring_full, Outcome::Lost);
    }
    COUNTERS.taken.add(1);
    COUNTERS.frames.add(unwound.frames as u64);
    // The root was guessed from where the stack seemed to end.
    let guessed = unwound.end == End::Root && unwound.guessed > 0 && !is_whole;
    note_end(if guessed { End::BadStack } else { unwound.end });
    Outcome::Taken
}

/// Walks into `frames`; also whether the stack is known to its end.
///
/// # Safety
/// `registers` are those of the interrupted code of this thread.
unsafe fn walk(
    registers: sys::Registers,
    slot: u32,
    snapshot: &Snapshot,
    frames: &mut [u64],
) -> (Unwound, bool) {
    let (stack, is_whole) = stack_bounds(slot, registers.sp as usize, snapshot);
    // SAFETY: the bounds are those of a mapping of this thread's stack.
    let unwound =
        unsafe { sys::unwind(registers, &snapshot.modules, &snapshot.cache, stack, frames) };
    // Calls lie before the return address: so every frame names the instruction it is in.
    for (at, frame) in frames[..unwound.frames].iter_mut().enumerate() {
        *frame -= u64::from(!unwound.is_exact(at));
    }
    (unwound, is_whole)
}

fn note_end(end: End) {
    match end {
        End::Root => {}
        End::Truncated => COUNTERS.truncated.add(1),
        End::NoModule => {
            note_stale();
            COUNTERS.incomplete.add(1);
        }
        _ => COUNTERS.incomplete.add(1),
    }
}

/// Readable bytes of the stack that `sp` is on, and whether they reach to its end.
fn stack_bounds(slot: u32, sp: usize, snapshot: &Snapshot) -> (Range<usize>, bool) {
    let low = sp.saturating_sub(sys::RED_ZONE);
    let known = slots::stack_of(slot);
    if known.contains(&sp) {
        return (low.max(known.start)..known.end, true);
    }
    let above = snapshot.stacks.partition_point(|area| area.end <= sp);
    match snapshot.stacks.get(above) {
        Some(area) if area.contains(&sp) => (low.max(area.start)..area.end, true),
        // The main thread's stack grows downwards from a fixed end.
        Some(area) if area.end == snapshot.main_stack_end && area.end - sp < MAIN_STACK_GROWTH => {
            (low..area.end, true)
        }
        // A stack younger than the snapshot: only the page of `sp` is known to be there.
        _ => {
            note_stale();
            (sp..(sp | 4095) & !7, false)
        }
    }
}
