//! Adding parts up into one tree of names: sums per stack first, names last.

pub(super) use crate::debuginfo::is_address;
use crate::hash::{IdTable, PairTable, bytes};
use crate::segment::Symbols;

use super::engine::QueryError;
use super::read::Added;
use super::scan::Gather;

const UNSET: u32 = u32::MAX;

/// A query that needs more nodes than this is refused instead of taking the memory of the others.
const MAX_NODES: usize = 16 << 20;

/// The outermost frame by which the SDK marks a stack that was cut at its depth limit.
pub const TRUNCATED: &[u8] = b"[truncated]";

/// The tree of names under construction. Node 0 is the root; a parent is always before its children.
pub struct NameTree {
    pub(super) names: Vec<Vec<u8>>,
    name_table: IdTable,
    /// Source file of the first function seen with each name.
    pub(super) files: Vec<Vec<u8>>,
    pub(super) parents: Vec<u32>,
    pub(super) node_names: Vec<u32>,
    pub(super) self_values: Vec<i64>,
    /// Finds the children that do not stand right behind their parents: most do, and are found in
    /// the columns.
    branches: PairTable,
    /// Value of stacks whose leaf has no name.
    pub unknown: i64,
    /// Value of stacks marked as cut.
    pub truncated: i64,
}

impl Default for NameTree {
    fn default() -> Self {
        let mut tree = Self {
            names: Vec::new(),
            name_table: IdTable::default(),
            files: Vec::new(),
            parents: vec![0],
            node_names: vec![0],
            self_values: vec![0],
            branches: PairTable::default(),
            unknown: 0,
            truncated: 0,
        };
        tree.name(b"", b"");
        tree
    }
}

/// A part's ids in the tree, filled when first needed.
struct Frames<'a> {
    symbols: &'a Symbols,
    functions: Vec<u32>,
    /// For each location: where its names stand in `names`, outermost first.
    locations: Vec<(u32, u32)>,
    names: Vec<u32>,
    resolved: Vec<bool>,
}

impl NameTree {
    pub(super) fn name(&mut self, name: &[u8], file: &[u8]) -> u32 {
        let known = &self.names;
        let new = known.len() as u32;
        let (id, fresh) = self
            .name_table
            .intern(bytes(name), new, |id| known[id as usize] == name);
        if fresh {
            self.names.push(name.to_vec());
            self.files.push(file.to_vec());
        } else if self.files[id as usize].is_empty() && !file.is_empty() {
            self.files[id as usize] = file.to_vec();
        }
        id
    }

    #[inline]
    pub(super) fn child(&mut self, parent: u32, name: u32) -> u32 {
        let (behind, new) = (parent as usize + 1, self.parents.len());
        if behind < new {
            if self.parents[behind] == parent && self.node_names[behind] == name {
                return behind as u32;
            }
            let (id, fresh) = self.branches.intern(parent, name, new as u32);
            if !fresh {
                return id;
            }
        }
        self.parents.push(parent);
        self.node_names.push(name);
        self.self_values.push(0);
        new as u32
    }

    /// Adds the sums per stack node of a part.
    ///
    /// # Errors
    /// When the tree becomes larger than the server builds.
    pub fn add(&mut self, symbols: &Symbols, sums: &[i64]) -> Result<(), QueryError> {
        // Children follow their parents, so one pass backwards marks every ancestor of a value.
        let mut needed: Vec<bool> = sums.iter().map(|&sum| sum != 0).collect();
        for node in (1..needed.len()).rev() {
            if needed[node] {
                needed[symbols.parents[node] as usize] = true;
            }
        }
        let mut frames = Frames {
            symbols,
            functions: vec![UNSET; symbols.functions.len()],
            locations: vec![(UNSET, UNSET); symbols.locations.count()],
            names: Vec::new(),
            resolved: vec![true; symbols.locations.count()],
        };
        let truncated = self.name(TRUNCATED, b"");
        let mut cut = vec![false; needed.len()];
        let mut ids = vec![0_u32; needed.len()];
        self.self_values[0] = self.self_values[0].saturating_add(sums[0]);
        for node in 1..needed.len() {
            if !needed[node] {
                continue;
            }
            let parent = symbols.parents[node] as usize;
            let location = symbols.node_locations[node];
            let mut id = ids[parent];
            let (start, end) = frames.of(self, location);
            for at in start..end {
                id = self.child(id, frames.names[at as usize]);
            }
            ids[node] = id;
            cut[node] = cut[parent]
                || (parent == 0
                    && frames.names[start as usize..end as usize].first() == Some(&truncated));
            let sum = sums[node];
            if sum != 0 {
                let value = &mut self.self_values[id as usize];
                *value = value.saturating_add(sum);
                if !frames.resolved[location as usize] {
                    self.unknown = self.unknown.saturating_add(sum);
                }
                if cut[node] {
                    self.truncated = self.truncated.saturating_add(sum);
                }
            }
        }
        self.bounded()
    }

    fn bounded(&self) -> Result<(), QueryError> {
        if self.parents.len() > MAX_NODES {
            return Err(QueryError::TooLarge(format!(
                "the tree of this selection has more than {MAX_NODES} nodes; \
                 narrow q or the time window"
            )));
        }
        Ok(())
    }
}

impl Gather for NameTree {
    fn add(&mut self, added: &Added) -> Result<(), QueryError> {
        NameTree::add(self, added.symbols, &added.nodes)
    }

    fn join(&mut self, other: Self) -> Result<(), QueryError> {
        let names = other.names.iter().zip(&other.files);
        let names: Vec<u32> = names.map(|(name, file)| self.name(name, file)).collect();
        let mut nodes = vec![0_u32; other.parents.len()];
        for node in 0..nodes.len() {
            if node > 0 {
                let parent = nodes[other.parents[node] as usize];
                nodes[node] = self.child(parent, names[other.node_names[node] as usize]);
            }
            let value = &mut self.self_values[nodes[node] as usize];
            *value = value.saturating_add(other.self_values[node]);
        }
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.truncated = self.truncated.saturating_add(other.truncated);
        self.bounded()
    }

    fn heap_bytes(&self) -> usize {
        // A node has 16 bytes of columns and about as many in the table that finds it.
        self.parents.len() * 40 + self.names.len() * 100
    }
}

impl Frames<'_> {
    /// Range of a location's names in `names`.
    #[inline]
    fn of(&mut self, tree: &mut NameTree, location: u32) -> (u32, u32) {
        let known = self.locations[location as usize];
        if known.0 != UNSET {
            return known;
        }
        let symbols = self.symbols;
        let start = self.names.len() as u32;
        for line in symbols.locations.lines(location).iter().rev() {
            let function = line.function as usize;
            if self.functions[function] == UNSET {
                let of = &symbols.functions[function];
                let (name, file) = (
                    symbols.strings.get(of.name),
                    symbols.strings.get(of.filename),
                );
                self.functions[function] = tree.name(name, file);
            }
            // Name 0 is the empty one: a function that nobody named.
            if self.functions[function] != 0 {
                self.names.push(self.functions[function]);
            }
        }
        if self.names.len() as u32 == start {
            let name = address_name(symbols, location);
            let file = mapping_file(symbols, location);
            self.names.push(tree.name(name.as_bytes(), file));
            self.resolved[location as usize] = false;
        }
        let innermost = symbols.locations.lines(location).first();
        if let Some(line) = innermost {
            let function = &symbols.functions[line.function as usize];
            self.resolved[location as usize] &= !is_address(symbols.strings.get(function.name));
        }
        let range = (start, self.names.len() as u32);
        self.locations[location as usize] = range;
        range
    }
}

fn mapping_file(symbols: &Symbols, location: u32) -> &[u8] {
    match symbols.locations.mapping[location as usize] {
        0 => b"",
        id => symbols
            .strings
            .get(symbols.mappings[id as usize - 1].filename),
    }
}

/// Name of the innermost frame of a stack.
pub fn leaf_name(symbols: &Symbols, node: u32) -> String {
    let location = symbols.node_locations[node as usize];
    let lines = symbols.locations.lines(location).iter();
    let mut names = lines.map(|line| {
        let function = &symbols.functions[line.function as usize];
        symbols.strings.get(function.name)
    });
    match names.find(|name| !name.is_empty()) {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => address_name(symbols, location),
    }
}

/// `binary+0xoffset`, or as much of it as is known; the words of `pilotlight_profile`.
pub fn address_name(symbols: &Symbols, location: u32) -> String {
    let address = symbols.locations.address[location as usize];
    let file = mapping_file(symbols, location);
    if file.is_empty() {
        return match address {
            0 => "<unknown>".to_owned(),
            address => format!("{address:#x}"),
        };
    }
    let file = String::from_utf8_lossy(file);
    let binary = match file.trim_end_matches('/').rsplit('/').next() {
        Some("") | None => "/",
        Some(name) => name,
    };
    if address == 0 {
        return format!("[{binary}]");
    }
    let id = symbols.locations.mapping[location as usize] as usize;
    let mapping = &symbols.mappings[id - 1];
    let offset = address
        .wrapping_sub(mapping.start)
        .wrapping_add(mapping.offset);
    format!("{binary}+{offset:#x}")
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn addresses_in_the_place_of_names_are_no_names() {
        let addresses = ["libc.so.6+0x1098eb", "[vdso]+0xbe1", "[unknown]", "+0x0"];
        let names = [
            "main",
            "f+0x",
            "operator+0xg",
            "core::ops::add",
            "",
            "0x12",
            "a+0x12 b",
        ];
        assert!(addresses.iter().all(|name| is_address(name.as_bytes())));
        assert!(!names.iter().any(|name| is_address(name.as_bytes())));
    }
}
