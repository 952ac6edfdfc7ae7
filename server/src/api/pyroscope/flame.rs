//! Pyroscope's form of a flame graph: levels of (offset, total, self, name), offsets relative to the
//! end of the bar before; in a diff two such triples and the name.

use super::proto::{FlameGraph, FlameGraphDiff, Level};
use crate::query::tree::Tree;
use crate::segment::wire::put_uint;

const ROOT: &str = "total";
/// What Pyroscope calls the children that were cut.
const OTHER: &str = "other";

/// Totals of preorder columns.
fn totals(tree: &Tree, own: &[i64]) -> Vec<i64> {
    let mut totals = own.to_vec();
    let mut open: Vec<usize> = Vec::new();
    for at in 0..=tree.depth.len() {
        let depth = tree.depth.get(at).map_or(0, |&depth| depth as usize);
        // What is at this depth or below is complete: add it to its parent.
        while open.len() > depth {
            let Some(done) = open.pop() else { break };
            if let Some(&parent) = open.last() {
                totals[parent] = totals[parent].saturating_add(totals[done]);
            }
        }
        if at < tree.depth.len() {
            open.push(at);
        }
    }
    totals
}

fn names(tree: &Tree) -> Vec<String> {
    let shown = |name: &String| match name.as_str() {
        "" => ROOT.to_owned(),
        "(other)" => OTHER.to_owned(),
        name => name.to_owned(),
    };
    tree.names.iter().map(shown).collect()
}

/// Bars of a level, one side: where the next one would begin, and where the last one ended.
#[derive(Clone, Copy, Default)]
struct Edge {
    next: i64,
    last: i64,
}

/// Walks the nodes in preorder; `next` of a depth is where a bar of that depth begins.
struct Walk {
    levels: Vec<Level>,
    edges: Vec<[Edge; 2]>,
}

impl Walk {
    /// Places a bar of both sides; the answer is how far each begins after the one before.
    fn bar(&mut self, depth: usize, total: [i64; 2]) -> [i64; 2] {
        while self.levels.len() <= depth + 1 {
            self.levels.push(Level::default());
            self.edges.push([Edge::default(); 2]);
        }
        let mut offsets = [0; 2];
        for (side, total) in total.into_iter().enumerate() {
            let edge = &mut self.edges[depth][side];
            let start = edge.next;
            offsets[side] = start - edge.last;
            (edge.next, edge.last) = (start + total, start + total);
            // The children begin where their parent does.
            self.edges[depth + 1][side].next = start;
        }
        offsets
    }

    fn finish(mut self) -> Vec<Level> {
        while self
            .levels
            .last()
            .is_some_and(|level| level.values.is_empty())
        {
            self.levels.pop();
        }
        self.levels
    }
}

/// One selection.
pub fn single(tree: &Tree) -> FlameGraph {
    let totals = totals(tree, &tree.self_value);
    let mut walk = Walk {
        levels: Vec::new(),
        edges: Vec::new(),
    };
    for (at, &total) in totals.iter().enumerate() {
        let depth = tree.depth[at] as usize;
        let [offset, _] = walk.bar(depth, [total, 0]);
        let bar = [offset, total, tree.self_value[at], i64::from(tree.name[at])];
        walk.levels[depth].values.extend(bar);
    }
    FlameGraph {
        names: names(tree),
        levels: walk.finish(),
        total: tree.total,
        max_self: tree.self_value.iter().copied().max().unwrap_or(0),
    }
}

/// Pyroscope's binary tree, as `/ingest?format=tree` takes it.
pub fn tree_bytes(tree: &Tree) -> Vec<u8> {
    let mut children = vec![0_u64; tree.depth.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, &depth) in tree.depth.iter().enumerate() {
        open.truncate(depth as usize);
        if let Some(&parent) = open.last() {
            children[parent] += 1;
        }
        open.push(at);
    }
    let mut out = Vec::new();
    for (at, &children) in children.iter().enumerate() {
        let name = match tree.names[tree.name[at] as usize].as_str() {
            "(other)" => OTHER,
            name => name,
        };
        put_uint(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        put_uint(&mut out, tree.self_value[at].max(0) as u64);
        put_uint(&mut out, children);
    }
    out
}

/// Two selections: `left` is the base.
pub fn double(tree: &Tree) -> FlameGraphDiff {
    let left = totals(tree, &tree.base_self);
    let right = totals(tree, &tree.self_value);
    let mut walk = Walk {
        levels: Vec::new(),
        edges: Vec::new(),
    };
    for at in 0..left.len() {
        let depth = tree.depth[at] as usize;
        let [left_offset, right_offset] = walk.bar(depth, [left[at], right[at]]);
        walk.levels[depth].values.extend([
            left_offset,
            left[at],
            tree.base_self[at],
            right_offset,
            right[at],
            tree.self_value[at],
            i64::from(tree.name[at]),
        ]);
    }
    let ticks = |totals: &[i64]| totals.first().copied().unwrap_or(0);
    let largest = tree.self_value.iter().chain(&tree.base_self).copied();
    FlameGraphDiff {
        names: names(tree),
        levels: walk.finish(),
        total: ticks(&left).saturating_add(ticks(&right)),
        max_self: largest.max().unwrap_or(0),
        left_ticks: ticks(&left),
        right_ticks: ticks(&right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// main 10 (own 1) > [a 5 (own 2) > c 3, b 4]; the other side: main 2 > b 2.
    fn tree(diff: bool) -> Tree {
        Tree {
            names: ["", "main", "a", "c", "b"].map(str::to_owned).to_vec(),
            name: vec![0, 1, 2, 3, 4],
            depth: vec![0, 1, 2, 3, 2],
            self_value: vec![0, 1, 2, 3, 4],
            base_self: if diff { vec![0, 0, 0, 0, 2] } else { vec![] },
            total: 10,
            ..Tree::default()
        }
    }

    fn levels(levels: &[Level]) -> Vec<Vec<i64>> {
        levels.iter().map(|level| level.values.clone()).collect()
    }

    #[test]
    fn bars_stand_under_their_parents() {
        let graph = single(&tree(false));
        assert_eq!(graph.names, ["total", "main", "a", "c", "b"]);
        assert_eq!((graph.total, graph.max_self), (10, 4));
        assert_eq!(
            levels(&graph.levels),
            [
                vec![0, 10, 0, 0],
                vec![0, 10, 1, 1],
                vec![0, 5, 2, 2, 0, 4, 4, 4],
                vec![0, 3, 3, 3],
            ]
        );
    }

    #[test]
    fn bytes_of_a_tree_say_name_value_and_children() {
        assert_eq!(
            tree_bytes(&tree(false)),
            b"\x00\x00\x01\x04main\x01\x02\x01a\x02\x01\x01c\x03\x00\x01b\x04\x00"
        );
    }

    #[test]
    fn an_offset_is_the_gap_after_the_bar_before() {
        // root > [a 5 (own 5), b 4 > c 4]: c stands under b, 5 to the right.
        let tree = Tree {
            names: ["", "a", "b", "c"].map(str::to_owned).to_vec(),
            name: vec![0, 1, 2, 3],
            depth: vec![0, 1, 1, 2],
            self_value: vec![0, 5, 0, 4],
            total: 9,
            ..Tree::default()
        };
        let graph = single(&tree);
        assert_eq!(
            levels(&graph.levels),
            [
                vec![0, 9, 0, 0],
                vec![0, 5, 5, 1, 0, 4, 0, 2],
                vec![5, 4, 4, 3],
            ]
        );
    }

    #[test]
    fn a_diff_has_both_sides_of_each_bar() {
        let graph = double(&tree(true));
        assert_eq!(
            (graph.left_ticks, graph.right_ticks, graph.total),
            (2, 10, 12)
        );
        assert_eq!(
            levels(&graph.levels),
            [
                vec![0, 2, 0, 0, 10, 0, 0],
                vec![0, 2, 0, 0, 10, 1, 1],
                vec![0, 0, 0, 0, 5, 2, 2, 0, 2, 2, 0, 4, 4, 4],
                vec![0, 0, 0, 0, 3, 3, 3],
            ]
        );
    }
}
