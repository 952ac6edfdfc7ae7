//! Locations and stacks known by their content: most of a profile's were in the one before, and
//! are found by one look each, without a look at the names that they are made of.
//!
//! Two seeded 64-bit hashes, of which 96 bits are kept, stand for the content: that two stacks of a
//! service share them by chance is less likely than that the memory they stand in flips a bit.

use pilotlight_profile::{Profile, StrId};

use crate::hash::{Wide, wide_bytes, wide_ids, wide_pair};

/// Not known.
pub const UNSET: u32 = u32::MAX;

/// From a hash to an id.
#[derive(Default)]
pub struct Memo {
    /// (hash, more of it, id + 1); 0 = empty.
    slots: Vec<(u64, u32, u32)>,
    len: usize,
}

impl Memo {
    /// Heap bytes.
    pub fn heap_bytes(&self) -> usize {
        self.slots.len() * size_of::<(u64, u32, u32)>()
    }

    /// The id of a hash, or [`UNSET`].
    #[inline]
    pub fn get(&self, hash: Wide) -> u32 {
        let Some(mask) = self.slots.len().checked_sub(1) else {
            return UNSET;
        };
        let mut at = hash.0 as usize & mask;
        loop {
            let (first, second, id) = self.slots[at];
            if id == 0 {
                return UNSET;
            }
            if first == hash.0 && second == hash.1 as u32 {
                return id - 1;
            }
            at = (at + 1) & mask;
        }
    }

    /// Notes the id of a hash that is not there yet.
    pub fn put(&mut self, hash: Wide, id: u32) {
        if self.len * 3 >= self.slots.len() * 2 {
            let size = (self.slots.len() * 2).max(64);
            let old = std::mem::replace(&mut self.slots, vec![(0, 0, 0); size]);
            old.into_iter()
                .filter(|slot| slot.2 != 0)
                .for_each(|slot| self.place(slot));
        }
        self.place((hash.0, hash.1 as u32, id + 1));
        self.len += 1;
    }

    fn place(&mut self, slot: (u64, u32, u32)) {
        let mask = self.slots.len() - 1;
        let mut at = slot.0 as usize & mask;
        while self.slots[at].2 != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

/// Hash of the content of each location of a profile: names, lines, and the address in its file.
pub fn location_hashes(profile: &Profile) -> Vec<Wide> {
    let strings: Vec<Wide> = profile.strings.iter().map(wide_bytes).collect();
    let text = |id: StrId| strings.get(id.index()).copied().unwrap_or_default();
    let functions: Vec<Wide> = profile
        .functions
        .iter()
        .map(|function| {
            let names = wide_pair(text(function.name), text(function.system_name));
            let place = (function.start_line as u64, 1);
            wide_pair(wide_pair(names, text(function.filename)), place)
        })
        .collect();
    let mappings: Vec<Wide> = profile
        .mappings
        .iter()
        .map(|mapping| {
            let key = super::builder::mapping_size(mapping.start, mapping.limit);
            let named = match text(mapping.build_id) {
                _ if mapping.build_id != StrId::EMPTY => text(mapping.build_id),
                _ => text(mapping.file),
            };
            wide_pair((key, mapping.offset), named)
        })
        .collect();
    (0..profile.locations.len())
        .map(|at| {
            let location = profile.location(at);
            let (mapping, start) = location.mapping.map_or(((0, 0), 0), |id| {
                (mappings[id.index()], profile.mappings[id.index()].start)
            });
            let place = (
                location.address.wrapping_sub(start),
                u64::from(location.is_folded) << 1 | u64::from(location.mapping.is_some()),
            );
            let lines = location.lines.iter();
            lines.fold(wide_pair(mapping, place), |hash, line| {
                let function = functions[line.function.index()];
                let number = (line.line as u64, line.column as u64);
                wide_pair(hash, wide_pair(function, number))
            })
        })
        .collect()
}

/// Hash of a stack given as locations of the part.
pub fn stack_hash(locations: &[u32]) -> Wide {
    wide_ids(locations)
}
