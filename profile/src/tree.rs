//! The prefix tree of stacks: what a flame graph shows.

use crate::intern::{IdTable, Seed, StringInterner};
use crate::model::Profile;
use crate::names::FrameNames;
use crate::strings::{StrId, Strings};

/// Call tree in preorder columns. Node 0 is the root, at depth 0; it stands for all stacks, has the
/// empty name, and its own value is that of samples without a stack. Children stand in the order of
/// their names' bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The names of nodes.
    pub names: Strings,
    /// The nodes.
    pub nodes: Nodes,
}

/// Nodes of a [`Tree`] in preorder; columns of equal length, at least 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Index into [`Tree::names`].
    pub name: Vec<u32>,
    /// Distance from the root.
    pub depth: Vec<u32>,
    /// Value of stacks that end here.
    pub self_value: Vec<i64>,
}

impl Default for Tree {
    fn default() -> Self {
        TreeBuilder::new().finish()
    }
}

impl Tree {
    /// The tree of one value column. A frame without a function is called `binary+0xoffset`.
    /// Samples whose value is 0 are left out, as pprof does.
    pub fn from_profile(profile: &Profile, value_index: usize) -> Tree {
        let frames = FrameNames::of(profile);
        let mut builder = TreeBuilder::new();
        let mut path = Vec::new();
        let stacks = &profile.samples.stack;
        for (&stack, value) in stacks.iter().zip(profile.column(value_index)) {
            if value != 0 {
                frames.path(profile.stacks.get(stack as usize), &mut path);
                builder.add(&path, value);
            }
        }
        builder.finish_with(frames.names)
    }

    /// Adds another tree to this one: nodes with equal paths are added up.
    pub fn merge(&mut self, other: &Tree) {
        let mut builder = TreeBuilder::new();
        builder.add_tree(self);
        builder.add_tree(other);
        *self = builder.finish();
    }

    /// Number of nodes, the root included.
    pub fn len(&self) -> usize {
        self.nodes.name.len()
    }

    /// Whether nothing but the root is there, and the root has no value.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1 && self.total() == 0
    }

    /// Sum of all values; wraps around when it leaves 64 bits.
    pub fn total(&self) -> i64 {
        let values = self.nodes.self_value.iter();
        values.fold(0, |sum, &value| sum.wrapping_add(value))
    }

    /// For each node, its own value and that of everything below it.
    pub fn totals(&self) -> Vec<i64> {
        let mut totals = self.nodes.self_value.clone();
        // In preorder, the last node seen at depth d - 1 is the parent; going backwards, sums of
        // finished subtrees wait at their depth.
        let mut pending: Vec<i64> = Vec::new();
        for (i, &depth) in self.nodes.depth.iter().enumerate().rev() {
            let depth = depth as usize;
            if pending.len() < depth + 2 {
                pending.resize(depth + 2, 0);
            }
            let below = std::mem::take(&mut pending[depth + 1]);
            totals[i] = totals[i].wrapping_add(below);
            pending[depth] = pending[depth].wrapping_add(totals[i]);
        }
        totals
    }

    /// The name of a node; empty for the root and for a node that does not exist.
    pub fn name(&self, node: usize) -> &[u8] {
        let name = self.nodes.name.get(node).copied().unwrap_or_default();
        self.names.get(StrId(name))
    }
}

/// Builds a [`Tree`] from stacks or node by node.
///
/// Consecutive stacks that share a prefix cost only the frames in which they differ, so stacks that
/// come sorted are the cheapest.
///
/// ```
/// use pilotlight_profile::TreeBuilder;
///
/// let mut b = TreeBuilder::new();
/// let (main, work) = (b.name(b"main"), b.name(b"work"));
/// b.add(&[main, work], 3);
/// b.add(&[main], 1);
/// let tree = b.finish();
/// assert_eq!(tree.nodes.depth, [0, 1, 2]);
/// assert_eq!(tree.totals(), [4, 4, 3]);
/// ```
#[derive(Clone, Debug)]
pub struct TreeBuilder {
    names: StringInterner,
    parent: Vec<u32>,
    name: Vec<StrId>,
    self_value: Vec<i64>,
    children: IdTable,
    seed: Seed,
    /// Node ids of the stack added last, root's child first.
    last: Vec<u32>,
}

impl Default for TreeBuilder {
    fn default() -> Self {
        TreeBuilder::new()
    }
}

impl TreeBuilder {
    /// The node that stands for all stacks.
    pub const ROOT: u32 = 0;

    /// A builder with nothing but the root.
    pub fn new() -> Self {
        TreeBuilder {
            names: StringInterner::default(),
            parent: vec![0],
            name: vec![StrId::EMPTY],
            self_value: vec![0],
            children: IdTable::default(),
            seed: Seed::default(),
            last: Vec::new(),
        }
    }

    /// The id of a name.
    pub fn name(&mut self, bytes: &[u8]) -> StrId {
        self.names.intern(bytes)
    }

    /// Adds a value to a stack, given root first.
    pub fn add(&mut self, stack: &[StrId], value: i64) {
        let shared = self
            .last
            .iter()
            .zip(stack)
            .take_while(|(node, name)| self.name[**node as usize] == **name)
            .count();
        self.last.truncate(shared);
        let mut node = self.last.last().copied().unwrap_or(Self::ROOT);
        for &name in &stack[shared..] {
            node = self.child(node, name);
            self.last.push(node);
        }
        self.add_self(node, value);
    }

    /// The child of a node with this name. Ids are those that this builder returned, or
    /// [`ROOT`](Self::ROOT).
    #[inline]
    pub fn child(&mut self, parent: u32, name: StrId) -> u32 {
        let new_id = self.parent.len() as u32;
        let hash = self
            .seed
            .words(&[u64::from(parent) << 32 | u64::from(name.0)]);
        let (parents, names) = (&self.parent, &self.name);
        let same = |id: u32| parents[id as usize] == parent && names[id as usize] == name;
        match self.children.find_or_insert(hash, new_id, same) {
            Some(id) => id,
            None => {
                self.parent.push(parent);
                self.name.push(name);
                self.self_value.push(0);
                new_id
            }
        }
    }

    /// Adds a value to a node that [`child`](Self::child) returned.
    ///
    /// # Panics
    /// When the id is not one of this builder's.
    #[inline]
    pub fn add_self(&mut self, node: u32, value: i64) {
        let sum = &mut self.self_value[node as usize];
        *sum = sum.wrapping_add(value);
    }

    /// Adds a finished tree.
    pub fn add_tree(&mut self, tree: &Tree) {
        let names: Vec<StrId> = tree.names.iter().map(|name| self.name(name)).collect();
        let mut path = vec![Self::ROOT];
        let Nodes {
            name,
            depth,
            self_value,
        } = &tree.nodes;
        for ((&name, &depth), &value) in name.iter().zip(depth).zip(self_value) {
            path.truncate((depth as usize).max(1));
            if depth > 0 {
                let parent = path.last().copied().unwrap_or(Self::ROOT);
                let name = names.get(name as usize).copied().unwrap_or_default();
                path.push(self.child(parent, name));
            }
            let node = path.last().copied().unwrap_or(Self::ROOT);
            self.add_self(node, value);
        }
    }

    /// The tree.
    pub fn finish(mut self) -> Tree {
        let names = std::mem::take(&mut self.names.strings);
        self.finish_with(names)
    }

    /// The tree of a builder that was fed with ids of a table of the caller's, instead of those of
    /// [`name`](Self::name).
    pub fn finish_with(self, names: Strings) -> Tree {
        let (starts, children) = self.children_by_name(&names);
        let count = self.parent.len();
        let mut nodes = Nodes {
            name: Vec::with_capacity(count),
            depth: Vec::with_capacity(count),
            self_value: Vec::with_capacity(count),
        };
        let mut pending = vec![(Self::ROOT, 0)];
        while let Some((node, depth)) = pending.pop() {
            let node = node as usize;
            nodes.name.push(self.name[node].0);
            nodes.depth.push(depth);
            nodes.self_value.push(self.self_value[node]);
            let below = &children[starts[node] as usize..starts[node + 1] as usize];
            pending.extend(below.iter().rev().map(|&child| (child, depth + 1)));
        }
        Tree { names, nodes }
    }

    /// Children of each node in the order of their names: offsets by parent, and the nodes.
    fn children_by_name(&self, names: &Strings) -> (Vec<u32>, Vec<u32>) {
        let mut by_bytes: Vec<u32> = (0..names.len() as u32).collect();
        by_bytes.sort_unstable_by(|&a, &b| names.get(StrId(a)).cmp(names.get(StrId(b))));
        let mut rank = vec![0u32; names.len()];
        for (position, &name) in by_bytes.iter().enumerate() {
            rank[name as usize] = position as u32;
        }
        // Two stable counting sorts: by name, then by parent.
        let all_but_root: Vec<u32> = (1..self.parent.len() as u32).collect();
        let name_of = |node: u32| {
            let name = self.name[node as usize].index();
            rank.get(name).copied().unwrap_or_default()
        };
        let (_, by_name) = counting_sort(&all_but_root, names.len(), name_of);
        counting_sort(&by_name, self.parent.len(), |node| {
            self.parent[node as usize]
        })
    }
}

/// Stable sort of `items` by a key below `keys`; returns where each key starts, and the items.
fn counting_sort(items: &[u32], keys: usize, key: impl Fn(u32) -> u32) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; keys + 1];
    for &item in items {
        starts[key(item) as usize + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut next = starts.clone();
    let mut sorted = vec![0; items.len()];
    for &item in items {
        let slot = &mut next[key(item) as usize];
        sorted[*slot as usize] = item;
        *slot += 1;
    }
    (starts, sorted)
}
