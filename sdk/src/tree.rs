//! A tree of stacks in little memory: children hang under their caller.
//!
//! A node is 8 bytes in a chunk that never moves, and 5 to 11 bytes in an index by (parent, frame),
//! which holds node numbers only.

/// Index of a frame in its owner's table.
pub(crate) type FrameId = u32;

/// Nodes of a chunk.
const CHUNK: usize = 4096;

/// The most that a node costs, its share of the index included, also while that grows.
pub(crate) const NODE_BYTES: usize = 24;

#[derive(Clone, Copy, Default)]
struct Node {
    parent: u32,
    frame: FrameId,
}

/// Node 0 is the root, above all threads; it has no frame.
pub(crate) struct Tree {
    chunks: Vec<Box<[Node]>>,
    len: u32,
    /// Open addressing, a power of two long; 0 where nothing is.
    index: Box<[u32]>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree {
            chunks: vec![vec![Node::default(); CHUNK].into_boxed_slice()],
            len: 1,
            index: vec![0; CHUNK].into_boxed_slice(),
        }
    }

    /// Nodes so far, the root among them.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    fn node(&self, id: u32) -> Node {
        self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// The node of `frame` under `parent`, made when there is none.
    pub(crate) fn child(&mut self, parent: u32, frame: FrameId) -> u32 {
        let mut at = self.place(parent, frame);
        loop {
            let id = self.index[at];
            if id == 0 {
                break;
            }
            let node = self.node(id);
            if (node.parent, node.frame) == (parent, frame) {
                return id;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
        self.index[at] = self.push(Node { parent, frame });
        let made = self.index[at];
        if self.len() * 4 > self.index.len() * 3 {
            self.grow();
        }
        made
    }

    fn push(&mut self, node: Node) -> u32 {
        let id = self.len;
        if id as usize / CHUNK == self.chunks.len() {
            let chunk = vec![Node::default(); CHUNK].into_boxed_slice();
            self.chunks.push(chunk);
        }
        self.chunks[id as usize / CHUNK][id as usize % CHUNK] = node;
        self.len += 1;
        id
    }

    fn place(&self, parent: u32, frame: FrameId) -> usize {
        let key = u64::from(parent) << 32 | u64::from(frame);
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.index.len() - 1)
    }

    fn grow(&mut self) {
        self.index = vec![0; self.index.len() * 2].into_boxed_slice();
        for id in 1..self.len {
            let node = self.node(id);
            let mut at = self.place(node.parent, node.frame);
            while self.index[at] != 0 {
                at = (at + 1) & (self.index.len() - 1);
            }
            self.index[at] = id;
        }
    }

    /// Frames from a node up to the root.
    pub(crate) fn frames_of(&self, node: u32, stack: &mut Vec<FrameId>) {
        stack.clear();
        let mut at = node;
        while at != 0 {
            let node = self.node(at);
            stack.push(node.frame);
            at = node.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_again_over_all_growth_and_lead_to_the_root() {
        // Miri interprets.
        const N: u32 = if cfg!(miri) { 300 } else { 30_000 };
        let mut tree = Tree::new();
        let path = |n: u32| [n % 7, n % 1009, n];
        let mut leaf_of = |n| path(n).iter().fold(0, |at, frame| tree.child(at, *frame));
        let leaves: Vec<u32> = (0..N).map(&mut leaf_of).collect();
        let again: Vec<u32> = (0..N).map(&mut leaf_of).collect();
        assert_eq!(leaves, again);
        assert_eq!(tree.len(), 1 + 7 + (7 * 1009).min(N as usize) + N as usize);
        let mut stack = Vec::new();
        for (n, leaf) in leaves.iter().enumerate() {
            tree.frames_of(*leaf, &mut stack);
            stack.reverse();
            assert_eq!(stack, path(n as u32));
        }
        let bytes = tree.chunks.len() * CHUNK * 8 + tree.index.len() * 4 * 3 / 2;
        assert!(cfg!(miri) || bytes <= tree.len() * NODE_BYTES, "{bytes}");
    }
}
