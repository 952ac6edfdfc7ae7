//! What handlers may rely on while the snapshot of modules is replaced, and while sampling ends.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use loom::thread;
use std::ptr::null_mut;

use crate::models::check;
use crate::swap::{Claim, Old, Swap, each_was_free};

/// What a snapshot says once it was freed.
const FREED: u64 = 0;

/// The model checker sees when it is written while somebody reads it.
struct Snapshot(UnsafeCell<u64>);

impl Snapshot {
    fn new(number: u64) -> Box<Snapshot> {
        Box::new(Snapshot(UnsafeCell::new(number)))
    }

    fn number(&self) -> u64 {
        // SAFETY: that nobody writes meanwhile is what the model checks.
        self.0.with(|number| unsafe { *number })
    }

    /// In place of freeing, so that a late reader is seen, not a crash.
    fn free(self: Box<Snapshot>) {
        // SAFETY: that nobody reads meanwhile is what the model checks.
        self.0.with_mut(|number| unsafe { *number = FREED });
        std::mem::forget(self);
    }
}

struct Shared {
    swap: Swap<Snapshot>,
    claims: [Claim; 2],
    armed: AtomicBool,
    written: AtomicUsize,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let claim = || Claim::of(AtomicBool::new(false));
        Arc::new(Shared {
            swap: Swap::of(AtomicPtr::new(null_mut())),
            claims: [claim(), claim()],
            armed: AtomicBool::new(true),
            written: AtomicUsize::new(0),
        })
    }

    /// As a handler: the number of the snapshot that it found; `None` when every claim is taken.
    fn read(&self, hint: usize) -> Option<u64> {
        let claim = (0..2).find_map(|step| {
            let claim = &self.claims[(hint + step) % 2];
            claim.take().then_some(claim)
        })?;
        // SAFETY: the claim is held.
        let number = unsafe { self.swap.get() }.map_or(FREED, Snapshot::number);
        claim.give_back();
        Some(number)
    }

    fn each_was_free(&self, patience: usize) -> bool {
        let mut left = patience;
        each_was_free(&self.claims, || {
            thread::yield_now();
            left = left.saturating_sub(1);
            left > 0
        })
    }

    fn publish(&self, number: u64, patience: usize) {
        match self
            .swap
            .replace(Snapshot::new(number), || self.each_was_free(patience))
        {
            Old::Free(old) => old.free(),
            Old::None | Old::Held => {}
        }
    }
}

fn replace_while_two_read(patience: usize) {
    check(move || {
        let shared = Shared::new();
        shared.publish(1, patience);
        let readers = [0, 1].map(|hint| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let seen = shared.read(hint);
                assert!(matches!(seen, Some(1..=3)), "{seen:?}");
            })
        });
        shared.publish(2, patience);
        shared.publish(3, patience);
        let _ = readers.map(|reader| reader.join().unwrap());
        assert_eq!(shared.read(0), Some(3));
    });
}

/// Each handler finds a snapshot that is whole as long as it reads.
pub fn a_snapshot_is_freed_when_nobody_reads_it() {
    replace_while_two_read(usize::MAX);
}

/// A handler that a debugger stopped: the snapshot stays where it is.
pub fn a_snapshot_that_is_held_too_long_is_never_freed() {
    replace_while_two_read(1);
}

/// More handlers than claims: some go without, none shares one.
pub fn nobody_shares_a_claim() {
    check(|| {
        let shared = Shared::new();
        shared.publish(1, usize::MAX);
        let readers = [0, 0, 1].map(|hint| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read(hint))
        });
        let seen = readers.map(|reader| reader.join().unwrap());
        assert!(seen.iter().all(|seen| matches!(seen, None | Some(1))));
        assert!(seen.contains(&Some(1)), "{seen:?}");
    });
}

/// Once sampling was switched off and each claim was seen free, no handler writes any more.
pub fn nothing_is_written_after_the_end() {
    check(|| {
        let shared = Shared::new();
        let handlers = [0, 1].map(|hint| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let claim = &shared.claims[hint];
                assert!(claim.take());
                if shared.armed.load(Ordering::Acquire) {
                    shared.written.fetch_add(1, Ordering::Relaxed);
                }
                claim.give_back();
            })
        });
        shared.armed.store(false, Ordering::Release);
        assert!(shared.each_was_free(usize::MAX));
        let written = shared.written.load(Ordering::Relaxed);
        let _ = handlers.map(|handler| handler.join().unwrap());
        assert_eq!(shared.written.load(Ordering::Relaxed), written);
    });
}
