//! The tree of logical stacks: a node is a span under its parent. Nodes are never freed, and bounded.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Frame;
use crate::fork::{self, Held, ReadMostly};
use crate::stats::COUNTERS;

/// Nodes at most, the root and `[overflow]` among them.
pub(super) const MAX_NODES: usize = 16_384;
/// Deeper spans are counted at the one that is this deep.
const MAX_DEPTH: u8 = 64;
/// No span.
pub(super) const ROOT: u32 = 0;
const OVERFLOW: u32 = 1;

/// A place in the program that opens a span.
#[derive(Debug)]
pub struct Site {
    frame: Frame,
    /// The node that was asked for last, under its parent: parent in the high half.
    last: AtomicU64,
}

static OVERFLOW_SITE: Site = Site::new("[overflow]", "", 0);

impl Site {
    /// For `#[pilotlight::span]`.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, file: &'static str, line: u32) -> Site {
        Site {
            frame: Frame { name, file, line },
            last: AtomicU64::new(0),
        }
    }

    /// The node of this span under `parent`.
    #[inline]
    pub(crate) fn under(&'static self, parent: u32) -> u32 {
        let last = self.last.load(Ordering::Relaxed);
        // Node 0 is never a child, so the first look never finds one.
        if (last >> 32) as u32 == parent && last as u32 != 0 {
            return last as u32;
        }
        let node = child(parent, self);
        let last = u64::from(parent) << 32 | u64::from(node);
        self.last.store(last, Ordering::Relaxed);
        node
    }
}

#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    depth: u8,
    site: &'static Site,
}

struct Tree {
    nodes: Vec<Node>,
    /// By parent and address of the site.
    children: HashMap<(u32, usize), u32>,
}

fn tree() -> &'static ReadMostly<Tree> {
    static TREE: OnceLock<ReadMostly<Tree>> = OnceLock::new();
    TREE.get_or_init(|| {
        fork::watch();
        let node = Node {
            parent: ROOT,
            depth: 0,
            site: &OVERFLOW_SITE,
        };
        ReadMostly::new(Tree {
            nodes: vec![node; 2],
            children: HashMap::new(),
        })
    })
}

fn child(parent: u32, site: &'static Site) -> u32 {
    let key = (parent, std::ptr::from_ref(site) as usize);
    let read = tree().read();
    if let Some(&node) = read.children.get(&key) {
        return node;
    }
    drop(read);
    let mut tree = tree().write();
    let depth = tree.nodes[parent as usize].depth;
    if depth == MAX_DEPTH || parent == OVERFLOW {
        return parent;
    }
    if tree.nodes.len() == MAX_NODES {
        COUNTERS.span_stacks_overflowed.add(1);
        return OVERFLOW;
    }
    let fresh = tree.nodes.len() as u32;
    let node = *tree.children.entry(key).or_insert(fresh);
    if node == fresh {
        tree.nodes.push(Node {
            parent,
            depth: depth + 1,
            site,
        });
    }
    node
}

/// The frames of a node, outermost first; none for the root.
pub(crate) fn path(node: u32) -> Vec<Frame> {
    let tree = tree().read();
    let mut frames = Vec::new();
    let mut at = node;
    while at != ROOT {
        let Some(node) = tree.nodes.get(at as usize) else {
            break;
        };
        frames.push(node.site.frame);
        at = node.parent;
    }
    frames.reverse();
    frames
}

/// How many nodes there are.
pub(super) fn count() -> usize {
    tree().read().nodes.len()
}

/// The site of a name that is given where the program runs.
pub(super) fn site(name: &'static str, place: &'static Location<'static>) -> &'static Site {
    site_at(name, place.file(), place.line())
}

type Sites = HashMap<(&'static str, &'static str, u32), &'static Site>;

fn sites() -> &'static ReadMostly<Sites> {
    static SITES: OnceLock<ReadMostly<Sites>> = OnceLock::new();
    SITES.get_or_init(|| {
        fork::watch();
        ReadMostly::new(Sites::new())
    })
}

/// Held around a fork.
pub(super) fn locks() -> [&'static dyn Held; 2] {
    [tree(), sites()]
}

/// The one site of this name at this place.
pub(crate) fn site_at(name: &'static str, file: &'static str, line: u32) -> &'static Site {
    let key = (name, file, line);
    let read = sites().read();
    if let Some(site) = read.get(&key) {
        return site;
    }
    drop(read);
    let mut sites = sites().write();
    if sites.len() == MAX_NODES {
        return &OVERFLOW_SITE;
    }
    sites.entry(key).or_insert_with(|| {
        // Kept for good, and bounded.
        Box::leak(Box::new(Site::new(name, file, line)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_under_two_parents_is_two_stacks() {
        static A: Site = Site::new("a", "f.rs", 1);
        static B: Site = Site::new("b", "f.rs", 2);
        static C: Site = Site::new("c", "f.rs", 3);
        let (under_a, under_b) = (C.under(A.under(ROOT)), C.under(B.under(ROOT)));
        assert_ne!(under_a, under_b);
        assert_eq!(C.under(A.under(ROOT)), under_a);
        let names = |node| path(node).iter().map(|f| f.name).collect::<Vec<_>>();
        assert_eq!(names(under_a), ["a", "c"]);
        assert_eq!(names(under_b), ["b", "c"]);
        assert_eq!(names(ROOT), [""; 0]);
    }

    #[test]
    fn recursion_and_many_stacks_end_at_their_bounds() {
        static DEEP: Site = Site::new("deep", "f.rs", 1);
        let deepest = (0..1000).fold(ROOT, |node, _| DEEP.under(node));
        assert_eq!(path(deepest).len(), usize::from(MAX_DEPTH));
        let sites: Vec<&'static Site> = (0..150)
            .map(|_| &*Box::leak(Box::new(Site::new("wide", "f.rs", 1))))
            .collect();
        for outer in &sites {
            for inner in &sites {
                inner.under(outer.under(ROOT));
            }
        }
        assert_eq!(count(), MAX_NODES);
        static LATE: Site = Site::new("late", "f.rs", 1);
        let late = LATE.under(ROOT);
        assert_eq!(
            path(late).iter().map(|f| f.name).collect::<Vec<_>>(),
            ["[overflow]"]
        );
        assert_eq!(LATE.under(late), late);
    }
}
