//! Samples added up by stack, within a budget of bytes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pilotlight_unwind::{Module, Modules};

use crate::stats::COUNTERS;
use crate::threads::{BETWEEN_TICKS, UNSEEN};

/// Multiply and rotate, after rustc's FxHash: keys are small integers of our own making.
#[derive(Default)]
pub(crate) struct Fast(u64);

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Fast>>;

/// Index into [`Aggregate::frames`].
pub(crate) type FrameId = u32;

/// One place in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    /// An instruction in a module; index into [`Aggregate::modules`].
    Code { module: u32, address: u64 },
    /// An instruction in no known module: code made at run time, or loaded a moment ago.
    Unknown { address: u64 },
    /// The stack was deeper than what was kept.
    Truncated,
    /// CPU time of a thread that ended before a tick delivered its timer.
    BetweenTicks,
    /// CPU time of threads that nobody saw.
    Unseen,
    /// CPU time of threads that block the signal.
    Blocked,
    /// CPU time of samples for which the ring or the scratch buffers had no room.
    Dropped,
    /// Stacks that did not fit the budget.
    OverBudget,
}

/// A node of the tree of stacks: children hang under their caller.
struct Node {
    parent: u32,
    frame: FrameId,
    samples: u64,
    expiries: u64,
}

/// What one capture collects.
pub(crate) struct Aggregate {
    /// Node 0 is the root, above all threads.
    nodes: Vec<Node>,
    children: FastMap<(u32, FrameId), u32>,
    frames: Vec<Frame>,
    frame_ids: FastMap<Frame, FrameId>,
    modules: Vec<Arc<Module>>,
    /// Frames by address, for one generation of modules.
    addresses: FastMap<u64, FrameId>,
    generation: u32,
    budget_bytes: usize,
}

/// Bytes of a node with its share of the index, and of a frame with its.
const NODE_BYTES: usize = size_of::<Node>() + 2 * size_of::<((u32, u32), u32)>();
const FRAME_BYTES: usize = 4 * size_of::<Frame>() + 2 * size_of::<(u64, u32)>();

impl Aggregate {
    pub(crate) fn new(budget_bytes: usize) -> Aggregate {
        let root = Node {
            parent: 0,
            frame: 0,
            samples: 0,
            expiries: 0,
        };
        Aggregate {
            nodes: vec![root],
            children: FastMap::default(),
            frames: Vec::new(),
            frame_ids: FastMap::default(),
            modules: Vec::new(),
            addresses: FastMap::default(),
            generation: 0,
            budget_bytes,
        }
    }

    /// Adds one record; `addresses` leaf first, as the handler wrote them.
    pub(crate) fn add(
        &mut self,
        addresses: &[u64],
        truncated: bool,
        expiries: u64,
        modules: &Modules,
        known: &[Arc<Module>],
        generation: u32,
    ) {
        if self.generation != generation {
            self.addresses.clear();
            self.generation = generation;
        }
        let mut node = 0;
        if truncated {
            let cut = self.frame_id(Frame::Truncated);
            node = self.child(node, cut);
        }
        for &address in addresses.iter().rev() {
            if self.is_full() {
                COUNTERS.over_budget.add(1);
                return self.add_pseudo(Frame::OverBudget, expiries);
            }
            let frame = self.frame_at(address, modules, known);
            node = self.child(node, frame);
        }
        self.count(node, expiries);
    }

    /// Adds samples that have no stack but a reason.
    pub(crate) fn add_pseudo(&mut self, frame: Frame, expiries: u64) {
        let frame = self.frame_id(frame);
        let node = self.child(0, frame);
        self.count(node, expiries);
    }

    fn count(&mut self, node: u32, expiries: u64) {
        let node = &mut self.nodes[node as usize];
        node.samples += 1;
        node.expiries += expiries;
    }

    fn is_full(&self) -> bool {
        self.nodes.len() * NODE_BYTES + self.frames.len() * FRAME_BYTES > self.budget_bytes
    }

    fn child(&mut self, parent: u32, frame: FrameId) -> u32 {
        let fresh = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(fresh);
        if node == fresh {
            self.nodes.push(Node {
                parent,
                frame,
                samples: 0,
                expiries: 0,
            });
        }
        node
    }

    fn frame_at(&mut self, address: u64, modules: &Modules, known: &[Arc<Module>]) -> FrameId {
        if let Some(&frame) = self.addresses.get(&address) {
            return frame;
        }
        let frame = match address {
            BETWEEN_TICKS => Frame::BetweenTicks,
            UNSEEN => Frame::Unseen,
            _ => match modules.find(address) {
                Some(module) => Frame::Code {
                    module: self.module_id(module, known),
                    address,
                },
                None => Frame::Unknown { address },
            },
        };
        let frame = self.frame_id(frame);
        self.addresses.insert(address, frame);
        frame
    }

    /// The same module in a later snapshot keeps its id.
    fn module_id(&mut self, module: &Module, known: &[Arc<Module>]) -> u32 {
        let same = |m: &Arc<Module>| Arc::ptr_eq(&m.table, &module.table);
        if let Some(id) = self.modules.iter().position(same) {
            return id as u32;
        }
        let shared = known.iter().find(|m| same(m)).cloned();
        self.modules
            .push(shared.unwrap_or_else(|| Arc::new(module.clone())));
        self.modules.len() as u32 - 1
    }

    fn frame_id(&mut self, frame: Frame) -> FrameId {
        let fresh = self.frames.len() as u32;
        let id = *self.frame_ids.entry(frame).or_insert(fresh);
        if id == fresh {
            self.frames.push(frame);
        }
        id
    }

    pub(crate) fn modules(&self) -> &[Arc<Module>] {
        &self.modules
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Each distinct stack with its frames, leaf first, and its samples and expiries.
    pub(crate) fn each_stack(&self, mut visit: impl FnMut(&[FrameId], u64, u64)) {
        let mut stack = Vec::new();
        for node in &self.nodes {
            if node.samples == 0 {
                continue;
            }
            stack.clear();
            let mut at = node;
            loop {
                stack.push(at.frame);
                if at.parent == 0 {
                    break;
                }
                at = &self.nodes[at.parent as usize];
            }
            visit(&stack, node.samples, node.expiries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(aggregate: &Aggregate) -> Vec<(Vec<Frame>, u64, u64)> {
        let mut all = Vec::new();
        aggregate.each_stack(|ids, samples, expiries| {
            let frames = ids
                .iter()
                .map(|&id| aggregate.frames()[id as usize])
                .collect();
            all.push((frames, samples, expiries));
        });
        all
    }

    #[test]
    fn equal_stacks_add_up_and_a_prefix_is_a_stack_of_its_own() {
        let none = Modules::new(Vec::new());
        let mut aggregate = Aggregate::new(1 << 20);
        aggregate.add(&[30, 20, 10], false, 1, &none, &[], 1);
        aggregate.add(&[30, 20, 10], false, 4, &none, &[], 1);
        aggregate.add(&[20, 10], false, 2, &none, &[], 1);
        aggregate.add(&[10], true, 1, &none, &[], 1);
        let code = |address| Frame::Unknown { address };
        let expected = [
            (vec![code(20), code(10)], 1, 2),
            (vec![code(30), code(20), code(10)], 2, 5),
            (vec![code(10), Frame::Truncated], 1, 1),
        ];
        assert_eq!(stacks(&aggregate), expected);
    }

    #[test]
    fn what_does_not_fit_the_budget_is_counted_not_lost() {
        let none = Modules::new(Vec::new());
        let mut aggregate = Aggregate::new(20_000);
        for n in 0..1000 {
            aggregate.add(&[n * 7 + 10, n * 3 + 10], false, 2, &none, &[], 1);
        }
        let stacks = stacks(&aggregate);
        assert_eq!(stacks.iter().map(|stack| stack.1).sum::<u64>(), 1000);
        assert_eq!(stacks.iter().map(|stack| stack.2).sum::<u64>(), 2000);
        let over = stacks
            .iter()
            .find(|stack| stack.0 == [Frame::OverBudget])
            .unwrap();
        assert!(over.1 > 500, "{over:?}");
    }
}
