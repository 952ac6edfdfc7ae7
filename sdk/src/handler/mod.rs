//! The SIGPROF handler. `README.md` in this folder lists what it may do.

pub(crate) mod scratch;

use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use pilotlight_unwind::{End, Unwound};

use crate::kind::Record;
use crate::modules::Snapshot;
use crate::ring::{Header, Ring};
use crate::slots::{self, TOKEN, Weight};
use crate::stats::COUNTERS;
use crate::{context, otel, sys, wall};
use scratch::ScratchPool;

/// How far the main thread's stack may have grown since its mapping was read, bytes.
const MAIN_STACK_GROWTH: usize = 64 << 20;

/// Made once, and never freed: a late signal may still use it.
static RING: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
static SNAPSHOT: AtomicPtr<Snapshot> = AtomicPtr::new(null_mut());
static SCRATCH: ScratchPool = ScratchPool::new();
/// While false, signals are counted and dropped.
static ARMED: AtomicBool = AtomicBool::new(false);
static MAX_DEPTH: AtomicUsize = AtomicUsize::new(crate::config::MAX_DEPTH);
/// An address or a stack was met that the snapshot does not know.
static STALE: AtomicBool = AtomicBool::new(false);
/// Threads that run the handler now, by the address of their errno: against handlers that call each
/// other in a circle, and for tests that prove what a handler does not call. Two threads may share a
/// mark: one is then overlooked, never both.
static MARKS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
static PREVIOUS: Previous = Previous::new();

/// The handler that ours replaced.
struct Previous {
    function: AtomicUsize,
    takes_info: AtomicBool,
}

impl Previous {
    const fn new() -> Previous {
        Previous {
            function: AtomicUsize::new(libc::SIG_IGN),
            takes_info: AtomicBool::new(false),
        }
    }
}

/// Installs the handler, for good; each start takes the place back from a handler that replaced it,
/// and hands on to that one what is not ours.
pub(crate) fn install() -> std::io::Result<()> {
    let own = on_sigprof as *const () as usize;
    let present = disposition(None)?;
    sys::pin_code(own);
    // Never our own address, or a foreign signal would call itself for ever.
    if present.sa_sigaction == own {
        return Ok(());
    }
    // Before the handler can run: its first signal may already be a foreign one.
    let takes_info = present.sa_flags & libc::SA_SIGINFO != 0;
    PREVIOUS.takes_info.store(takes_info, Ordering::Relaxed);
    PREVIOUS
        .function
        .store(present.sa_sigaction, Ordering::Release);
    // SAFETY: a zeroed sigaction is a valid value of the type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = own;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    disposition(Some(&action)).map(|_| ())
}

/// What SIGPROF does, and from now on what `new` says.
fn disposition(new: Option<&libc::sigaction>) -> std::io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is a valid value of the type.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: null or a live value each; the handler keeps to its README.
    if unsafe { libc::sigaction(libc::SIGPROF, new, &mut old) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(old)
}

/// The ring that handlers write to, made on first use; its size stays.
pub(crate) fn ring(bytes: usize) -> &'static Ring {
    let mut ring = RING.load(Ordering::Acquire);
    if ring.is_null() {
        let made = Box::into_raw(Box::new(Ring::new(bytes)));
        let swapped = RING.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        ring = match swapped {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
    }
    // SAFETY: never freed, only ever shared.
    unsafe { &*ring }
}

/// Lets handlers take samples.
pub(crate) fn arm(max_depth: usize) {
    MAX_DEPTH.store(max_depth, Ordering::Relaxed);
    ARMED.store(true, Ordering::SeqCst);
}

/// From now on handlers count and drop. Returns when none is in the middle of a sample.
pub(crate) fn disarm() {
    ARMED.store(false, Ordering::SeqCst);
    // A handler that a debugger stopped may be waited for in vain; its sample is late then.
    let _ = SCRATCH.each_was_free();
}

/// Publishes a snapshot and frees the one before, once no handler can hold it.
pub(crate) fn publish(snapshot: Box<Snapshot>) {
    let old = SNAPSHOT.swap(Box::into_raw(snapshot), Ordering::SeqCst);
    if !SCRATCH.each_was_free() || !crate::here::each_walk_ended() {
        // A thread is stopped inside the handler and may go on with the old snapshot any time.
        COUNTERS.snapshots_leaked.add(1);
    } else if !old.is_null() {
        // SAFETY: handlers, and walks of a thread's own stack, load the pointer after they acquire a
        // scratch buffer, and each buffer was free after the swap: none holds the old pointer.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// In a forked child: handlers of threads that are not there any more hold nothing, and a record that
/// one of them was writing would stop the ring for ever. No thread but the caller is there.
pub(crate) fn forget_in_child() {
    ARMED.store(false, Ordering::SeqCst);
    // Not freed: what the parent's captures left in the child may still point to it.
    RING.store(null_mut(), Ordering::SeqCst);
    SCRATCH.free_all();
    crate::here::forget_in_child();
    for mark in &MARKS {
        mark.store(0, Ordering::Relaxed);
    }
}

/// The published snapshot.
///
/// # Safety
/// The caller holds a scratch buffer that [`publish`] waits for, acquired before the call, as long as
/// it uses the snapshot.
pub(crate) unsafe fn snapshot() -> Option<&'static Snapshot> {
    // SAFETY: promised by the caller.
    unsafe { SNAPSHOT.load(Ordering::SeqCst).as_ref() }
}

/// Something was met that the snapshot does not know.
pub(crate) fn note_stale() {
    STALE.store(true, Ordering::Relaxed);
}

/// Whether something unknown was met since the last call.
pub(crate) fn take_stale() -> bool {
    STALE.swap(false, Ordering::Relaxed)
}

/// Writes a record from ordinary code, such as a thread that ends.
#[cfg(feature = "thread-hook")]
pub(crate) fn push(frames: &[u64], weight: u64, generation: u32) -> bool {
    let ring = RING.load(Ordering::Acquire);
    let header = Header {
        record: Record::Cpu,
        weight,
        generation,
        truncated: false,
        context: context::Context::default(),
        trace: None,
    };
    // SAFETY: never freed once made.
    unsafe { ring.as_ref() }.is_some_and(|ring| ring.push(header, frames))
}

/// Marks the thread whose errno is at `errno` as running the handler, or not.
fn mark(errno: usize, inside: bool) {
    MARKS[errno >> 6 & 63].store(if inside { errno } else { 0 }, Ordering::Relaxed);
}

fn is_marked(errno: usize) -> bool {
    MARKS[errno >> 6 & 63].load(Ordering::Relaxed) == errno
}

/// Whether the calling thread runs the handler now.
pub(crate) fn is_running_here() -> bool {
    is_marked(sys::errno() as usize)
}

/// For the test of the test: marks the calling thread.
pub(crate) fn pretend(inside: bool) {
    mark(sys::errno() as usize, inside);
}

/// The head of the kernel's siginfo, as timers and `sigqueue` fill it; perf events put their band
/// over the two numbers, and their descriptor in the low half of the value.
#[repr(C)]
struct SignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    timer_or_pid: i32,
    overrun_or_uid: i32,
    value: u64,
}

/// What a signal is for.
enum Meaning {
    /// A slot's CPU time; and periods, where only the sender knows.
    Cpu(u32, u64),
    /// The thread's stack, for a slot of the wall clock.
    Wall(u32),
    /// The thread's stack, for a slot of a dump of all.
    Dump(u32),
    /// Its own price is measured.
    Nothing,
    /// Not ours.
    Foreign,
}

impl SignalInfo {
    fn meaning(&self) -> Meaning {
        /// Input is there: what a perf event says by `F_SETSIG`.
        const POLL_IN: i32 = 1;
        /// The kernel itself: what `ITIMER_PROF` says.
        const SI_KERNEL: i32 = 0x80;
        let (token, slot) = ((self.value >> 32) as u32, self.value as u32);
        match (self.code, token) {
            (libc::SI_QUEUE, TOKEN) if slot == slots::NOBODY => Meaning::Nothing,
            (libc::SI_TIMER, TOKEN) => {
                COUNTERS.by_timer.add(1);
                Meaning::Cpu(slot, 1 + self.overrun_or_uid.max(0) as u64)
            }
            (libc::SI_QUEUE, TOKEN) => Meaning::Cpu(slot, 1),
            (libc::SI_TIMER | libc::SI_QUEUE, wall::TOKEN) => Meaning::Wall(slot),
            (libc::SI_TIMER, wall::DUMP_TOKEN) => Meaning::Dump(slot),
            (POLL_IN, _) => match slots::of_descriptor(slot as i32) {
                slots::NONE => Meaning::Foreign,
                slots::NOBODY => Meaning::Nothing,
                slot => {
                    COUNTERS.by_perf.add(1);
                    Meaning::Cpu(slot, 1)
                }
            },
            (SI_KERNEL, _) if slots::process_timer_runs() => {
                COUNTERS.by_process_timer.add(1);
                Meaning::Cpu(slots::PROCESS, 1)
            }
            _ => Meaning::Foreign,
        }
    }
}

extern "C" fn on_sigprof(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno_location = sys::errno();
    // SAFETY: the calling thread's own.
    let errno = unsafe { *errno_location };
    // Two handlers that each keep the other as "previous" call each other: the second round ends here.
    if is_marked(errno_location as usize) {
        return;
    }
    mark(errno_location as usize, true);
    // SAFETY: the kernel hands a siginfo_t of at least these fields.
    match unsafe { &*info.cast::<SignalInfo>() }.meaning() {
        Meaning::Cpu(slot, sent) => {
            let weight = match slot {
                slots::NONE => Weight::Periods(sent),
                _ => slots::weigh(slot, errno_location as usize),
            };
            // SAFETY: the context is the interrupted one of this thread.
            unsafe { sample(slot, weight, context.cast()) };
        }
        // SAFETY: as above.
        Meaning::Wall(slot) => unsafe { sample_wall(slot, context.cast()) },
        // SAFETY: as above.
        Meaning::Dump(slot) => unsafe { dump(slot, context.cast()) },
        Meaning::Nothing => {}
        Meaning::Foreign => {
            COUNTERS.forwarded.add(1);
            forward(signal, info, context);
        }
    }
    mark(errno_location as usize, false);
    // SAFETY: as above.
    unsafe { *errno_location = errno };
}

fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let function = PREVIOUS.function.load(Ordering::Acquire);
    // The default action of a foreign SIGPROF would be to end the process: it is ignored.
    if function == libc::SIG_DFL || function == libc::SIG_IGN {
        return;
    }
    if PREVIOUS.takes_info.load(Ordering::Relaxed) {
        type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: installed by the program with SA_SIGINFO, so it has this type.
        unsafe { std::mem::transmute::<usize, WithInfo>(function)(signal, info, context) };
    } else {
        // SAFETY: installed by the program without SA_SIGINFO, so it has this type.
        unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(function)(signal) };
    }
}

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
unsafe fn sample(slot: u32, weight: Weight, context: *const libc::ucontext_t) {
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
unsafe fn sample_wall(slot: u32, context: *const libc::ucontext_t) {
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
unsafe fn dump(value: u32, context: *const libc::ucontext_t) {
    COUNTERS.delivered.add(1);
    let scratch = SCRATCH.acquire(value as usize);
    // SAFETY: lives as long as the scratch buffer is held.
    let snapshot = unsafe { snapshot() };
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
    if !ARMED.load(Ordering::SeqCst) {
        return no(&COUNTERS.off, Outcome::Off);
    }
    let Some(mut scratch) = SCRATCH.acquire(slot as usize) else {
        return no(&COUNTERS.busy, Outcome::Lost);
    };
    // After the scratch buffer was acquired: see `publish`.
    let snapshot = SNAPSHOT.load(Ordering::SeqCst);
    let ring = RING.load(Ordering::Acquire);
    // SAFETY: both live as long as the scratch buffer is held.
    let (Some(snapshot), Some(ring)) = (unsafe { snapshot.as_ref() }, unsafe { ring.as_ref() })
    else {
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
            STALE.store(true, Ordering::Relaxed);
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
            STALE.store(true, Ordering::Relaxed);
            (sp..(sp | 4095) & !7, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_inherits_no_handler_that_never_returns() {
        let inherited = std::ptr::from_ref(ring(1 << 16)) as usize;
        std::mem::forget(SCRATCH.acquire(3));
        mark(64, true);
        forget_in_child();
        assert!(SCRATCH.each_was_free());
        assert!(!is_marked(64));

        // Made anew, by whoever comes first.
        let rings: Vec<usize> = std::thread::scope(|scope| {
            let make = || std::ptr::from_ref(ring(1 << 16)) as usize;
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(rings.iter().all(|ring| *ring == rings[0]), "{rings:?}");
        assert_ne!(rings[0], inherited);
    }
}
