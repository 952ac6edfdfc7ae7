//! Reports as Arrow records, which Parca's page asks for. Columns are the protocol's; those that a tree of
//! names does not know (mappings, addresses, lines) have no values.

use std::collections::{BTreeSet, HashMap};

use super::answers::{FlamegraphArrow, TableArrow};
use crate::arrow::{Array, stream};
use crate::query::diff::DiffRow;
use crate::query::top::TopRow;
use crate::query::tree::Tree;

/// Source files by function.
pub type Files = HashMap<String, String>;

fn none(bits: i32, signed: bool, rows: usize) -> Array {
    Array::Ints {
        bits,
        signed,
        values: vec![None; rows],
    }
}

fn ints(bits: i32, signed: bool, values: Vec<i64>) -> Array {
    Array::Ints {
        bits,
        signed,
        values: values.into_iter().map(Some).collect(),
    }
}

/// Texts that repeat; none where there is none.
fn words<'w>(utf8: bool, rows: impl Iterator<Item = Option<&'w str>>) -> Array {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut values = Vec::new();
    let mut indices = Vec::new();
    for row in rows {
        indices.push(row.map(|word| {
            *numbers.entry(word).or_insert_with(|| {
                values.push(word.as_bytes().to_vec());
                values.len() as u32 - 1
            })
        }));
    }
    Array::Dictionary {
        utf8,
        indices,
        values,
    }
}

/// The nodes of a tree level by level.
struct Levels {
    /// Node of the tree.
    node: Vec<usize>,
    parent: Vec<i64>,
    children: Vec<Vec<u32>>,
    /// Sum of the siblings before it and of what is left of its parent.
    offset: Vec<i64>,
    trimmed: i64,
}

/// Whole value of each node, of either side, and the node it hangs on.
fn sums(tree: &Tree) -> (Vec<i64>, Vec<i64>, Vec<usize>) {
    let mut path: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(tree.name.len());
    for (node, &depth) in tree.depth.iter().enumerate() {
        path.truncate(depth as usize);
        parents.push(path.last().copied().unwrap_or(0));
        path.push(node);
    }
    let whole = |own: &[i64]| {
        let mut whole = own.to_vec();
        for node in (1..whole.len()).rev() {
            whole[parents[node]] = whole[parents[node]].saturating_add(whole[node]);
        }
        whole
    };
    let (total, base) = (whole(&tree.self_value), whole(&tree.base_self));
    (total, base, parents)
}

fn levels(total: &[i64], base: &[i64], parents: &[usize], least: i64) -> Levels {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); total.len()];
    for node in 1..total.len() {
        below[parents[node]].push(node);
    }
    let mut out = Levels {
        node: vec![0],
        parent: vec![-1],
        children: vec![Vec::new()],
        offset: vec![0],
        trimmed: 0,
    };
    let mut at = 0;
    while at < out.node.len() {
        let mut offset = out.offset[at];
        for &child in &below[out.node[at]] {
            if total[child].max(base.get(child).copied().unwrap_or(0)) < least {
                out.trimmed = out.trimmed.saturating_add(total[child]);
                continue;
            }
            let row = out.node.len() as u32;
            out.children[at].push(row);
            out.node.push(child);
            out.parent.push(at as i64);
            out.children.push(Vec::new());
            out.offset.push(offset);
            offset = offset.saturating_add(total[child]);
        }
        at += 1;
    }
    out
}

/// The flame graph; nodes below `least` are left out, and counted.
pub fn flamegraph(tree: &Tree, files: &Files, unit: &str, least: i64) -> FlamegraphArrow {
    let (total, base, parents) = sums(tree);
    let levels = levels(&total, &base, &parents, least);
    let rows = levels.node.len();
    let each = |what: &dyn Fn(usize) -> i64| levels.node.iter().map(|&node| what(node)).collect();
    let name = |node: &usize| {
        let name = tree.names[tree.name[*node] as usize].as_str();
        (*node > 0).then_some(name)
    };
    let file = |node: &usize| files.get(name(node)?).map(String::as_str);
    let depth: Vec<i64> = each(&|node| i64::from(tree.depth[node]));
    let height = depth.iter().max().copied().unwrap_or(0);
    let diff = |node: usize| {
        base.get(node)
            .map_or(0, |base| total[node].saturating_sub(*base))
    };
    let columns = [
        ("labels_only", Array::Bools(vec![Some(false); rows])),
        ("location_address", none(64, false, rows)),
        ("mapping_file", words(false, (0..rows).map(|_| None))),
        ("mapping_build_id", words(false, (0..rows).map(|_| None))),
        ("location_line", none(64, false, rows)),
        ("inlined", Array::Bools(vec![None; rows])),
        ("function_startline", none(64, false, rows)),
        ("function_name", words(false, levels.node.iter().map(name))),
        (
            "function_system_name",
            words(false, levels.node.iter().map(name)),
        ),
        (
            "function_file_name",
            words(false, levels.node.iter().map(file)),
        ),
        (
            "children",
            Array::Lists {
                bits: 32,
                signed: false,
                lists: levels.children.clone(),
            },
        ),
        ("parent", ints(32, true, levels.parent.clone())),
        ("cumulative", ints(64, false, each(&|node| total[node]))),
        ("flat", ints(64, false, each(&|node| tree.self_value[node]))),
        ("diff", ints(64, true, each(&diff))),
        ("timestamp", ints(64, true, vec![0; rows])),
        ("depth", ints(32, false, depth)),
        ("value_offset", ints(64, false, levels.offset.clone())),
    ];
    FlamegraphArrow {
        record: stream(&columns, &[], rows),
        unit: unit.to_owned(),
        // With the root.
        height: i32::try_from(height).unwrap_or(i32::MAX).saturating_add(1),
        trimmed: levels.trimmed,
    }
}

/// Rows of `list` that call, or are called by, each row of it.
fn calls(tree: &Tree, list: &[&str]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let numbers = list.iter().enumerate();
    let numbers: HashMap<&str, u32> = numbers.map(|(row, name)| (*name, row as u32)).collect();
    let names = tree.names.iter();
    let rows: Vec<_> = names
        .map(|name| numbers.get(name.as_str()).copied())
        .collect();
    let row = |node: usize| rows[tree.name[node] as usize];
    let (_, _, parents) = sums(tree);
    let pairs = (1..parents.len()).filter_map(|node| row(parents[node]).zip(row(node)));
    let pairs: BTreeSet<(u32, u32)> = pairs.collect();
    let mut callers = vec![Vec::new(); list.len()];
    let mut callees = vec![Vec::new(); list.len()];
    for (caller, callee) in pairs {
        callers[callee as usize].push(caller);
        callees[caller as usize].push(callee);
    }
    (callers, callees)
}

/// A function of the table.
pub struct Row {
    name: String,
    file: String,
    /// Own value, and what it has more than the base.
    flat: (i64, i64),
    /// Of all below, too.
    cumulative: (i64, i64),
}

impl From<TopRow> for Row {
    fn from(row: TopRow) -> Self {
        Self {
            name: row.name,
            file: row.file,
            flat: (row.self_value, 0),
            cumulative: (row.total, 0),
        }
    }
}

impl From<DiffRow> for Row {
    fn from(row: DiffRow) -> Self {
        Self {
            name: row.name,
            file: row.file,
            flat: (row.self_value, row.self_value.saturating_sub(row.base_self)),
            cumulative: (row.total, row.total.saturating_sub(row.base_total)),
        }
    }
}

/// The table of functions, and who calls whom.
pub fn table(list: Vec<Row>, tree: &Tree, unit: &str) -> TableArrow {
    let rows = list.len();
    let name = || list.iter().map(|row| Some(row.name.as_str()));
    let file = list
        .iter()
        .map(|row| Some(row.file.as_str()).filter(|file| !file.is_empty()));
    let names: Vec<&str> = name().flatten().collect();
    let (callers, callees) = calls(tree, &names);
    let lists = |lists| Array::Lists {
        bits: 64,
        signed: true,
        lists,
    };
    let each = |what: fn(&Row) -> i64| ints(64, true, list.iter().map(what).collect());
    let columns = [
        ("mapping_file", words(true, (0..rows).map(|_| None))),
        ("mapping_build_id", words(true, (0..rows).map(|_| None))),
        ("location_address", none(64, false, rows)),
        ("location_line", none(64, true, rows)),
        ("function_startline", none(64, true, rows)),
        ("function_name", words(true, name())),
        ("function_system_name", words(true, name())),
        ("function_file_name", words(true, file)),
        ("cumulative", each(|row| row.cumulative.0)),
        ("cumulative_diff", each(|row| row.cumulative.1)),
        ("flat", each(|row| row.flat.0)),
        ("flat_diff", each(|row| row.flat.1)),
        ("callers", lists(callers)),
        ("callees", lists(callees)),
    ];
    TableArrow {
        record: stream(&columns, &[], rows),
        unit: unit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::{Batch, Stream};

    /// root → a(1) → (b(2), c(4)); root → d(8).
    fn tree() -> Tree {
        Tree {
            names: ["", "a", "b", "c", "d"].map(str::to_owned).to_vec(),
            name: vec![0, 1, 2, 3, 4],
            depth: vec![0, 1, 2, 2, 1],
            self_value: vec![0, 1, 2, 4, 8],
            total: 15,
            ..Tree::default()
        }
    }

    fn read(bytes: &[u8]) -> Batch<'_> {
        let batch = Stream::new(bytes, 1 << 20).unwrap().next().unwrap();
        batch.unwrap()
    }

    fn numbers(batch: &Batch, name: &str) -> Vec<i64> {
        let column = batch.root.child(name).unwrap();
        (0..batch.root.len)
            .map(|row| column.int(row).unwrap().unwrap())
            .collect()
    }

    #[test]
    fn a_tree_is_told_level_by_level() {
        let files = Files::from([("b".to_owned(), "b.rs".to_owned())]);
        let graph = flamegraph(&tree(), &files, "count", 0);
        let batch = read(&graph.record);
        let name = batch.root.child("function_name").unwrap();
        let names: Vec<_> = (0..5)
            .map(|row| name.bytes(row).unwrap().unwrap_or(b"-"))
            .collect();
        assert_eq!(names.concat(), b"-adbc");
        assert_eq!(numbers(&batch, "cumulative"), [15, 7, 8, 2, 4]);
        assert_eq!(numbers(&batch, "flat"), [0, 1, 8, 2, 4]);
        assert_eq!(numbers(&batch, "parent"), [-1, 0, 0, 1, 1]);
        assert_eq!(numbers(&batch, "depth"), [0, 1, 1, 2, 2]);
        assert_eq!(numbers(&batch, "value_offset"), [0, 0, 7, 0, 2]);
        assert_eq!((graph.height, graph.trimmed), (3, 0));
        let file = batch.root.child("function_file_name").unwrap();
        assert_eq!(file.bytes(3).unwrap(), Some(&b"b.rs"[..]));
        let cut = flamegraph(&tree(), &files, "count", 3);
        assert_eq!((read(&cut.record).root.len, cut.trimmed), (4, 2));
        let both = Tree {
            base_self: vec![0, 0, 5, 4, 0],
            ..tree()
        };
        let batch = flamegraph(&both, &files, "count", 0).record;
        assert_eq!(numbers(&read(&batch), "diff"), [6, -2, 8, -3, 0]);
    }
}
