//! Rules by address, shared by all threads: one atomic word a slot, so nothing can tear.

use crate::Modules;
use crate::rule::{Class, Packed};
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 8192;
/// User addresses on x86-64.
const ADDRESS_BITS: u32 = 47;
const _: () = assert!(ADDRESS_BITS - SLOTS.trailing_zeros() == Packed::TAG_BITS);

/// A direct-mapped cache of 8,192 rules (64 KiB), lock-free and shared between threads. An address
/// whose slot is taken over stays in the neighbouring slot of the same cache line.
///
/// It is bound to one [`Modules`] snapshot: make a new one with each snapshot. [`unwind`] ignores a
/// cache of another snapshot (slower, never wrong).
///
/// [`unwind`]: crate::unwind
pub struct Cache {
    modules: u64,
    slots: Box<[AtomicU64; SLOTS]>,
}

impl Cache {
    /// An empty cache for `modules`; its memory is touched, so that no page fault comes later.
    pub fn new(modules: &Modules) -> Cache {
        let slots: Box<[AtomicU64]> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let Ok(slots) = slots.try_into() else {
            unreachable!("SLOTS elements were collected")
        };
        Cache {
            modules: modules.id(),
            slots,
        }
    }

    /// The cache was made for this snapshot.
    pub fn is_for(&self, modules: &Modules) -> bool {
        self.modules == modules.id()
    }

    /// Bits 3..16 choose the slot: call instructions take at least 5 bytes, so that neighbours
    /// share a cache line rather than a slot.
    #[inline(always)]
    fn index(key: u64) -> usize {
        (key >> 3) as usize & (SLOTS - 1)
    }

    /// All bits of a key that its slot does not tell: 13 and up, of which 13..16 are told and
    /// therefore carry bits 0..3 too.
    #[inline(always)]
    fn tag(key: u64) -> u64 {
        (key >> SLOTS.trailing_zeros()) ^ (key & 7)
    }

    /// The rule of `key` when it is in its own slot and plain, and its base register's value. (For
    /// addresses below 64 KiB, where no code is, an empty slot gives a rule without a frame.)
    #[inline(always)]
    pub(crate) fn plain(&self, key: u64, sp: u64, bp: u64) -> Option<(Packed, u64)> {
        const BP: u64 = Packed::bare(Class::PlainBp).0;
        // Relaxed: a slot is self-contained, and an old value is as right as a new one.
        let slot = self.slots[Cache::index(key)].load(Ordering::Relaxed);
        // Tag, class and mark in one comparison. The base is chosen by a branch, which is
        // predicted, and not by data, which the next frame would wait for.
        match (slot ^ Cache::tag(key)) << (64 - Packed::CHECKED_BITS) {
            0 => Some((Packed(slot), sp)),
            other if other == BP << (64 - Packed::CHECKED_BITS) => Some((Packed(slot), bp)),
            _ => None,
        }
    }

    /// The rule of `key` when it is cached, in its own slot or displaced to the neighbour.
    pub(crate) fn get(&self, key: u64) -> Option<Packed> {
        let entry = |index: usize, mark: u64| {
            let slot = self.slots[index].load(Ordering::Relaxed);
            let other = slot ^ Cache::tag(key) ^ mark;
            let hit = other & (Packed::TAG_MASK | Packed::DISPLACED) == 0;
            (hit && slot != 0).then_some(Packed(slot))
        };
        let index = Cache::index(key);
        entry(index, 0).or_else(|| entry(index ^ 1, Packed::DISPLACED))
    }

    /// Stores a rule; what was in its slot moves to the neighbour, unless another address is at
    /// home there.
    pub(crate) fn put(&self, key: u64, rule: Packed) {
        if key >> ADDRESS_BITS != 0 {
            return;
        }
        let at_home = |slot: u64| slot != 0 && slot & Packed::DISPLACED == 0;
        let (own, neighbour) = (Cache::index(key), Cache::index(key) ^ 1);
        let old = self.slots[own].load(Ordering::Relaxed);
        if at_home(old) && !at_home(self.slots[neighbour].load(Ordering::Relaxed)) {
            self.slots[neighbour].store(old | Packed::DISPLACED, Ordering::Relaxed);
        }
        self.slots[own].store(Cache::tag(key) | rule.0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self
            .slots
            .iter()
            .filter(|s| s.load(Ordering::Relaxed) != 0)
            .count();
        f.debug_struct("Cache")
            .field("used", &used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(n: u64) -> Packed {
        Packed(n << 49)
    }

    #[test]
    fn an_address_finds_its_own_rule_only() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        let mut pc = 0x7f12_3456_789au64;
        for i in 1..30_000 {
            pc = pc.wrapping_mul(6364136223846793005).wrapping_add(1) >> 17;
            cache.put(pc, plain(i));
            let found = |pc| cache.plain(pc, 0, 0).map(|(p, base)| p.cfa(base) / 8);
            assert_eq!(
                (found(pc), cache.get(pc).map(|p| p.class())),
                (Some(i), Some(Class::Plain))
            );
            for bit in 0..ADDRESS_BITS {
                assert_ne!(found(pc ^ 1 << bit), Some(i));
            }
        }
    }

    #[test]
    fn two_addresses_of_one_slot_are_both_found() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        let (a, b, c) = (0x10_1230, 0x20_1230, 0x30_1230);
        let found = |key| cache.get(key).map(|p| p.cfa(0) / 8);
        for (key, n) in [(a, 1), (b, 2), (c, 3)] {
            cache.put(key, plain(n));
        }
        assert_eq!([a, b, c].map(found), [None, Some(2), Some(3)]);
        // The neighbour's own address is never driven out by a displaced one.
        cache.put(a + 8, plain(4));
        cache.put(a, plain(5));
        assert_eq!([a, b, c, a + 8].map(found), [Some(5), None, None, Some(4)]);
    }

    #[test]
    fn other_classes_are_cached_but_not_plain() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        cache.put(0x1234, Packed::bare(Class::Signal));
        assert_eq!(cache.plain(0x1234, 0, 0), None);
        assert_eq!(cache.get(0x1234).map(|p| p.class()), Some(Class::Signal));
    }

    #[test]
    fn kernel_and_null_addresses_are_not_cached() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        cache.put(u64::MAX, plain(1));
        assert_eq!(cache.get(u64::MAX), None);
        assert_eq!(cache.get(0), None);
    }
}
