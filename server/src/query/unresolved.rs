//! Binaries with addresses that have no names, and why.

use std::collections::HashMap;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::read::{Added, Want};
use super::scan::Gather;
use crate::debuginfo::{Debuginfo, Found, Reason, base_name, has_reason, unresolved};
use crate::segment::Symbols;

/// A binary, some of whose addresses have no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Path as the profile has it.
    pub file: String,
    /// Build id as the profile has it; may be empty.
    pub build_id: String,
    /// Why.
    pub reason: Reason,
    /// Distinct addresses without a name, a service and a segment.
    pub frames: u64,
    /// Value of the stacks that end in one.
    pub value: i64,
}

impl Unresolved {
    /// What to do about it, for people.
    pub fn advice(&self) -> String {
        let (name, id) = (base_name(&self.file), self.build_id.as_str());
        match self.reason {
            Reason::NoBuildId => format!(
                "the profile does not say which build of {name} ran; link it with --build-id"
            ),
            Reason::NoDebuginfo => format!(
                "pilotlight debuginfo upload FILE, the {name} (or its debug file) with build id {id}"
            ),
            Reason::WrongId => {
                format!("a {name} is stored, of another build; upload the one with build id {id}")
            }
            Reason::ParseFailed => format!(
                "the stored file of {name} cannot be read, see /api/v1/debuginfo/files; upload \
                 another one"
            ),
            Reason::Waiting => "nothing: its file is being read, or looked for".to_owned(),
            Reason::NotInDebuginfo => format!(
                "the stored file of {name} does not name these addresses; upload one that is not \
                 stripped"
            ),
            Reason::NoShared => format!(
                "names of {name} stand in a file that several share (dwz), which is not here: its \
                 build id and path are in /api/v1/debuginfo/files; pilotlight debuginfo upload it"
            ),
        }
    }
}

impl Engine {
    /// Binaries without names in a selection, the largest value first, and the selection's total.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`].
    pub fn unresolved(
        &self,
        selection: &Selection,
        cancel: &Cancel,
    ) -> Result<(Vec<Unresolved>, i64, Coverage), QueryError> {
        let empty = || Open {
            debuginfo: &self.debuginfo,
            found: HashMap::new(),
            total: 0,
        };
        let (open, coverage) = self.gather(selection, Want::Stacks, cancel, empty)?;
        let mut all: Vec<Unresolved> = open.found.into_values().collect();
        all.sort_by(|a, b| (b.value, &a.file).cmp(&(a.value, &b.file)));
        Ok((all, open.total, coverage))
    }
}

/// What a scan finds.
struct Open<'a> {
    debuginfo: &'a Debuginfo,
    /// By file and build id.
    found: HashMap<(String, String), Unresolved>,
    total: i64,
}

impl Gather for Open<'_> {
    fn add(&mut self, added: &Added) -> Result<(), QueryError> {
        let symbols = added.symbols;
        let values = added.nodes.iter();
        self.total = values.fold(self.total, |sum, value| sum.saturating_add(*value));
        for (mapping, (frames, value)) in count(symbols, &added.nodes) {
            let of = &symbols.mappings[mapping as usize];
            let text = |id| String::from_utf8_lossy(symbols.strings.get(id)).into_owned();
            let (file, build_id) = (text(of.filename), text(of.build_id));
            let reason = match self.debuginfo.of_mapping(symbols, mapping) {
                Found::Missing(reason) => reason,
                Found::File { lacks, .. } => lacks.unwrap_or(Reason::NotInDebuginfo),
            };
            self.note(Unresolved {
                file,
                build_id,
                reason,
                frames,
                value,
            });
        }
        Ok(())
    }

    fn join(&mut self, other: Self) -> Result<(), QueryError> {
        self.total = self.total.saturating_add(other.total);
        other.found.into_values().for_each(|one| self.note(one));
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.found.len() * 256
    }
}

impl Open<'_> {
    fn note(&mut self, one: Unresolved) {
        let key = (one.file.clone(), one.build_id.clone());
        match self.found.get_mut(&key) {
            Some(known) => {
                known.frames += one.frames;
                known.value = known.value.saturating_add(one.value);
            }
            None => {
                self.found.insert(key, one);
            }
        }
    }
}

/// For each mapping: addresses without names that the selection uses, and the value that ends there.
fn count(symbols: &Symbols, nodes: &[i64]) -> HashMap<u32, (u64, i64)> {
    let mut open = unresolved(symbols);
    // Of some only an inlined function has no name.
    let reasons: Vec<bool> = symbols
        .functions
        .iter()
        .map(|of| has_reason(symbols.strings.get(of.name)))
        .collect();
    for (location, open) in open.iter_mut().enumerate() {
        let lines = symbols.locations.lines(location as u32);
        *open |= lines.iter().any(|line| reasons[line.function as usize]);
    }
    let mut used = vec![false; nodes.len()];
    let mut seen = vec![false; open.len()];
    let mut counts: HashMap<u32, (u64, i64)> = HashMap::new();
    for node in (1..nodes.len()).rev() {
        used[node] |= nodes[node] != 0;
        if !used[node] {
            continue;
        }
        used[symbols.parents[node] as usize] = true;
        let location = symbols.node_locations[node] as usize;
        if open[location] {
            let mapping = symbols.locations.mapping[location] - 1;
            let count = counts.entry(mapping).or_default();
            count.0 += u64::from(!seen[location]);
            count.1 = count.1.saturating_add(nodes[node]);
            seen[location] = true;
        }
    }
    counts
}
