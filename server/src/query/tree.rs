//! The finished tree: preorder columns, cut where asked, and its bytes on the wire.

use super::merge::NameTree;
use crate::segment::wire::{put_bytes, put_int, put_uint};

/// Name of the node that stands for the children that were cut.
const OTHER: &str = "(other)";

/// Preorder columns. Node 0 is the root, with the empty name; children stand in the order of their
/// names' bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Names, each once.
    pub names: Vec<String>,
    /// Index into `names`, one a node.
    pub name: Vec<u32>,
    /// Distance from the root, one a node.
    pub depth: Vec<u32>,
    /// Own value, one a node.
    pub self_value: Vec<i64>,
    /// Own value on the other side of a diff, one a node; empty in a tree of one side.
    pub base_self: Vec<i64>,
    /// Sum of all values.
    pub total: i64,
    /// Nodes left out.
    pub cut_nodes: u64,
    /// Value of the nodes left out; it stands in nodes called `(other)`.
    pub cut_value: i64,
}

/// Children of each node in one list: those of node n are `items[starts[n]..starts[n + 1]]`.
struct Children {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl NameTree {
    /// Total of each node: own value and everything below.
    pub fn totals(&self) -> Vec<i64> {
        self.totals_of(&self.self_values)
    }

    /// Total of each node for own values that stand elsewhere.
    pub(super) fn totals_of(&self, own: &[i64]) -> Vec<i64> {
        let mut totals = own.to_vec();
        for node in (1..totals.len()).rev() {
            let parent = self.parents[node] as usize;
            totals[parent] = totals[parent].saturating_add(totals[node]);
        }
        totals
    }

    /// Sum of all values.
    pub fn total(&self) -> i64 {
        self.totals()[0]
    }

    /// Position of each name in the order of bytes.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.names.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.names[a as usize].cmp(&self.names[b as usize]));
        let mut ranks = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(rank, &name)| ranks[name as usize] = rank as u32);
        ranks
    }

    /// Two counting sorts: by name, then (stable) by parent.
    fn children(&self, keep: &[bool]) -> Children {
        let ranks = self.ranks();
        let nodes = self.parents.len();
        let mut by_name = vec![0_u32; ranks.len() + 1];
        for node in 1..nodes {
            by_name[ranks[self.node_names[node] as usize] as usize + 1] += 1;
        }
        running(&mut by_name);
        let mut order = vec![0_u32; nodes - 1];
        for node in 1..nodes {
            let slot = &mut by_name[ranks[self.node_names[node] as usize] as usize];
            order[*slot as usize] = node as u32;
            *slot += 1;
        }
        let mut starts = vec![0_u32; nodes + 1];
        for node in (1..nodes).filter(|&node| keep[node]) {
            starts[self.parents[node] as usize + 1] += 1;
        }
        running(&mut starts);
        let mut items = vec![0; starts[nodes] as usize];
        let mut next = starts.clone();
        for node in order.into_iter().filter(|&node| keep[node as usize]) {
            let slot = &mut next[self.parents[node as usize] as usize];
            items[*slot as usize] = node;
            *slot += 1;
        }
        Children { starts, items }
    }

    /// Which nodes stay when at most `max` may: the largest by total.
    fn keep(&self, totals: &[i64], max: usize) -> Vec<bool> {
        let nodes = totals.len();
        if nodes <= max {
            return vec![true; nodes];
        }
        let mut sorted = totals.to_vec();
        let (_, &mut edge, _) = sorted.select_nth_unstable_by(max - 1, |a, b| b.cmp(a));
        let above = totals.iter().filter(|&&total| total > edge).count();
        let mut ties = max.saturating_sub(above + usize::from(totals[0] == edge));
        let mut keep = vec![false; nodes];
        keep[0] = true;
        for node in 1..nodes {
            // A parent comes first and is no smaller than its child, so it wins the tie.
            let tie = totals[node] == edge && ties > 0;
            keep[node] = keep[self.parents[node] as usize] && (totals[node] > edge || tie);
            ties -= usize::from(keep[node] && tie);
        }
        keep
    }

    /// Preorder columns of at most `max_nodes` nodes (at least 1) and one `(other)` a cut place.
    pub fn finish(&self, max_nodes: usize) -> Tree {
        self.finish_both(None, max_nodes)
    }

    /// The same with own values of a base beside; the largest by the sum of both sides stay.
    pub(super) fn finish_both(&self, base: Option<&[i64]>, max_nodes: usize) -> Tree {
        let totals = self.totals();
        let base_totals = base.map(|base| self.totals_of(base));
        let both: Vec<i64>;
        let weights = match &base_totals {
            None => &totals,
            Some(base) => {
                let sides = totals.iter().zip(base);
                both = sides.map(|(a, b)| a.saturating_add(*b)).collect();
                &both
            }
        };
        let keep = self.keep(weights, max_nodes.max(1));
        let children = self.children(&keep);
        let mut out = Columns::new(self, totals[0]);
        let cut = out.cut_sums(self, &totals, &keep);
        let base_cut = base_totals.map(|totals| cut_below(self, &totals, &keep));
        let mut stack = vec![(0_u32, 0_u32)];
        while let Some((node, depth)) = stack.pop() {
            let at = node as usize;
            let of_base = |values: &[i64]| values[at];
            out.push(
                depth,
                self.node_names[at],
                self.self_values[at],
                base.map(of_base),
            );
            let value = cut.as_ref().map_or(0, |cut| cut[at]);
            let base_value = base_cut.as_deref().map(of_base);
            if value != 0 || base_value.is_some_and(|value| value != 0) {
                out.push_other(depth + 1, value, base_value);
            }
            let range = children.starts[at] as usize..children.starts[at + 1] as usize;
            stack.extend(
                children.items[range]
                    .iter()
                    .rev()
                    .map(|&child| (child, depth + 1)),
            );
        }
        out.tree
    }
}

fn running(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// Collects columns and numbers the names that are really used.
struct Columns<'a> {
    source: &'a NameTree,
    ids: Vec<u32>,
    other: Option<u32>,
    tree: Tree,
}

impl<'a> Columns<'a> {
    fn new(source: &'a NameTree, total: i64) -> Self {
        let ids = vec![u32::MAX; source.names.len()];
        Self {
            source,
            ids,
            other: None,
            tree: Tree {
                total,
                ..Tree::default()
            },
        }
    }

    /// Value cut below each node, and the counts for the tree's meta data.
    fn cut_sums(&mut self, source: &NameTree, totals: &[i64], keep: &[bool]) -> Option<Vec<i64>> {
        self.tree.cut_nodes = keep.iter().filter(|&&keep| !keep).count() as u64;
        if self.tree.cut_nodes == 0 {
            return None;
        }
        let cut = cut_below(source, totals, keep);
        self.tree.cut_value = cut.iter().fold(0, |sum, value| sum.saturating_add(*value));
        Some(cut)
    }

    fn push(&mut self, depth: u32, name: u32, value: i64, base: Option<i64>) {
        let id = &mut self.ids[name as usize];
        if *id == u32::MAX {
            *id = self.tree.names.len() as u32;
            let bytes = &self.source.names[name as usize];
            self.tree
                .names
                .push(String::from_utf8_lossy(bytes).into_owned());
        }
        self.tree.name.push(*id);
        self.tree.depth.push(depth);
        self.tree.self_value.push(value);
        self.tree.base_self.extend(base);
    }

    fn push_other(&mut self, depth: u32, value: i64, base: Option<i64>) {
        let tree = &mut self.tree;
        let id = *self.other.get_or_insert_with(|| {
            tree.names.push(OTHER.to_owned());
            tree.names.len() as u32 - 1
        });
        tree.name.push(id);
        tree.depth.push(depth);
        tree.self_value.push(value);
        tree.base_self.extend(base);
    }
}

/// For each kept node, the value of its children that were cut.
fn cut_below(source: &NameTree, totals: &[i64], keep: &[bool]) -> Vec<i64> {
    let mut cut = vec![0_i64; totals.len()];
    for node in 1..totals.len() {
        let parent = source.parents[node] as usize;
        if !keep[node] && keep[parent] {
            cut[parent] = cut[parent].saturating_add(totals[node]);
        }
    }
    cut
}

impl Tree {
    /// Appends a piece of the bytes of `application/vnd.pilotlight.tree` (`docs/formats/tree.md`;
    /// version 1, or 2 with the column of a base):
    /// from an item on (0 = the head, then each name and each value
    /// of each column), until `out` has `enough` bytes. The item that comes next; `None` = all done.
    pub fn put(&self, meta: &[u8], from: usize, enough: usize, out: &mut Vec<u8>) -> Option<usize> {
        if from == 0 {
            self.put_head(meta, out);
        }
        let first = 1;
        let mut piece = Piece {
            out,
            enough,
            at: from.max(first),
            first,
        };
        piece.add(&self.names, |out, name| put_bytes(out, name.as_bytes()));
        piece.add(&self.depth, |out, &depth| put_uint(out, depth.into()));
        piece.add(&self.name, |out, &name| put_uint(out, name.into()));
        piece.add(&self.self_value, |out, &value| put_int(out, value));
        piece.add(&self.base_self, |out, &value| put_int(out, value));
        (piece.at < piece.first).then_some(piece.at)
    }

    fn put_head(&self, meta: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"PLTR");
        let version = 1 + usize::from(!self.base_self.is_empty());
        let counts = [version, self.name.len(), self.names.len(), meta.len()];
        counts
            .iter()
            .for_each(|&count| out.extend_from_slice(&(count as u32).to_le_bytes()));
        out.extend_from_slice(meta);
    }
}

/// A piece under construction.
struct Piece<'a> {
    out: &'a mut Vec<u8>,
    enough: usize,
    /// The item that comes next.
    at: usize,
    /// The first item of the next column.
    first: usize,
}

impl Piece<'_> {
    /// Adds what is left of a column, as far as there is room.
    fn add<T>(&mut self, column: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
        let end = self.first + column.len();
        while self.at < end && self.out.len() < self.enough {
            // Columns before this one are done: there is room left.
            put(self.out, &column[self.at - self.first]);
            self.at += 1;
        }
        self.first = end;
    }
}
