//! Where a walk may read.

use std::ops::Range;

/// Memory that a walk reads stack words from.
pub trait Stack {
    /// The aligned word at `address`, or `None` where it must not or cannot be read.
    fn word(&self, address: u64) -> Option<u64>;
}

/// Live stack memory of this process between two bounds.
#[derive(Clone, Debug)]
pub struct Live {
    start: u64,
    /// Bytes from `start` to the last readable word's own start.
    span: u64,
}

impl Live {
    /// Reads only inside `bounds`.
    ///
    /// # Safety
    /// `bounds` must be readable as long as this value is used.
    pub unsafe fn new(bounds: Range<usize>) -> Live {
        let start = (bounds.start as u64).next_multiple_of(8);
        // An empty or tiny range gets a start that no aligned word can match.
        match (bounds.end as u64)
            .checked_sub(start)
            .and_then(|n| n.checked_sub(8))
        {
            Some(span) => Live { start, span },
            None => Live { start: 1, span: 0 },
        }
    }
}

impl Stack for Live {
    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        if address.wrapping_sub(self.start) > self.span || address & 7 != 0 {
            return None;
        }
        // SAFETY: aligned and inside the bounds that `new`'s caller vouched for. Volatile, because
        // other code of the interrupted thread owns this memory.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}
