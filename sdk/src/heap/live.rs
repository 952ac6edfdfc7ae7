//! Looked-at blocks that are not freed yet: an exact table by address, and one byte a slot of a
//! filter that spares all other frees the look into it.
//!
//! Lock-free. A block's entry is written before its address is handed out, and removed by whoever
//! frees it: two threads never race for one entry, only for free places.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::sampler::Weight;
use crate::pages::Pages;
use crate::sites::Site;

/// Slots of the filter, by the address alone: it is as local as the heap itself. With one block in
/// 512 KiB and a heap of 1 GiB 1.5 % of the slots are taken.
const FILTER: usize = 1 << if cfg!(miri) { 10 } else { 17 };
/// A filter slot that reached this stays.
const STUCK: u8 = u8::MAX;
/// Places in a bucket: the keys of one fill a cache line.
const WAYS: usize = 8;
const BUCKETS: usize = 1 << if cfg!(miri) { 5 } else { 13 };
/// Blocks that can be known at once; a heap of 32 GiB at 512 KiB.
const PLACES: usize = WAYS * BUCKETS;
/// Words of an entry besides its key.
const ENTRY_WORDS: usize = 3;
/// Keys: nothing there, or somebody is about to write.
const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// In the zero pages of the program: costs memory as the heap reaches its addresses.
static FILTER_SLOTS: [AtomicU8; FILTER] = [const { AtomicU8::new(0) }; FILTER];
/// All keys, then all entries.
static TABLE: Pages = Pages::new(PLACES * (1 + ENTRY_WORDS));

/// A block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) site: Site,
    pub(super) weight: Weight,
}

#[inline(always)]
fn slot(block: *mut u8) -> &'static AtomicU8 {
    // Blocks are 16 bytes apart.
    &FILTER_SLOTS[block as usize >> 4 & (FILTER - 1)]
}

/// False when the block is surely not in the table.
#[inline(always)]
pub(super) fn may_hold(block: *mut u8) -> bool {
    slot(block).load(Ordering::Relaxed) != 0
}

/// The two buckets where an address may be.
fn buckets(block: *mut u8) -> [usize; 2] {
    let address = block as u64 >> 4;
    let of = |factor: u64| {
        (address.wrapping_mul(factor) >> (64 - BUCKETS.trailing_zeros())) as usize * WAYS
    };
    [of(0x9e37_79b9_7f4a_7c15), of(0xd6e8_feb8_6659_fd93)]
}

fn places(block: *mut u8) -> impl Iterator<Item = usize> {
    buckets(block)
        .into_iter()
        .flat_map(|start| start..start + WAYS)
}

fn entry(table: &[AtomicU64], place: usize) -> &[AtomicU64] {
    &table[PLACES + place * ENTRY_WORDS..][..ENTRY_WORDS]
}

/// False when there is no place for it.
pub(super) fn insert(block: *mut u8, new: Entry) -> bool {
    let table = TABLE.get();
    if table.is_empty() {
        return false;
    }
    let is_mine = |place: &usize| {
        table[*place].load(Ordering::Relaxed) == FREE
            && table[*place]
                .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    };
    let Some(place) = places(block).find(is_mine) else {
        return false;
    };
    let words = [
        u64::from(new.site.to_word()),
        new.weight.objects,
        new.weight.bytes,
    ];
    for (to, word) in entry(table, place).iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    table[place].store(block as u64, Ordering::Release);
    let up = |count: u8| (count != STUCK).then(|| count + 1);
    // At the limit it stays.
    let _ = slot(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, up);
    true
}

/// Takes a block out, for the one who frees it.
pub(super) fn remove(block: *mut u8) -> Option<Entry> {
    let table = TABLE.touched();
    let is_it = |place: &usize| {
        let key = table.get(*place).map(|key| key.load(Ordering::Acquire));
        key == Some(block as u64)
    };
    let place = places(block).find(is_it)?;
    let words = entry(table, place);
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let found = Entry {
        site: Site::from_word(word(0) as u32),
        weight: Weight {
            objects: word(1),
            bytes: word(2),
        },
    };
    table[place].store(FREE, Ordering::Release);
    let down = |count: u8| (count != STUCK && count != 0).then(|| count - 1);
    let _ = slot(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, down);
    Some(found)
}

/// Blocks that are known now.
#[cfg(test)]
fn count() -> usize {
    let keys = TABLE.touched().iter().take(PLACES);
    keys.filter(|key| key.load(Ordering::Relaxed) > TAKEN)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(n: u64) -> Entry {
        Entry {
            site: Site::from_word(n as u32),
            weight: Weight {
                objects: n * 3,
                bytes: n * 7,
            },
        }
    }

    fn block(n: u64) -> *mut u8 {
        (0x7f00_0000_0000 + n * 16) as *mut u8
    }

    #[test]
    fn what_went_in_comes_out_once_and_nothing_else_does() {
        // The whole filter many times over: every slot is shared by many addresses.
        const N: u64 = if cfg!(miri) { 100 } else { 40_000 };
        let far = |n: u64| block(n * 131 + 5);
        for n in 0..N {
            assert!(insert(far(n), entry_of(n)));
        }
        assert_eq!(count(), N as usize);
        for n in 0..N {
            assert!(may_hold(far(n)));
            assert_eq!(remove(block(n * 131 + 6)), None);
            assert_eq!(remove(far(n)), Some(entry_of(n)));
            assert_eq!(remove(far(n)), None);
        }
        assert_eq!(count(), 0);
        assert!(!(0..N).any(|n| may_hold(far(n))));
        fills_up_and_refuses();
        threads_take_out_what_others_put_in();
    }

    /// Part of one test: the table is one for all.
    fn fills_up_and_refuses() {
        let put: Vec<u64> = (0..2 * PLACES as u64)
            .filter(|n| insert(block(n * 1009), entry_of(*n)))
            .collect();
        assert_eq!(count(), put.len());
        assert!(put.len() > PLACES * 9 / 10, "{}", put.len());
        for n in put {
            assert_eq!(remove(block(n * 1009)), Some(entry_of(n)));
        }
        assert_eq!(count(), 0);
    }

    fn threads_take_out_what_others_put_in() {
        let (send, receive) = std::sync::mpsc::sync_channel::<u64>(64);
        let receive = std::sync::Mutex::new(receive);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let send = send.clone();
                scope.spawn(move || {
                    for n in 0..if cfg!(miri) { 50 } else { 20_000u64 } {
                        let n = n * 2 + thread;
                        assert!(insert(block(n), entry_of(n)));
                        send.send(n).unwrap();
                    }
                });
            }
            drop(send);
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let next = receive.lock().unwrap().recv();
                        let Ok(n) = next else { break };
                        assert_eq!(remove(block(n)), Some(entry_of(n)));
                    }
                });
            }
        });
        assert_eq!(count(), 0);
    }
}
