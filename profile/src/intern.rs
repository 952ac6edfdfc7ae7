//! Hashing and the id table behind every interner of this crate.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::strings::{StrId, Strings};

/// Open-addressing table from a hash to an id; the owner holds the values and compares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdTable {
    /// High half: low 32 bits of the hash; low half: id + 1, 0 for a free slot.
    slots: Vec<u64>,
    len: usize,
}

impl IdTable {
    /// The id whose value has this hash and satisfies `same`; or none, after noting `new_id` there.
    #[inline]
    pub fn find_or_insert(
        &mut self,
        hash: u64,
        new_id: u32,
        mut same: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let tag = hash & 0xffff_ffff;
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                self.slots[at] = tag << 32 | (u64::from(new_id) + 1);
                self.len += 1;
                return None;
            }
            let id = (slot as u32).wrapping_sub(1);
            if slot >> 32 == tag && same(id) {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        for slot in old.into_iter().filter(|&slot| slot != 0) {
            let mut at = (slot >> 32) as usize & (size - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = slot;
        }
    }
}

/// Folded-multiply hash with a random seed per value of this type, so that a hostile profile cannot
/// prepare collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Seed(RandomState::new().build_hasher().finish() | 1)
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * u128::from(MULTIPLIER);
    (product as u64) ^ (product >> 64) as u64
}

impl Seed {
    /// Hash of a few machine words.
    #[inline]
    pub fn words(self, words: &[u64]) -> u64 {
        let folded = words.iter().fold(self.0, |state, &word| mix(state, word));
        mix(folded, self.0)
    }

    /// Hash of a list of ids.
    #[inline]
    pub fn ids(self, ids: &[u32]) -> u64 {
        let pairs = ids.chunks_exact(2);
        let last = pairs.remainder().first().map_or(0, |&id| u64::from(id));
        let folded = pairs.fold(self.0 ^ ids.len() as u64, |state, pair| {
            mix(state, u64::from(pair[0]) << 32 | u64::from(pair[1]))
        });
        mix(mix(folded, last), self.0)
    }

    /// Hash of bytes.
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> u64 {
        let (chunks, tail) = bytes.as_chunks::<8>();
        let mut state = self.0 ^ bytes.len() as u64;
        for chunk in chunks {
            state = mix(state, u64::from_le_bytes(*chunk));
        }
        let rest = tail
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
        mix(mix(state, rest), self.0)
    }
}

/// A string table in which equal strings have one id.
#[derive(Clone, Debug, Default)]
pub(crate) struct StringInterner {
    pub strings: Strings,
    table: IdTable,
    seed: Seed,
}

impl StringInterner {
    pub fn intern(&mut self, bytes: &[u8]) -> StrId {
        if bytes.is_empty() {
            return StrId::EMPTY;
        }
        let new_id = self.strings.len() as u32;
        let strings = &self.strings;
        let same = |id| strings.get(StrId(id)) == bytes;
        match self
            .table
            .find_or_insert(self.seed.bytes(bytes), new_id, same)
        {
            Some(id) => StrId(id),
            None => self.strings.push(bytes),
        }
    }
}
