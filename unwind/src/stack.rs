//! Where a walk may read.

use std::ops::Range;

/// Memory that a walk reads stack words from.
pub trait Stack {
    /// The aligned word at `address`, or `None` where it must not or cannot be read.
    fn word(&self, address: u64) -> Option<u64>;

    /// Two words at once.
    #[inline(always)]
    fn words(&self, a: u64, b: u64) -> Option<(u64, u64)> {
        Some((self.word(a)?, self.word(b)?))
    }
}

/// Live stack memory of this process between two bounds.
#[derive(Clone, Debug)]
pub struct Live {
    start: u64,
    /// Number of readable words from `start` on.
    words: u64,
}

impl Live {
    /// Reads only inside `bounds`.
    ///
    /// # Safety
    /// `bounds` must be readable as long as this value is used.
    pub unsafe fn new(bounds: Range<usize>) -> Live {
        let start = (bounds.start as u64).next_multiple_of(8);
        Live {
            start,
            words: (bounds.end as u64).saturating_sub(start) / 8,
        }
    }
}

impl Live {
    /// `address` is aligned and inside the bounds.
    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        // Rotated, an unaligned distance has a high bit set: one comparison checks both.
        address.wrapping_sub(self.start).rotate_right(3) < self.words
    }
}

impl Stack for Live {
    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        // SAFETY: aligned and inside the bounds that `new`'s caller vouched for. Volatile, because
        // other code of the interrupted thread owns this memory.
        self.holds(address)
            .then(|| unsafe { (address as *const u64).read_volatile() })
    }

    #[inline(always)]
    fn words(&self, a: u64, b: u64) -> Option<(u64, u64)> {
        // Both checks stand before both reads, so that nothing waits for a first one.
        if !(self.holds(a) & self.holds(b)) {
            return None;
        }
        // SAFETY: as in `word`.
        Some(unsafe {
            (
                (a as *const u64).read_volatile(),
                (b as *const u64).read_volatile(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_words_inside_the_bounds_are_read() {
        let words = [11u64, 22, 33];
        let at = words.as_ptr() as usize;
        // SAFETY: inside `words`.
        let live = unsafe { Live::new(at + 1..at + 23) };
        let read: Vec<Option<u64>> = (0..32).map(|i| live.word(at as u64 + i)).collect();
        let readable: Vec<usize> = (0..32).filter(|&i| read[i].is_some()).collect();
        assert_eq!((readable, read[8]), (vec![8], Some(22)));
        assert_eq!(live.word(at as u64 - 8), None);
        // SAFETY: nothing can be read.
        let empty = unsafe { Live::new(at..at + 7) };
        assert_eq!((0..32).find_map(|i| empty.word(at as u64 + i)), None);
    }
}
