//! Two selections beside each other, and whether what differs is more than chance.

use std::collections::HashMap;

use serde::Serialize;

use super::merge::NameTree;
use super::tree::Tree;

/// Both sides on one tree of names.
pub struct Diff {
    union: NameTree,
    base: Vec<i64>,
    base_names: Vec<bool>,
}

/// How many events each side counted, where that is known: what chance may do depends on it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    /// Of the selection.
    pub current: u64,
    /// Of the base.
    pub base: u64,
}

/// A function on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffRow {
    /// Function.
    pub name: String,
    /// Source file.
    pub file: String,
    /// Own value.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Value of stacks that pass through it.
    pub total: i64,
    /// Own value in the base.
    pub base_self: i64,
    /// Total in the base.
    pub base_total: i64,
    /// Change of its share of the total, −1 to 1.
    pub share_change: f64,
    /// That change in standard errors of the difference of two shares, √(p(1−p)(1/n + 1/m)).
    pub z: f64,
    /// Whether `z` is so far out that chance alone does it for one in a thousand functions at most.
    pub real: bool,
}

/// Two-sided 0.001 of the normal distribution.
const REAL_Z: f64 = 3.29;

impl Diff {
    /// Puts `base` beside `current`.
    pub fn new(current: NameTree, base: &NameTree) -> Self {
        let mut union = current;
        let names: Vec<u32> = base
            .names
            .iter()
            .zip(&base.files)
            .map(|(name, file)| union.name(name, file))
            .collect();
        let mut nodes = vec![0_u32; base.parents.len()];
        let mut values = vec![0_i64; union.parents.len()];
        values[0] = base.self_values[0];
        for node in 1..nodes.len() {
            let parent = nodes[base.parents[node] as usize];
            let id = union.child(parent, names[base.node_names[node] as usize]);
            nodes[node] = id;
            values.resize(union.parents.len(), 0);
            values[id as usize] = values[id as usize].saturating_add(base.self_values[node]);
        }
        let mut base_names = vec![false; union.names.len()];
        names
            .iter()
            .for_each(|&name| base_names[name as usize] = true);
        Self {
            union,
            base: values,
            base_names,
        }
    }

    /// Sums of the selection and of the base.
    pub fn totals(&self) -> (i64, i64) {
        (self.union.total(), self.union.totals_of(&self.base)[0])
    }

    /// Preorder columns with both sides; the largest nodes by the sum of both stay.
    pub fn finish(&self, max_nodes: usize) -> Tree {
        self.union.finish_both(Some(&self.base), max_nodes)
    }

    /// Source files of those functions that have one.
    pub fn sources(&self) -> HashMap<String, String> {
        self.union.sources()
    }

    /// All functions of both sides, largest change of share first.
    pub fn top(&self, events: Events) -> Vec<DiffRow> {
        let (own, whole) = self.union.by_function(&self.union.self_values);
        let (base_own, base_whole) = self.union.by_function(&self.base);
        let (total, base_total) = self.totals();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let used =
            |name: &usize| whole[*name] != 0 || (self.base_names[*name] && base_whole[*name] != 0);
        let mut rows: Vec<DiffRow> = (1..own.len())
            .filter(used)
            .map(|name| {
                let share = share(whole[name], total);
                let base_share = self::share(base_whole[name], base_total);
                let z = z_score(share, base_share, events);
                DiffRow {
                    name: text(&self.union.names[name]),
                    file: text(&self.union.files[name]),
                    self_value: own[name],
                    total: whole[name],
                    base_self: base_own[name],
                    base_total: base_whole[name],
                    share_change: share - base_share,
                    z,
                    real: z.abs() >= REAL_Z,
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            let size = |row: &DiffRow| row.share_change.abs();
            size(b)
                .total_cmp(&size(a))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows
    }
}

fn share(value: i64, total: i64) -> f64 {
    if total == 0 {
        0.0
    } else {
        value as f64 / total as f64
    }
}

/// Pooled two-proportion z; 0 where a side is empty, since nothing can be said then.
fn z_score(share: f64, base_share: f64, events: Events) -> f64 {
    let (n, m) = (events.current as f64, events.base as f64);
    if n == 0.0 || m == 0.0 {
        return 0.0;
    }
    let pooled = (share * n + base_share * m) / (n + m);
    let variance = pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m);
    if variance <= 0.0 {
        return 0.0;
    }
    (share - base_share) / variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_real_when_chance_would_not_make_it() {
        let events = |n| Events {
            current: n,
            base: n,
        };
        // 10 % against 12 %: two standard errors at 2,000 events, six at 20,000.
        let few = z_score(0.12, 0.10, events(2_000));
        let many = z_score(0.12, 0.10, events(20_000));
        assert!((few - 2.02).abs() < 0.02, "{few}");
        assert!((many - 6.39).abs() < 0.02, "{many}");
        assert!(few < REAL_Z && many > REAL_Z);
        assert_eq!(z_score(0.1, 0.0, events(0)), 0.0);
        assert_eq!(z_score(1.0, 1.0, events(10)), 0.0);
    }
}
