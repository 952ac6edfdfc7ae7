//! Samples added up by stack, within a budget of bytes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pilotlight_unwind::Module;

use crate::modules::Generation;
use crate::slots::{BETWEEN_TICKS, UNSEEN};
use crate::stats::COUNTERS;
use crate::tags::{Tag, TagId, Tags};

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
    /// Time of threads that ran, but not while the kernel's clock ticked.
    Brief,
    /// CPU time of threads that block the signal.
    Blocked,
    /// CPU time of samples for which the ring or the scratch buffers had no room.
    Dropped,
    /// Stacks that did not fit the budget.
    OverBudget,
}

/// Samples of one stack.
pub(crate) struct Stack<'a> {
    /// Leaf first, as the handler wrote them.
    pub(crate) addresses: &'a [u64],
    pub(crate) truncated: bool,
    pub(crate) samples: u64,
    /// Timer expiries of CPU time, nanoseconds of wall-clock time.
    pub(crate) weight: u64,
    pub(crate) tag: Tag,
}

/// A node of the tree of stacks: children hang under their caller.
struct Node {
    parent: u32,
    frame: FrameId,
    samples: u64,
    weight: u64,
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
    tags: Tags,
    /// Samples and weight by node and tag, of samples that have one.
    tagged: FastMap<(u32, TagId), (u64, u64)>,
}

/// Bytes of a node with its share of the index, and of a frame with its.
const NODE_BYTES: usize = size_of::<Node>() + 2 * size_of::<((u32, u32), u32)>();
const FRAME_BYTES: usize = 4 * size_of::<Frame>() + 2 * size_of::<(u64, u32)>();
/// Bytes of a sum by node and tag.
const TAGGED_BYTES: usize = 2 * size_of::<((u32, TagId), (u64, u64))>();

impl Aggregate {
    pub(crate) fn new(budget_bytes: usize) -> Aggregate {
        let root = Node {
            parent: 0,
            frame: 0,
            samples: 0,
            weight: 0,
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
            tags: Tags::default(),
            tagged: FastMap::default(),
        }
    }

    /// Adds what was seen while `generation` was loaded.
    pub(crate) fn add(&mut self, stack: &Stack<'_>, generation: &Generation) {
        let weights = (stack.samples, stack.weight);
        let has_room = !self.is_full();
        let tag = self.tags.id(stack.tag, has_room);
        if self.generation != generation.number {
            self.addresses.clear();
            self.generation = generation.number;
        }
        let mut node = 0;
        if stack.truncated {
            let cut = self.frame_id(Frame::Truncated);
            node = self.child(node, cut);
        }
        for &address in stack.addresses.iter().rev() {
            if self.is_full() {
                COUNTERS.over_budget.add(stack.samples);
                return self.add_pseudo(Frame::OverBudget, weights);
            }
            let frame = self.frame_at(address, generation);
            node = self.child(node, frame);
        }
        if tag == 0 {
            return self.count(node, weights);
        }
        let sum = self.tagged.entry((node, tag)).or_default();
        *sum = (sum.0 + weights.0, sum.1 + weights.1);
    }

    /// Adds samples that have no stack but a reason.
    pub(crate) fn add_pseudo(&mut self, frame: Frame, weights: (u64, u64)) {
        let frame = self.frame_id(frame);
        let node = self.child(0, frame);
        self.count(node, weights);
    }

    fn count(&mut self, node: u32, (samples, weight): (u64, u64)) {
        let node = &mut self.nodes[node as usize];
        node.samples += samples;
        node.weight += weight;
    }

    fn is_full(&self) -> bool {
        let bytes = self.nodes.len() * NODE_BYTES
            + self.frames.len() * FRAME_BYTES
            + self.tagged.len() * TAGGED_BYTES
            + self.tags.bytes();
        bytes > self.budget_bytes
    }

    fn child(&mut self, parent: u32, frame: FrameId) -> u32 {
        let fresh = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(fresh);
        if node == fresh {
            self.nodes.push(Node {
                parent,
                frame,
                samples: 0,
                weight: 0,
            });
        }
        node
    }

    fn frame_at(&mut self, address: u64, generation: &Generation) -> FrameId {
        if let Some(&frame) = self.addresses.get(&address) {
            return frame;
        }
        let frame = match address {
            BETWEEN_TICKS => Frame::BetweenTicks,
            UNSEEN => Frame::Unseen,
            _ => match generation.modules.find(address) {
                Some(module) => Frame::Code {
                    module: self.module_id(module, &generation.known),
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

    pub(crate) fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Each distinct stack and tag: frames, leaf first, tag, samples and weight.
    pub(crate) fn each_stack(&self, mut visit: impl FnMut(&[FrameId], TagId, u64, u64)) {
        let mut stack = Vec::new();
        let untagged = self.nodes.iter().enumerate();
        let untagged = untagged.map(|(node, sum)| (node, 0, sum.samples, sum.weight));
        let tagged = self.tagged.iter();
        let tagged = tagged.map(|(&(node, tag), sum)| (node as usize, tag, sum.0, sum.1));
        for (node, tag, samples, weight) in untagged.chain(tagged) {
            if samples > 0 {
                self.frames_of(node, &mut stack);
                visit(&stack, tag, samples, weight);
            }
        }
    }

    /// Frames from a node up to the root.
    fn frames_of(&self, node: usize, stack: &mut Vec<FrameId>) {
        stack.clear();
        let mut at = &self.nodes[node];
        loop {
            stack.push(at.frame);
            if at.parent == 0 {
                break;
            }
            at = &self.nodes[at.parent as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;

    fn stacks(aggregate: &Aggregate) -> Vec<(Vec<Frame>, u64, u64)> {
        let mut all = Vec::new();
        aggregate.each_stack(|ids, _, samples, expiries| {
            let frames = ids
                .iter()
                .map(|&id| aggregate.frames()[id as usize])
                .collect();
            all.push((frames, samples, expiries));
        });
        all
    }

    fn one(addresses: &[u64], truncated: bool, weight: u64) -> Stack<'_> {
        Stack {
            addresses,
            truncated,
            samples: 1,
            weight,
            tag: Tag::default(),
        }
    }

    #[test]
    fn a_stack_under_two_labels_is_two_rows() {
        let none = Generation::new(1, Vec::new());
        let mut aggregate = Aggregate::new(1 << 20);
        let sets = [crate::labels! { "n" => 1 }, crate::labels! { "n" => 2 }];
        for (at, weight) in [(0, 1), (1, 10), (0, 100)] {
            let tag = Tag {
                context: Context::new(sets[at].id(), 0),
                trace: None,
            };
            let stack = one(&[20, 10], false, weight);
            aggregate.add(&Stack { tag, ..stack }, &none);
        }
        aggregate.add(&one(&[20, 10], false, 1000), &none);
        let mut rows = Vec::new();
        aggregate
            .each_stack(|ids, tag, samples, weight| rows.push((ids.len(), tag, samples, weight)));
        rows.sort_unstable();
        assert_eq!(rows, [(2, 0, 1, 1000), (2, 1, 2, 101), (2, 2, 1, 10)]);
    }

    #[test]
    fn equal_stacks_add_up_and_a_prefix_is_a_stack_of_its_own() {
        let none = Generation::new(1, Vec::new());
        let mut aggregate = Aggregate::new(1 << 20);
        aggregate.add(&one(&[30, 20, 10], false, 1), &none);
        aggregate.add(&one(&[30, 20, 10], false, 4), &none);
        aggregate.add(&one(&[20, 10], false, 2), &none);
        aggregate.add(&one(&[10], true, 1), &none);
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
        let none = Generation::new(1, Vec::new());
        let mut aggregate = Aggregate::new(20_000);
        for n in 0..1000 {
            aggregate.add(&one(&[n * 7 + 10, n * 3 + 10], false, 2), &none);
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
