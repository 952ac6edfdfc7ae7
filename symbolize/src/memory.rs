//! How much memory parsed objects may hold together.
//!
//! What a symbol table or a unit of DWARF will take is estimated from its size in the file before
//! it is read, and taken from the limit; what does not fit is not read. A test holds the estimates
//! against a counting allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A limit that objects share; see [`crate::Object::parse_within`].
#[derive(Debug)]
pub struct Memory {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    refused: AtomicU64,
}

impl Memory {
    /// At most so many bytes.
    #[must_use]
    pub const fn new(limit_bytes: usize) -> Memory {
        Memory {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Bytes in use, by estimate. Mapped files are not among them: the system may drop their pages.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Lookups that were answered with less than the file holds, because the limit was reached.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| {
            used.checked_add(bytes)
                .filter(|&sum| sum <= self.limit_bytes)
        };
        let relaxed = Ordering::Relaxed;
        self.used_bytes.fetch_update(relaxed, relaxed, fits).is_ok()
    }
}

/// What one object took; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pub memory: Arc<Memory>,
    taken_bytes: AtomicUsize,
}

impl Share {
    pub fn new(memory: Arc<Memory>) -> Share {
        Share {
            memory,
            taken_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether so many bytes more may be taken; they are, if so.
    pub fn take(&self, bytes: usize) -> bool {
        let fits = self.memory.take(bytes);
        if fits {
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let taken = *self.taken_bytes.get_mut();
        self.memory.used_bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}
