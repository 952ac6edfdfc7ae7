//! Trees as Parca's reports.

use super::answers::{Flamegraph, Function, Line, Location, Meta, Node, Root, Top, TopNode};
use crate::query::diff::{Diff, Events};
use crate::query::top::TopRow;
use crate::query::tree::Tree;

/// Nodes are messages in messages: what is deeper is left out, since writing and reading recurse.
const DEEPEST: usize = 1024;

fn named(name: String, filename: String) -> Option<Meta> {
    Some(Meta {
        function: Some(Function {
            id: name.clone(),
            name,
            filename,
            name_string_index: 0,
        }),
        location_index: 0,
    })
}

/// The table of functions.
pub fn top(rows: Vec<TopRow>, unit: &str) -> Top {
    let list = rows.into_iter().map(|row| TopNode {
        meta: named(row.name, row.file),
        cumulative: row.total,
        flat: row.self_value,
        diff: 0,
    });
    finished(list.collect(), unit)
}

/// The same of two selections: values are those of the second, `diff` what they have more.
pub fn top_diff(diff: &Diff, unit: &str) -> Top {
    let list = diff.top(Events::default()).into_iter().map(|row| TopNode {
        meta: named(row.name, row.file),
        cumulative: row.total,
        flat: row.self_value,
        diff: row.total.saturating_sub(row.base_total),
    });
    finished(list.collect(), unit)
}

fn finished(list: Vec<TopNode>, unit: &str) -> Top {
    Top {
        reported: i32::try_from(list.len()).unwrap_or(i32::MAX),
        list,
        unit: unit.to_owned(),
    }
}

/// The flame graph with its tables; nodes below `least` are left out, and counted.
pub fn flamegraph(tree: &Tree, unit: &str, least: i64) -> Flamegraph {
    // String 0 is the empty one; function and location n + 1 are name n.
    let mut strings = vec![String::new()];
    strings.extend(tree.names.iter().cloned());
    let numbers = 0..tree.names.len() as u32;
    let function = |number: u32| Function {
        id: format!("f{}", number + 1),
        name_string_index: number + 1,
        ..Function::default()
    };
    let location = |number: u32| Location {
        id: format!("l{}", number + 1),
        lines: vec![Line {
            function_index: number + 1,
        }],
    };
    let mut graph = Flamegraph {
        unit: unit.to_owned(),
        string_table: strings,
        locations: numbers.clone().map(location).collect(),
        function: numbers.map(function).collect(),
        ..Flamegraph::default()
    };
    graph.root = Some(root(tree, least, &mut graph));
    graph
}

/// Nodes are in preorder, so they are put together from the last one on.
fn root(tree: &Tree, least: i64, graph: &mut Flamegraph) -> Root {
    // Children of the node at each depth whose parent is still to come, last one first.
    let mut open: Vec<Vec<Node>> = Vec::new();
    let (mut totals, mut bases) = (Vec::new(), Vec::new());
    for at in (0..tree.name.len()).rev() {
        let depth = tree.depth[at] as usize;
        for list in [&mut totals, &mut bases] {
            list.resize(list.len().max(depth + 2), 0_i64);
        }
        open.resize_with(open.len().max(depth + 2), Vec::new);
        let total = std::mem::take(&mut totals[depth + 1]).saturating_add(tree.self_value[at]);
        let own_base = tree.base_self.get(at).copied().unwrap_or(0);
        let base = std::mem::take(&mut bases[depth + 1]).saturating_add(own_base);
        totals[depth] = totals[depth].saturating_add(total);
        bases[depth] = bases[depth].saturating_add(base);
        let mut children = std::mem::take(&mut open[depth + 1]);
        children.reverse();
        let diff = match tree.base_self.is_empty() {
            true => 0,
            false => total.saturating_sub(base),
        };
        if depth == 0 {
            return Root {
                cumulative: total,
                diff,
                children,
            };
        }
        if depth > DEEPEST || total.max(base) < least {
            graph.trimmed = graph.trimmed.saturating_add(tree.self_value[at]);
            continue;
        }
        graph.height = graph.height.max(i32::try_from(depth).unwrap_or(i32::MAX));
        open[depth].push(Node {
            meta: Some(Meta {
                function: None,
                location_index: tree.name[at] + 1,
            }),
            cumulative: total,
            diff,
            children,
        });
    }
    Root::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// root → a(1) → (b(2) → c(4), d(8)); root → e(16).
    fn tree() -> Tree {
        Tree {
            names: ["", "a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
            name: vec![0, 1, 2, 3, 4, 5],
            depth: vec![0, 1, 2, 3, 2, 1],
            self_value: vec![0, 1, 2, 4, 8, 16],
            total: 31,
            ..Tree::default()
        }
    }

    fn shown(graph: &Flamegraph, nodes: &[Node]) -> String {
        let name = |node: &Node| {
            let location =
                &graph.locations[node.meta.as_ref().unwrap().location_index as usize - 1];
            let function = &graph.function[location.lines[0].function_index as usize - 1];
            graph.string_table[function.name_string_index as usize].clone()
        };
        let one = |node: &Node| {
            format!(
                "{}{}({})",
                name(node),
                node.cumulative,
                shown(graph, &node.children)
            )
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_tree_keeps_its_order_and_sums() {
        let graph = flamegraph(&tree(), "count", 0);
        let root = graph.root.clone().unwrap();
        assert_eq!((root.cumulative, graph.height, graph.trimmed), (31, 3, 0));
        assert_eq!(shown(&graph, &root.children), "a15(b6(c4()) d8()) e16()");
        let graph = flamegraph(&tree(), "count", 7);
        let root = graph.root.clone().unwrap();
        assert_eq!((root.cumulative, graph.trimmed), (31, 6));
        assert_eq!(shown(&graph, &root.children), "a15(d8()) e16()");
    }

    #[test]
    fn two_sides_differ_by_node() {
        let both = Tree {
            base_self: vec![0, 1, 0, 1, 8, 20],
            ..tree()
        };
        let root = flamegraph(&both, "count", 0).root.unwrap();
        assert_eq!(
            (root.diff, root.children[0].diff, root.children[1].diff),
            (1, 5, -4)
        );
    }
}
