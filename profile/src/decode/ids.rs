//! Ids of the wire format (any 64-bit number) and their way to indices.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::error::DecodeError;

use super::wire::Fault;

/// An index that leads nowhere.
pub const NOWHERE: u32 = u32::MAX;

/// References from this on stand for an entry of [`Wide`]; smaller ones are the id itself.
const WIDE: u32 = 1 << 31;

/// Ids of one table, and references to them as they were met: the table may come after its uses.
#[derive(Default)]
pub struct Ids {
    count: u32,
    /// Ids in order, when they are not 1, 2, 3 and so on.
    explicit: Vec<u64>,
    is_explicit: bool,
    /// Large ids that were referred to or defined, by order of first sight.
    wide: HashMap<u64, u32>,
    /// Nobody can mean more different entries than the table may have.
    wide_limit: usize,
    what: &'static str,
}

impl Ids {
    pub fn new(what: &'static str, limit: u64) -> Self {
        Ids {
            wide_limit: usize::try_from(limit)
                .unwrap_or(usize::MAX)
                .min(WIDE as usize),
            what,
            ..Ids::default()
        }
    }

    /// Notes the id of the next entry.
    #[inline(always)]
    pub fn push(&mut self, id: u64) {
        self.count += 1;
        if self.is_explicit || id != u64::from(self.count) {
            self.push_explicit(id);
        }
    }

    fn push_explicit(&mut self, id: u64) {
        if !self.is_explicit {
            self.is_explicit = true;
            self.explicit.extend(1..u64::from(self.count));
        }
        self.explicit.push(id);
    }

    /// A reference to an id, in 32 bits.
    #[inline(always)]
    pub fn reference(&mut self, id: u64, offset: usize) -> Result<u32, Fault> {
        if id < u64::from(WIDE) {
            return Ok(id as u32);
        }
        self.wide_reference(id, offset)
    }

    #[cold]
    fn wide_reference(&mut self, id: u64, offset: usize) -> Result<u32, Fault> {
        let next = self.wide.len();
        let full = next >= self.wide_limit;
        match self.wide.entry(id) {
            Entry::Occupied(known) => Ok(WIDE + *known.get()),
            Entry::Vacant(slot) if !full => Ok(WIDE + *slot.insert(next as u32)),
            Entry::Vacant(_) => Err(Box::new(DecodeError::Limit {
                what: self.what,
                limit: self.wide_limit as u64,
                offset: offset as u64,
            })),
        }
    }

    /// Replaces references by indices, and those that lead nowhere by [`NOWHERE`]; returns the
    /// number of the latter.
    pub fn resolve(&self, map: &IdMap, references: &mut [u32]) -> usize {
        let mut lost = 0;
        let mut put = |reference: &mut u32, index: u32| {
            *reference = index;
            lost += usize::from(index == NOWHERE);
        };
        match map {
            IdMap::Sequential => {
                let count = self.count;
                for reference in references {
                    let index = reference.wrapping_sub(1);
                    put(reference, if index < count { index } else { NOWHERE });
                }
            }
            IdMap::Direct(table) => {
                for reference in references {
                    let index = table.get(*reference as usize).copied();
                    put(reference, index.unwrap_or(NOWHERE));
                }
            }
            IdMap::Hashed { narrow, wide } => {
                for reference in references {
                    let index = match reference.checked_sub(WIDE) {
                        Some(number) => wide.get(number as usize),
                        None => narrow.get(reference),
                    };
                    put(reference, index.copied().unwrap_or(NOWHERE));
                }
            }
        }
        lost
    }

    /// Way from references to indices. Of entries with one id, the last wins.
    pub fn map(&self) -> IdMap {
        if !self.is_explicit {
            return IdMap::Sequential;
        }
        let largest = self.explicit.iter().copied().max().unwrap_or(0);
        // A table as large as four times the entries is cheaper than hashing each reference.
        if largest <= u64::from(self.count) * 4 + 1024 {
            let mut table = vec![NOWHERE; largest as usize + 1];
            for (index, &id) in self.explicit.iter().enumerate() {
                table[id as usize] = index as u32;
            }
            return IdMap::Direct(table);
        }
        let mut narrow = HashMap::with_capacity(self.explicit.len());
        let mut wide = vec![NOWHERE; self.wide.len()];
        for (index, &id) in self.explicit.iter().enumerate() {
            if id < u64::from(WIDE) {
                narrow.insert(id as u32, index as u32);
            } else if let Some(&number) = self.wide.get(&id) {
                wide[number as usize] = index as u32;
            }
        }
        IdMap::Hashed { narrow, wide }
    }

    /// Indices of the first entry with id 0 and of the first whose id stood before.
    pub fn faults(&self) -> IdFaults {
        if !self.is_explicit {
            return IdFaults::default();
        }
        let zero = self.explicit.iter().position(|&id| id == 0);
        let mut order: Vec<u32> = (0..self.explicit.len() as u32).collect();
        order.sort_by_key(|&index| self.explicit[index as usize]);
        let id_of = |index: u32| self.explicit[index as usize];
        let repeats = order
            .windows(2)
            .filter(|pair| id_of(pair[0]) == id_of(pair[1]));
        let (mut first, mut repeated) = (None, 0);
        for pair in repeats {
            repeated += 1;
            let second = pair[1] as usize;
            first = Some(first.map_or(second, |known: usize| known.min(second)));
        }
        IdFaults {
            zero,
            zeros: self.explicit.iter().filter(|&&id| id == 0).count() as u64,
            duplicate: first,
            duplicates: repeated,
        }
    }

    /// The id of an entry.
    pub fn id(&self, index: usize) -> u64 {
        self.explicit
            .get(index)
            .copied()
            .unwrap_or(index as u64 + 1)
    }

    /// The ids for the profile: empty when they are 1, 2, 3 and so on, or could not be kept.
    pub fn into_source_ids(self, faults: &IdFaults) -> Vec<u64> {
        if faults.zero.is_some() || faults.duplicate.is_some() {
            return Vec::new();
        }
        self.explicit
    }
}

/// See [`Ids::map`].
pub enum IdMap {
    Sequential,
    Direct(Vec<u32>),
    Hashed {
        narrow: HashMap<u32, u32>,
        wide: Vec<u32>,
    },
}

/// See [`Ids::faults`].
#[derive(Clone, Copy, Debug, Default)]
pub struct IdFaults {
    pub zero: Option<usize>,
    pub zeros: u64,
    pub duplicate: Option<usize>,
    pub duplicates: u64,
}
