//! Which addresses have their answer: the first to claim one keeps it.

use std::collections::BTreeMap;

/// Disjoint ranges, start to end; neighbours are one.
#[derive(Default)]
pub(crate) struct Coverage(BTreeMap<u32, u32>);

impl Coverage {
    /// Claims `start..end` and gives the parts that nobody had.
    pub fn claim(&mut self, start: u32, end: u32) -> Vec<(u32, u32)> {
        if start >= end {
            return Vec::new();
        }
        let (mut from, mut to) = (start, end);
        let mut free = Vec::new();
        let mut at = start;
        let before = self.0.range(..start).next_back().filter(|r| *r.1 >= start);
        if let Some((&s, &e)) = before {
            (from, to) = (s, to.max(e));
            at = e;
        }
        let inside: Vec<(u32, u32)> = self.0.range(start..=end).map(|(&s, &e)| (s, e)).collect();
        for (s, e) in inside {
            if at < s.min(end) {
                free.push((at, s.min(end)));
            }
            at = at.max(e);
            to = to.max(e);
            self.0.remove(&s);
        }
        if at < end {
            free.push((at, end));
        }
        self.0.insert(from, to);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_free_is_given() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.claim(10, 20), [(10, 20)]);
        assert_eq!(coverage.claim(30, 40), [(30, 40)]);
        assert_eq!(coverage.claim(5, 35), [(5, 10), (20, 30)]);
        assert_eq!(coverage.claim(5, 40), []);
        assert_eq!(coverage.claim(39, 41), [(40, 41)]);
        assert_eq!(coverage.claim(41, 50), [(41, 50)]);
        assert_eq!(coverage.claim(50, 50), []);
        assert_eq!(coverage.0.len(), 1, "neighbours are one");
    }

    #[test]
    fn it_agrees_with_one_bit_an_address() {
        let (mut coverage, mut bits) = (Coverage::default(), [false; 256]);
        let mut random = 1u32;
        for _ in 0..2000 {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            let (start, length) = ((random >> 8) % 250, (random >> 20) % 6);
            if random.is_multiple_of(97) {
                (coverage, bits) = (Coverage::default(), [false; 256]);
            }
            let mut given = [false; 256];
            for (s, e) in coverage.claim(start, start + length) {
                assert!(s < e && s >= start && e <= start + length);
                given[s as usize..e as usize].fill(true);
            }
            for a in start as usize..(start + length) as usize {
                assert_eq!(given[a], !bits[a], "{a}");
                bits[a] = true;
            }
        }
    }
}
