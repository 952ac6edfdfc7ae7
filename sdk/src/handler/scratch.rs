//! Buffers that a handler unwinds into, so that it needs no stack for frames.

use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

use super::swap::{Claim, each_was_free};
use crate::atomics::AtomicBool;
use crate::config::MAX_DEPTH;

/// More handlers than this at one moment, and some drop their sample as `busy`.
const BUFFERS: usize = 64;

/// Handlers run for microseconds; a thread that holds a buffer and gets no CPU may take longer.
const PATIENCE: Duration = Duration::from_millis(500);

struct Buffer {
    claim: Claim,
    frames: UnsafeCell<[u64; MAX_DEPTH]>,
}

/// In the zero pages of the program: a buffer costs memory once it was used.
pub(crate) struct ScratchPool {
    buffers: [Buffer; BUFFERS],
}

// SAFETY: `frames` is only reached through `Scratch`, which holds the buffer's claim.
unsafe impl Sync for ScratchPool {}

/// A buffer of frames, given back when dropped.
pub(crate) struct Scratch<'a>(&'a Buffer);

impl ScratchPool {
    pub(crate) const fn new() -> ScratchPool {
        ScratchPool {
            buffers: [const {
                Buffer {
                    claim: Claim::of(AtomicBool::new(false)),
                    frames: UnsafeCell::new([0; MAX_DEPTH]),
                }
            }; BUFFERS],
        }
    }

    /// A free buffer, looked for from `hint` on.
    pub(crate) fn acquire(&self, hint: usize) -> Option<Scratch<'_>> {
        (0..BUFFERS).find_map(|step| {
            let buffer = &self.buffers[(hint + step) % BUFFERS];
            // Made only when it is ours: dropping one gives the buffer back, whoever has it.
            buffer.claim.take().then(|| Scratch(buffer))
        })
    }

    /// In a forked child: who held a buffer is not there any more.
    pub(crate) fn free_all(&self) {
        for buffer in &self.buffers {
            buffer.claim.give_back();
        }
    }

    /// Waits until each buffer was seen free at least once since the call; false when one is held
    /// for longer than any handler runs.
    pub(crate) fn each_was_free(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        each_was_free(self.buffers.iter().map(|buffer| &buffer.claim), || {
            std::thread::yield_now();
            Instant::now() <= deadline
        })
    }
}

impl Scratch<'_> {
    /// Room for `depth` frames, at most [`MAX_DEPTH`].
    pub(crate) fn frames(&mut self, depth: usize) -> &mut [u64] {
        // SAFETY: the claim is ours until drop, so nobody else has this buffer.
        let frames: &mut [u64; MAX_DEPTH] = unsafe { &mut *self.0.frames.get() };
        &mut frames[..depth.min(MAX_DEPTH)]
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.0.claim.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_for_a_buffer_gives_nobody_elses_back() {
        static POOL: ScratchPool = ScratchPool::new();
        let held: Vec<_> = (0..BUFFERS).map(|_| POOL.acquire(7).unwrap()).collect();
        let mut distinct: Vec<*const Buffer> = held.iter().map(|held| held.0 as *const _).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), BUFFERS);
        assert!((0..BUFFERS).all(|hint| POOL.acquire(hint).is_none()));
        assert!(POOL.buffers.iter().all(|buffer| !buffer.claim.is_free()));
        drop(held);
        assert!(POOL.each_was_free());
    }
}
