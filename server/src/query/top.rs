//! The table of functions.

use std::collections::HashMap;

use serde::Serialize;

use super::merge::NameTree;

/// A function with its own value and that of everything it called; recursion is counted once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopRow {
    /// Function.
    pub name: String,
    /// Source file, or the binary of an unresolved address.
    pub file: String,
    /// Value of stacks that end in it.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Value of stacks that pass through it.
    pub total: i64,
}

impl NameTree {
    /// Source files of those functions that have one.
    pub fn sources(&self) -> HashMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let known = self.names.iter().zip(&self.files);
        let known = known.filter(|(_, file)| !file.is_empty());
        known.map(|(name, file)| (text(name), text(file))).collect()
    }

    /// All functions, largest own value first.
    pub fn top(&self) -> Vec<TopRow> {
        let (own, whole) = self.by_function(&self.self_values);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut rows: Vec<TopRow> = (1..self.names.len())
            .filter(|&name| own[name] != 0 || whole[name] != 0)
            .map(|name| TopRow {
                name: text(&self.names[name]),
                file: text(&self.files[name]),
                self_value: own[name],
                total: whole[name],
            })
            .collect();
        rows.sort_by(|a, b| {
            (b.self_value, b.total)
                .cmp(&(a.self_value, a.total))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// Own and whole value of each name.
    pub(super) fn by_function(&self, self_values: &[i64]) -> (Vec<i64>, Vec<i64>) {
        let totals = self.totals_of(self_values);
        let mut own = vec![0_i64; self.names.len()];
        let mut whole = vec![0_i64; self.names.len()];
        for (node, &name) in self.node_names.iter().enumerate().skip(1) {
            let sum = &mut own[name as usize];
            *sum = sum.saturating_add(self_values[node]);
            if totals[node] != 0 && !self.called_by_itself(node, name) {
                let sum = &mut whole[name as usize];
                *sum = sum.saturating_add(totals[node]);
            }
        }
        (own, whole)
    }

    fn called_by_itself(&self, node: usize, name: u32) -> bool {
        let mut at = self.parents[node] as usize;
        while at != 0 {
            if self.node_names[at] == name {
                return true;
            }
            at = self.parents[at] as usize;
        }
        false
    }
}
