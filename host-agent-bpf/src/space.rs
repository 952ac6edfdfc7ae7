//! The space of 4-byte words that tables and lists of mappings live in: shards of 1 MiB, shared with the kernel.

use crate::layout::{SHARD_BITS, SHARD_WORDS, SHARDS};
use crate::sys::{self, Shared};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A piece of the space. It is given back by [`Space::free`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Index of the first word.
    pub word: u32,
    /// How many.
    pub words: u32,
}

/// Pieces begin at multiples of this: the size of a mapping, so that none of them lies across two shards.
const GRAIN: u32 = 8;

/// Hands out pieces of shards, first fit; makes shards as they are needed.
///
/// Freed pieces are handed out again only after [`Space::settle`]: until then a program that has just looked may still
/// read them.
pub struct Space {
    outer: OwnedFd,
    shards: Vec<Shard>,
    most_shards: usize,
    unsettled: Vec<Piece>,
    used_words: u64,
}

struct Shard {
    map: OwnedFd,
    memory: Shared,
    /// Start and length of what is free, in words.
    free: BTreeMap<u32, u32>,
}

impl Space {
    /// Over the outer map `outer`, with at most `budget_bytes` bytes.
    pub fn new(outer: OwnedFd, budget_bytes: u64) -> Space {
        let most = (budget_bytes >> (SHARD_BITS + 2)).clamp(1, u64::from(SHARDS) - 1);
        Space {
            outer,
            shards: Vec::new(),
            most_shards: most as usize,
            unsettled: Vec::new(),
            used_words: 0,
        }
    }

    /// Bytes handed out.
    pub fn used_bytes(&self) -> u64 {
        self.used_words * 4
    }

    /// Bytes of kernel memory.
    pub fn held_bytes(&self) -> u64 {
        (self.shards.len() as u64) << (SHARD_BITS + 2)
    }

    /// A piece of at least `words` words, all in one shard. `Ok(None)` when the budget is used up, or a shard is too
    /// small.
    pub fn take(&mut self, words: u32) -> io::Result<Option<Piece>> {
        let words = words.max(1).next_multiple_of(GRAIN);
        // The first word of all is nobody's: index 0 means none.
        if words > SHARD_WORDS - GRAIN {
            return Ok(None);
        }
        if let Some(piece) = self.fit(words) {
            return Ok(Some(piece));
        }
        if self.shards.len() >= self.most_shards {
            return Ok(None);
        }
        self.grow()?;
        Ok(self.fit(words))
    }

    fn fit(&mut self, words: u32) -> Option<Piece> {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let found = shard.free.iter().find(|&(_, &free)| free >= words);
            let Some((&start, &free)) = found else {
                continue;
            };
            shard.free.remove(&start);
            if free > words {
                shard.free.insert(start + words, free - words);
            }
            self.used_words += u64::from(words);
            let word = (number as u32) << SHARD_BITS | start;
            return Some(Piece { word, words });
        }
        None
    }

    fn grow(&mut self) -> io::Result<()> {
        let number = self.shards.len() as u32;
        let map = sys::create_shard(SHARD_WORDS * 4)?;
        let memory = Shared::map(map.as_fd(), SHARD_WORDS as usize * 4)?;
        sys::update(self.outer.as_fd(), &number, &(map.as_raw_fd() as u32))?;
        let free = BTreeMap::from([(GRAIN, SHARD_WORDS - GRAIN)]);
        self.shards.push(Shard { map, memory, free });
        Ok(())
    }

    /// Writes `words` at the start of `piece`.
    pub fn write(&mut self, piece: Piece, words: &[u32]) {
        let at = (piece.word & (SHARD_WORDS - 1)) as usize;
        let words = words.get(..piece.words as usize).unwrap_or(words);
        if let Some(shard) = self.shards.get_mut((piece.word >> SHARD_BITS) as usize) {
            shard.memory.write(at, words);
        }
    }

    /// Gives a piece back that nothing published refers to any more.
    pub fn free(&mut self, piece: Piece) {
        self.unsettled.push(piece);
    }

    /// Something was freed and waits for [`Space::settle`].
    pub fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Waits until no program runs that began before this call, and makes what was freed available.
    pub fn settle(&mut self) -> io::Result<()> {
        self.wait_for_programs()?;
        for piece in std::mem::take(&mut self.unsettled) {
            self.used_words -= u64::from(piece.words);
            let number = (piece.word >> SHARD_BITS) as usize;
            if let Some(shard) = self.shards.get_mut(number) {
                give_back(&mut shard.free, piece.word & (SHARD_WORDS - 1), piece.words);
            }
        }
        Ok(())
    }

    /// The kernel's own promise: an update of a map of maps returns when every running program sees it
    /// (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c).
    pub fn wait_for_programs(&mut self) -> io::Result<()> {
        if self.shards.is_empty() {
            self.grow()?;
        }
        let fd = self.shards[0].map.as_raw_fd() as u32;
        sys::update(self.outer.as_fd(), &0u32, &fd)
    }
}

/// Puts a piece among the free ones, joined with its neighbours.
fn give_back(free: &mut BTreeMap<u32, u32>, mut start: u32, mut words: u32) {
    if let Some((&before, &length)) = free.range(..start).next_back()
        && before + length == start
    {
        free.remove(&before);
        (start, words) = (before, words + length);
    }
    if let Some(length) = free.remove(&(start + words)) {
        words += length;
    }
    free.insert(start, words);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_become_one_piece() {
        let mut free = BTreeMap::from([(64, 8)]);
        for (start, words) in [(0, 16), (32, 32), (16, 16)] {
            give_back(&mut free, start, words);
        }
        assert_eq!(free, BTreeMap::from([(0, 72)]));
    }
}
