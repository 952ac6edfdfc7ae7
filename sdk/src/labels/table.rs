//! All label sets of the process, found by number: a handler writes the number into a record, and
//! the set is looked up when the record is read.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, MutexGuard, OnceLock};

use super::Pair;
use crate::fork::{self, Held, Lock};
use crate::stats::COUNTERS;

/// Sets kept at most; their slots fit the low 16 bits of an id.
const MAX_SETS: usize = 16_384;
/// Bytes of keys, values and their places, at most.
const MAX_BYTES: usize = 4 << 20;
/// What a set costs besides its text, bytes, roughly.
const SET_BYTES: usize = 160;

/// Id of the set that stands for those that have no room.
pub(crate) const OVERFLOW: u32 = 1;

/// Labels, ascending by key.
#[derive(Debug)]
pub(crate) struct Set {
    /// 0 for the empty set; else slot + 1 in the low half, how often the slot was reused in the high.
    pub(crate) id: u32,
    pub(crate) labels: Box<[Pair]>,
}

impl Set {
    fn bytes(&self) -> usize {
        let text = |(key, value): &Pair| 2 * size_of::<Box<str>>() + key.len() + value.len();
        SET_BYTES + self.labels.iter().map(text).sum::<usize>()
    }
}

#[derive(Default)]
struct Slot {
    reused: u16,
    set: Option<Arc<Set>>,
}

struct Table {
    slots: Vec<Slot>,
    /// Slots by hash of their labels. Equal hashes are rare: the later set just is not found again.
    by_hash: HashMap<u64, u16>,
    hasher: RandomState,
    bytes: usize,
    /// Where the search for a set that nobody holds goes on.
    hand: usize,
    /// Stands for sets that have no room.
    overflow: Arc<Set>,
    empty: Arc<Set>,
}

fn table() -> MutexGuard<'static, Table> {
    shared().lock()
}

fn shared() -> &'static Lock<Table> {
    static TABLE: OnceLock<Lock<Table>> = OnceLock::new();
    TABLE.get_or_init(|| {
        fork::watch();
        Lock::new(Table::new())
    })
}

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    shared()
}

/// The one set with these labels.
pub(super) fn intern(labels: Vec<Pair>) -> Arc<Set> {
    table().intern(labels, MAX_SETS, MAX_BYTES)
}

/// The set of an id; none for 0, and for a set that made room for another.
pub(crate) fn of_id(id: u32) -> Option<Arc<Set>> {
    if id == 0 {
        return None;
    }
    let table = table();
    let slot = table.slots.get((id as u16).wrapping_sub(1) as usize)?;
    slot.set.as_ref().filter(|set| set.id == id).cloned()
}

impl Table {
    fn new() -> Table {
        let pair: Pair = ("labels".into(), "[overflow]".into());
        let overflow = Arc::new(Set {
            id: OVERFLOW,
            labels: Box::new([pair]),
        });
        Table {
            slots: vec![Slot {
                reused: 0,
                set: Some(Arc::clone(&overflow)),
            }],
            by_hash: HashMap::new(),
            hasher: RandomState::new(),
            bytes: 0,
            hand: 0,
            overflow,
            empty: Arc::new(Set {
                id: 0,
                labels: Box::new([]),
            }),
        }
    }

    fn intern(&mut self, labels: Vec<Pair>, max_sets: usize, max_bytes: usize) -> Arc<Set> {
        if labels.is_empty() {
            return Arc::clone(&self.empty);
        }
        let hash = self.hasher.hash_one(&labels);
        let known = self.by_hash.get(&hash).map(|&at| usize::from(at));
        let known = known.and_then(|at| self.slots[at].set.as_ref());
        if let Some(set) = known.filter(|set| set.labels[..] == labels[..]) {
            return Arc::clone(set);
        }
        let mut set = Set {
            id: 0,
            labels: labels.into_boxed_slice(),
        };
        let bytes = set.bytes();
        let Some(at) = self.room(bytes, max_sets, max_bytes) else {
            COUNTERS.label_sets_overflowed.add(1);
            return Arc::clone(&self.overflow);
        };
        let slot = &mut self.slots[at];
        set.id = u32::from(slot.reused) << 16 | (at as u32 + 1);
        let set = Arc::new(set);
        slot.set = Some(Arc::clone(&set));
        self.bytes += bytes;
        self.by_hash.insert(hash, at as u16);
        set
    }

    /// A free slot, with `bytes` to spare.
    fn room(&mut self, bytes: usize, max_sets: usize, max_bytes: usize) -> Option<usize> {
        if self.slots.len() < max_sets && self.bytes + bytes <= max_bytes {
            self.slots.push(Slot::default());
            return Some(self.slots.len() - 1);
        }
        let mut freed = None;
        for _ in 0..self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            if self.forget(self.hand) {
                freed = Some(self.hand);
            }
            if freed.is_some() && self.bytes + bytes <= max_bytes {
                return freed;
            }
        }
        None
    }

    /// Frees the slot if nobody but the table holds its set, or it is free.
    fn forget(&mut self, at: usize) -> bool {
        let slot = &mut self.slots[at];
        let Some(set) = slot.set.take_if(|set| Arc::strong_count(set) == 1) else {
            return slot.set.is_none();
        };
        slot.reused = slot.reused.wrapping_add(1);
        self.bytes -= set.bytes();
        let hash = self.hasher.hash_one(&*set.labels);
        if self.by_hash.get(&hash) == Some(&(at as u16)) {
            self.by_hash.remove(&hash);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(value: usize) -> Vec<Pair> {
        vec![("request".into(), value.to_string().into())]
    }

    #[test]
    fn a_held_set_keeps_its_number_and_others_make_room() {
        let mut table = Table::new();
        let held = table.intern(pair(0), 10, MAX_BYTES);
        let first = table.intern(pair(1), 10, MAX_BYTES).id;
        let ids: Vec<u32> = (2..if cfg!(miri) { 40 } else { 1000 })
            .map(|n| table.intern(pair(n), 10, MAX_BYTES).id)
            .collect();
        assert!(Arc::ptr_eq(&held, &table.intern(pair(0), 10, MAX_BYTES)));
        assert_eq!(table.slots.len(), 10);
        assert!(!ids.contains(&first) && !ids.contains(&held.id));
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ids.len(), "a number names one set for good");
    }

    #[test]
    fn when_all_are_held_the_rest_is_one_overflow_set() {
        let mut table = Table::new();
        let held: Vec<_> = (0..20)
            .map(|n| table.intern(pair(n), 10, MAX_BYTES))
            .collect();
        assert_eq!(held.iter().filter(|set| set.id == 1).count(), 11);
        assert_eq!(&*held[19].labels[0].1, "[overflow]");
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut table = Table::new();
        let one = table.intern(pair(100), 1000, MAX_BYTES).bytes();
        let held: Vec<_> = (101..120)
            .map(|n| table.intern(pair(n), 1000, 5 * one))
            .collect();
        assert_eq!(held.iter().filter(|set| set.id != 1).count(), 5);
        assert!(table.bytes <= 5 * one);
        drop(held);
        assert_ne!(table.intern(pair(7), 1000, 5 * one).id, 1);
    }
}
