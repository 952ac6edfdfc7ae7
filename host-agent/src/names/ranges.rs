//! Names by address.

use crate::limits;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names of ranges of addresses that never overlap: a new one takes the place of what it covers.
#[derive(Debug, Default)]
pub struct Ranges {
    /// By start: end and name.
    ranges: BTreeMap<u64, (u64, Arc<str>)>,
    bytes: usize,
    refused: u64,
}

impl Ranges {
    /// Names `size` bytes from `start` on. Past [`limits::JIT_BYTES`] of names nothing is taken.
    pub fn add(&mut self, start: u64, size: u64, name: &str) {
        let name = cut(name);
        let Some(end) = start.checked_add(size.max(1)) else {
            return;
        };
        self.clear(start, end);
        if self.bytes + name.len() > limits::JIT_BYTES || self.ranges.len() >= limits::JIT_RANGES {
            self.refused += 1;
            return;
        }
        self.bytes += name.len();
        self.ranges.insert(start, (end, name.into()));
    }

    /// Code moved: what was named at `from` is at `to` now.
    pub fn shift(&mut self, from: u64, to: u64, size: u64) {
        if let Some(name) = self.find(from).map(str::to_owned) {
            self.clear(from, from.saturating_add(size.max(1)));
            self.add(to, size, &name);
        }
    }

    /// Takes away what overlaps `start..end`; the part of an older range that lies before `start` stays.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((&before, (old_end, _))) = self.ranges.range_mut(..start).next_back()
            && *old_end > start
        {
            debug_assert!(before < start);
            *old_end = start;
        }
        while let Some((&covered, _)) = self.ranges.range(start..end).next() {
            if let Some((_, name)) = self.ranges.remove(&covered) {
                self.bytes -= name.len();
            }
        }
    }

    /// The name at an address.
    pub fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many did not fit.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

fn cut(name: &str) -> &str {
    let mut end = name.len().min(limits::NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_names_win_and_cut_what_they_cover() {
        let mut ranges = Ranges::default();
        ranges.add(0x100, 0x100, "first");
        ranges.add(0x200, 0x100, "second");
        ranges.add(0x180, 0xc0, "third");
        let at = |address| ranges.find(address);
        assert_eq!(
            (at(0x17f), at(0x180), at(0x23f)),
            (Some("first"), Some("third"), Some("third"))
        );
        assert_eq!((at(0x240), at(0xff), at(0x300)), (None, None, None));
        ranges.shift(0x180, 0x900, 0xc0);
        assert_eq!(
            (ranges.find(0x190), ranges.find(0x910)),
            (None, Some("third"))
        );
        ranges.add(u64::MAX, 2, "wraps");
        ranges.add(5, 0, &"é".repeat(4000));
        assert_eq!(ranges.find(u64::MAX), None);
        assert!(ranges.find(5).unwrap().len() <= limits::NAME_BYTES);
    }
}
