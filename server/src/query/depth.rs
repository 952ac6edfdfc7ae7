//! How deep stacks are, by value.

use super::merge::NameTree;

impl NameTree {
    /// Value of the stacks of each number of frames; index 0 is value without any stack.
    pub fn by_depth(&self) -> Vec<i64> {
        let mut depths = vec![0_u32; self.parents.len()];
        let mut out = vec![0_i64];
        for node in 0..self.parents.len() {
            if node > 0 {
                depths[node] = depths[self.parents[node] as usize] + 1;
            }
            let (depth, value) = (depths[node] as usize, self.self_values[node]);
            if value != 0 {
                out.resize(out.len().max(depth + 1), 0);
                out[depth] = out[depth].saturating_add(value);
            }
        }
        out
    }
}
