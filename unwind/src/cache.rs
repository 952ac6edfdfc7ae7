//! Rules by address, shared by all threads: one atomic word a slot, so nothing can tear.

use crate::Modules;
use crate::rule::Packed;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOT_BITS: u32 = 13;
const SLOTS: usize = 1 << SLOT_BITS;
/// User addresses on x86-64; a slot's tag is what remains above the slot bits.
const ADDRESS_BITS: u32 = 47;
const _: () = assert!(ADDRESS_BITS - SLOT_BITS + Packed::BITS == 64);

/// A direct-mapped cache of 8,192 rules (64 KiB), lock-free and shared between threads.
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

    /// Folds the tag into the low bits; given the tag this is a bijection, so tag and slot
    /// together are the whole address.
    #[inline(always)]
    fn slot(&self, pc: u64) -> &AtomicU64 {
        let folded = pc ^ (pc >> SLOT_BITS) ^ (pc >> (2 * SLOT_BITS));
        &self.slots[(folded as usize) & (SLOTS - 1)]
    }

    #[inline(always)]
    pub(crate) fn get(&self, pc: u64) -> Option<Packed> {
        // Relaxed: a slot is self-contained, and an old value is as right as a new one.
        let slot = self.slot(pc).load(Ordering::Relaxed);
        let hit = slot >> Packed::BITS == pc >> SLOT_BITS && slot != 0;
        hit.then_some(Packed(slot as u32 & ((1 << Packed::BITS) - 1)))
    }

    pub(crate) fn put(&self, pc: u64, rule: Packed) {
        if pc >> ADDRESS_BITS == 0 {
            let slot = (pc >> SLOT_BITS) << Packed::BITS | u64::from(rule.0);
            self.slot(pc).store(slot, Ordering::Relaxed);
        }
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

    #[test]
    fn an_address_finds_its_own_rule_only() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        let mut pc = 0x7f12_3456_789au64;
        for i in 0..100_000u32 {
            pc = pc.wrapping_mul(6364136223846793005).wrapping_add(1) >> 17;
            assert_eq!(cache.get(pc ^ 1 << 40), None);
            cache.put(pc, Packed(i | 1));
            assert_eq!(cache.get(pc), Some(Packed(i | 1)));
            for bit in 0..ADDRESS_BITS {
                assert_eq!(cache.get(pc ^ 1 << bit).filter(|p| p.0 == i | 1), None);
            }
        }
    }

    #[test]
    fn kernel_and_null_addresses_are_not_cached() {
        let cache = Cache::new(&Modules::new(Vec::new()));
        cache.put(u64::MAX, Packed(1));
        assert_eq!(cache.get(u64::MAX), None);
        assert_eq!(cache.get(0), None);
    }
}
