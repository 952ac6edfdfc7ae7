//! Hashing for interners and for the identity of a push.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

const K: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seed drawn once a process: names come from outside, and must not be able to aim at one slot.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(K))
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// Hash of two numbers, valid inside this process only.
#[inline]
pub fn pair(a: u64, b: u64) -> u64 {
    fold(a ^ seed(), b ^ K)
}

/// Hash of a byte string, valid inside this process only.
pub fn bytes(data: &[u8]) -> u64 {
    let mut state = seed() ^ (data.len() as u64);
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        let mut buffer = [0; 8];
        buffer.copy_from_slice(word);
        state = fold(state ^ u64::from_le_bytes(buffer), K);
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    fold(state ^ u64::from_le_bytes(last), K | 2)
}

/// Two hashes with seeds of their own, valid inside this process only.
pub type Wide = (u64, u64);

/// The second hash starts elsewhere and multiplies by another number.
const K2: u64 = 0xd6e8_feb8_6659_fd93;

#[inline]
fn wide_step(state: Wide, word: u64) -> Wide {
    (fold(state.0 ^ word, K), fold(state.1 ^ word, K2))
}

#[inline]
fn wide_start(len: usize) -> Wide {
    (seed() ^ (len as u64), seed().rotate_left(32) ^ (len as u64))
}

/// Hash of two hashes.
#[inline]
pub fn wide_pair(a: Wide, b: Wide) -> Wide {
    let state = wide_step(wide_step(wide_start(4), a.0), a.1);
    wide_step(wide_step(state, b.0), b.1)
}

/// Hash of a list of numbers.
#[inline]
pub fn wide_ids(list: &[u32]) -> Wide {
    let mut state = wide_start(list.len());
    let mut pairs = list.chunks_exact(2);
    for pair in &mut pairs {
        state = wide_step(state, u64::from(pair[0]) << 32 | u64::from(pair[1]));
    }
    let last = pairs.remainder().first().map_or(0, |&id| u64::from(id) + 1);
    wide_step(state, last)
}

/// Hash of a byte string.
#[inline]
pub fn wide_bytes(data: &[u8]) -> Wide {
    let mut state = wide_start(data.len());
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        let mut buffer = [0; 8];
        buffer.copy_from_slice(word);
        state = wide_step(state, u64::from_le_bytes(buffer));
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    wide_step(state, u64::from_le_bytes(last))
}

/// Open-addressing table from a hash to an id; the caller keeps the values and compares them.
#[derive(Default)]
pub struct IdTable {
    /// (hash, id + 1); 0 = empty.
    slots: Vec<(u32, u32)>,
    len: usize,
}

impl IdTable {
    /// Heap bytes.
    pub fn heap_bytes(&self) -> usize {
        self.slots.len() * size_of::<(u32, u32)>()
    }

    /// The id under `hash` for which `equal` holds, or `new_id` put in its place.
    /// Second part of the answer: whether `new_id` was taken.
    #[inline]
    pub fn intern(
        &mut self,
        hash: u64,
        new_id: u32,
        mut equal: impl FnMut(u32) -> bool,
    ) -> (u32, bool) {
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let short = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut at = short as usize & mask;
        loop {
            let (seen, id) = self.slots[at];
            if id == 0 {
                self.slots[at] = (short, new_id + 1);
                self.len += 1;
                return (new_id, true);
            }
            if seen == short && equal(id - 1) {
                return (id - 1, false);
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![(0, 0); size]);
        for (short, id) in old.into_iter().filter(|slot| slot.1 != 0) {
            let mut at = short as usize & (size - 1);
            while self.slots[at].1 != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = (short, id);
        }
    }
}

/// Table from a pair of ids to the id of the pair. The pair stands in the slot: one cache miss a
/// lookup, and tree nodes are looked up by the million.
#[derive(Default)]
pub struct PairTable {
    /// (first << 32 | second, id + 1); 0 = empty.
    slots: Vec<(u64, u32)>,
    len: usize,
}

impl PairTable {
    /// Heap bytes.
    pub fn heap_bytes(&self) -> usize {
        self.slots.len() * size_of::<(u64, u32)>()
    }

    /// The id of a pair, or `new_id` put in its place; then the second part is true.
    #[inline]
    pub fn intern(&mut self, first: u32, second: u32, new_id: u32) -> (u32, bool) {
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let key = u64::from(first) << 32 | u64::from(second);
        let at = self.slot(key);
        if self.slots[at].1 != 0 {
            return (self.slots[at].1 - 1, false);
        }
        self.slots[at] = (key, new_id + 1);
        self.len += 1;
        (new_id, true)
    }

    /// Where the key stands or belongs.
    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = fold(key ^ seed(), K) as usize & mask;
        loop {
            let (seen, id) = self.slots[at];
            if id == 0 || seen == key {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![(0, 0); size]);
        for (key, id) in old.into_iter().filter(|slot| slot.1 != 0) {
            let at = self.slot(key);
            self.slots[at] = (key, id);
        }
    }
}

/// 128-bit identity of data, the same in every process and on every machine
/// (MurmurHash3 x64 128, public domain). Not for use against an adversary: a sender who makes
/// two of his own pushes collide loses one of his own pushes.
pub struct Identity {
    h1: u64,
    h2: u64,
    len: u64,
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

impl Identity {
    /// Identity of the parts, in order; their borders count.
    pub fn of(parts: &[&[u8]]) -> u128 {
        let mut identity = Self {
            h1: 0,
            h2: 0,
            len: 0,
        };
        for part in parts {
            identity.add(part);
        }
        identity.finish()
    }

    fn add(&mut self, part: &[u8]) {
        let mut blocks = part.chunks_exact(16);
        for block in &mut blocks {
            self.block(block);
        }
        let rest = blocks.remainder();
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        // The length closes a part, so that moving a byte over a border changes the identity.
        self.block(&last);
        let mut close = [0; 16];
        close[..8].copy_from_slice(&(part.len() as u64).to_le_bytes());
        self.block(&close);
        self.len = self.len.wrapping_add(part.len() as u64);
    }

    fn block(&mut self, block: &[u8]) {
        let (mut a, mut b) = ([0; 8], [0; 8]);
        a.copy_from_slice(&block[..8]);
        b.copy_from_slice(&block[8..]);
        let k1 = u64::from_le_bytes(a)
            .wrapping_mul(C1)
            .rotate_left(31)
            .wrapping_mul(C2);
        self.h1 = (self.h1 ^ k1).rotate_left(27).wrapping_add(self.h2);
        self.h1 = self.h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        let k2 = u64::from_le_bytes(b)
            .wrapping_mul(C2)
            .rotate_left(33)
            .wrapping_mul(C1);
        self.h2 = (self.h2 ^ k2).rotate_left(31).wrapping_add(self.h1);
        self.h2 = self.h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }

    fn finish(self) -> u128 {
        let (mut h1, mut h2) = (self.h1 ^ self.len, self.h2 ^ self.len);
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        (h1, h2) = (mix(h1), mix(h2));
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        (u128::from(h1) << 64) | u128::from(h2)
    }
}

fn mix(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_depends_on_content_and_on_borders_and_never_changes() {
        let a = Identity::of(&[b"ab", b"c"]);
        assert_ne!(a, Identity::of(&[b"a", b"bc"]));
        assert_ne!(a, Identity::of(&[b"ab", b"d"]));
        assert_eq!(a, Identity::of(&[b"ab", b"c"]));
        // Stored in segments: a change of this value would count retries across an upgrade twice.
        assert_eq!(
            format!("{:032x}", Identity::of(&[b"pilotlight"])),
            "c5e73e4d1bfc4a853828604e82cfd706"
        );
    }

    #[test]
    fn table_keeps_ids_apart_when_hashes_collide() {
        let mut table = IdTable::default();
        for id in 0..1000 {
            assert_eq!(table.intern(7 << 32, id, |seen| seen == id), (id, true));
        }
        assert_eq!(
            table.intern(7 << 32, 5000, |seen| seen == 321),
            (321, false)
        );
    }
}
