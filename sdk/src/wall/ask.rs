//! Asking a thread that runs for its stack: time waits in its slot until the thread's handler takes
//! it. A signal that is merged with another loses nothing so.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::threads::timer::Timer;

/// High half of the value that these signals carry; the low half is the slot.
pub(crate) const TOKEN: u32 = 0x7069_6c77;
/// Threads that can be asked at once.
const SLOTS: usize = 16_384;

/// Nanoseconds that wait for each slot's thread. In the zero pages of the program.
static PENDING_NS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// Stack and frame pointer that each slot's thread had when it last answered: what its stack cannot
/// be read without from outside.
static POINTERS: [[AtomicU64; 2]; SLOTS] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; SLOTS];

fn take_pending(slot: u32) -> u64 {
    let pending = PENDING_NS.get(slot as usize);
    pending.map_or(0, |pending| pending.swap(0, Ordering::Relaxed))
}

/// The slot's thread answers: takes what waits for it, nanoseconds. Async-signal-safe.
pub(crate) fn answer(slot: u32, sp: u64, bp: u64) -> u64 {
    if let Some([kept_sp, kept_bp]) = POINTERS.get(slot as usize) {
        kept_sp.store(sp, Ordering::Relaxed);
        kept_bp.store(bp, Ordering::Relaxed);
    }
    take_pending(slot)
}

/// A sample had no room: its time waits for the next. Async-signal-safe.
pub(crate) fn give_back(slot: u32, ns: u64) {
    if let Some(pending) = PENDING_NS.get(slot as usize) {
        pending.fetch_add(ns, Ordering::Relaxed);
    }
}

/// The slots that are free.
pub(super) struct Slots {
    free: Vec<u32>,
    fresh: u32,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots {
            free: Vec::new(),
            fresh: 0,
        }
    }

    fn take(&mut self) -> Option<u32> {
        let slot = self.free.pop().or_else(|| {
            self.fresh += 1;
            ((self.fresh as usize) <= SLOTS).then(|| self.fresh - 1)
        })?;
        answer(slot, 0, 0);
        Some(slot)
    }
}

/// A thread that can be asked: its slot, and a timer once it was needed.
pub(super) struct Asked {
    slot: u32,
    timer: Option<Timer>,
}

impl Asked {
    pub(super) fn new(slots: &mut Slots) -> Option<Asked> {
        let slot = slots.take()?;
        Some(Asked { slot, timer: None })
    }

    /// Gives the slot back; what waits in it is returned.
    pub(super) fn free(self, slots: &mut Slots) -> u64 {
        drop(self.timer);
        slots.free.push(self.slot);
        take_pending(self.slot)
    }

    pub(super) fn unanswered_ns(&self) -> u64 {
        PENDING_NS[self.slot as usize].load(Ordering::Relaxed)
    }

    /// Asks the thread to count `ns` at the kernel's next tick while it runs. False when the system
    /// gives no timer.
    pub(super) fn when_it_runs(&mut self, tid: i32, ns: u64) -> bool {
        give_back(self.slot, ns);
        if self.timer.is_none() {
            self.timer = Timer::create(tid, self.value());
        }
        // One nanosecond of CPU time: has passed at the next tick.
        let set = self.timer.as_ref().is_some_and(|timer| timer.set(1, 0));
        set || self.signal(tid)
    }

    /// The frame pointer that the thread had when it answered with its stack at `sp`.
    pub(super) fn frame_pointer_at(&self, sp: u64) -> Option<u64> {
        let [kept_sp, kept_bp] = &POINTERS[self.slot as usize];
        (kept_sp.load(Ordering::Relaxed) == sp).then(|| kept_bp.load(Ordering::Relaxed))
    }

    /// Asks the thread to count `ns` at once, and wakes it for that.
    pub(super) fn at_once(&self, tid: i32, ns: u64) -> bool {
        give_back(self.slot, ns);
        self.signal(tid)
    }

    fn value(&self) -> u64 {
        u64::from(TOKEN) << 32 | u64::from(self.slot)
    }

    fn signal(&self, tid: i32) -> bool {
        let mut info = [0u64; 16];
        info[0] = libc::SIGPROF as u64;
        info[1] = u64::from(libc::SI_QUEUE as u32);
        info[3] = self.value();
        // SAFETY: `info` has the size and layout of siginfo_t on 64-bit Linux.
        let sent = unsafe {
            let (pid, at) = (libc::getpid(), info.as_ptr());
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGPROF, at)
        };
        sent == 0
    }
}
