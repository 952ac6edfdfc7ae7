//! A value that signal handlers read without waiting, and that one thread replaces.
//!
//! A reader takes a [`Claim`], then loads the pointer. The writer swaps the pointer, then sees each
//! claim free once: whoever takes one later finds the new value. Both look at a claim by a
//! read-modify-write, so one of them comes first: that needs no order over all threads, and the model
//! of `sdk/loom` goes through each.

use crate::atomics::{AtomicBool, AtomicPtr, Ordering};

/// Held while something is read that may be replaced.
pub(crate) struct Claim(AtomicBool);

impl Claim {
    /// Of a flag that is false.
    pub(crate) const fn of(taken: AtomicBool) -> Claim {
        Claim(taken)
    }

    /// False when somebody else has it. Async-signal-safe.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// By the one who took it: what it read before is read.
    pub(crate) fn give_back(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    /// Nobody has it; who takes it from now on sees what the caller did before.
    pub(crate) fn is_free(&self) -> bool {
        !self.0.fetch_or(false, Ordering::AcqRel)
    }
}

/// Returns once each of `claims` was free at some moment since the call; false when `wait` said so
/// while one was held.
pub(crate) fn each_was_free<'a>(
    claims: impl IntoIterator<Item = &'a Claim>,
    mut wait: impl FnMut() -> bool,
) -> bool {
    claims.into_iter().all(|claim| {
        loop {
            if claim.is_free() {
                return true;
            }
            if !wait() {
                return false;
            }
        }
    })
}

/// The value, or none yet.
pub(crate) struct Swap<T>(AtomicPtr<T>);

/// What the replaced value is.
#[derive(Debug)]
pub(crate) enum Old<T> {
    /// There was none.
    None,
    /// Nobody's but the caller's.
    Free(Box<T>),
    /// Somebody may read it for ever: it is left where it is.
    Held,
}

impl<T> Swap<T> {
    /// Of a null pointer.
    pub(crate) const fn of(null: AtomicPtr<T>) -> Swap<T> {
        Swap(null)
    }

    /// Puts `new` in the place of what was there. `each_was_free` is about all claims that readers
    /// take, and false when one is held for too long. Only one thread at a time may call this.
    pub(crate) fn replace(&self, new: Box<T>, each_was_free: impl FnOnce() -> bool) -> Old<T> {
        let old = self.0.swap(Box::into_raw(new), Ordering::AcqRel);
        match (old.is_null(), each_was_free()) {
            (true, _) => Old::None,
            (false, false) => Old::Held,
            // SAFETY: made by `Box::into_raw` above; readers load the pointer after they take a
            // claim, and each was free after the swap: none has the old one.
            (false, true) => Old::Free(unsafe { Box::from_raw(old) }),
        }
    }

    /// The value.
    ///
    /// # Safety
    /// The caller holds a [`Claim`] that each [`Swap::replace`] waits for, taken before the call, as
    /// long as it uses the value.
    pub(crate) unsafe fn get<'a>(&self) -> Option<&'a T> {
        // SAFETY: promised by the caller.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}
