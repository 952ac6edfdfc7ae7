//! Collapsed ("folded") text: one stack a line.

use std::io;

use crate::model::Profile;
use crate::tree::Tree;

/// Writes `root;…;leaf value` lines of one value column, sorted by path. `;` inside a name becomes
/// `:`, a line break becomes a space. Samples without a stack stand under `(no stack)`.
///
/// # Errors
/// What `out` fails with.
pub fn to_collapsed(
    profile: &Profile,
    value_index: usize,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let tree = Tree::from_profile(profile, value_index);
    let mut path: Vec<u8> = Vec::new();
    // Length of `path` up to and including each depth.
    let mut ends = vec![0];
    for node in 0..tree.len() {
        let depth = tree.nodes.depth[node] as usize;
        ends.truncate(depth.max(1));
        path.truncate(ends[ends.len() - 1]);
        if depth > 0 {
            if depth > 1 {
                path.push(b';');
            }
            path.extend(tree.name(node).iter().map(|&byte| clean(byte)));
            ends.push(path.len());
        }
        let value = tree.nodes.self_value[node];
        if value != 0 {
            let shown = if depth == 0 { b"(no stack)" } else { &path[..] };
            out.write_all(shown)?;
            writeln!(out, " {value}")?;
        }
    }
    Ok(())
}

fn clean(byte: u8) -> u8 {
    match byte {
        b';' => b':',
        b'\n' | b'\r' => b' ',
        other => other,
    }
}
