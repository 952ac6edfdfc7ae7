//! Samples added up by stack, within a budget of bytes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pilotlight_unwind::Module;

use crate::modules::Generation;
use crate::slots::{BETWEEN_TICKS, UNSEEN};
use crate::stats::COUNTERS;
use crate::tags::{Tag, TagId, Tags};
pub(crate) use crate::tree::FrameId;
use crate::tree::{NODE_BYTES, Tree};

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

/// Bytes that all captures of a process hold together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    limit_bytes: usize,
    used_bytes: Arc<AtomicUsize>,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Budget {
        Budget {
            limit_bytes,
            used_bytes: Arc::default(),
        }
    }

    /// As much for a forked child, nothing of it used.
    pub(crate) fn again(&self) -> Budget {
        Budget::new(self.limit_bytes)
    }
}

/// What one capture collects.
pub(crate) struct Aggregate {
    tree: Tree,
    /// Samples and weight by node and tag.
    sums: FastMap<(u32, TagId), (u64, u64)>,
    frames: Vec<Frame>,
    frame_ids: FastMap<Frame, FrameId>,
    modules: Vec<Arc<Module>>,
    /// Frames by address, for one generation of modules.
    addresses: FastMap<u64, FrameId>,
    generation: u32,
    budget: Budget,
    /// What the budget was told of.
    told_bytes: usize,
    tags: Tags,
}

/// The most that a frame and a sum cost with their shares of the indexes, also while those grow.
const FRAME_BYTES: usize = 160;
const SUM_BYTES: usize = 86;

impl Aggregate {
    pub(crate) fn new(budget: Budget) -> Aggregate {
        Aggregate {
            tree: Tree::new(),
            sums: FastMap::default(),
            frames: Vec::new(),
            frame_ids: FastMap::default(),
            modules: Vec::new(),
            addresses: FastMap::default(),
            generation: 0,
            budget,
            told_bytes: 0,
            tags: Tags::default(),
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
            node = self.tree.child(node, cut);
        }
        for &address in stack.addresses.iter().rev() {
            if self.is_full() {
                COUNTERS.over_budget.add(stack.samples);
                return self.add_pseudo(Frame::OverBudget, weights);
            }
            let frame = self.frame_at(address, generation);
            node = self.tree.child(node, frame);
        }
        self.count(node, tag, weights);
    }

    /// Adds samples that have no stack but a reason.
    pub(crate) fn add_pseudo(&mut self, frame: Frame, weights: (u64, u64)) {
        let frame = self.frame_id(frame);
        let node = self.tree.child(0, frame);
        self.count(node, 0, weights);
    }

    fn count(&mut self, node: u32, tag: TagId, (samples, weight): (u64, u64)) {
        let sum = self.sums.entry((node, tag)).or_default();
        *sum = (sum.0 + samples, sum.1 + weight);
    }

    fn is_full(&mut self) -> bool {
        let bytes = self.tree.len() * NODE_BYTES
            + self.frames.len() * FRAME_BYTES
            + self.sums.len() * SUM_BYTES
            + self.tags.bytes();
        let used = &self.budget.used_bytes;
        let told_bytes = std::mem::replace(&mut self.told_bytes, bytes);
        used.fetch_add(bytes - told_bytes, Ordering::Relaxed);
        used.load(Ordering::Relaxed) > self.budget.limit_bytes
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
        let mut sums: Vec<_> = self.sums.iter().collect();
        sums.sort_unstable_by_key(|(key, _)| **key);
        let mut stack = Vec::new();
        for (&(node, tag), &(samples, weight)) in sums {
            if samples > 0 {
                self.tree.frames_of(node, &mut stack);
                visit(&stack, tag, samples, weight);
            }
        }
    }
}

impl Drop for Aggregate {
    fn drop(&mut self) {
        let used = &self.budget.used_bytes;
        used.fetch_sub(self.told_bytes, Ordering::Relaxed);
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
        let mut aggregate = Aggregate::new(Budget::new(1 << 20));
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
        let mut aggregate = Aggregate::new(Budget::new(1 << 20));
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
        let mut aggregate = Aggregate::new(Budget::new(40_000));
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
    #[test]
    fn captures_share_a_budget_and_give_back_their_part() {
        let none = Generation::new(1, Vec::new());
        let budget = Budget::new(200_000);
        let stacks_kept = || {
            let mut aggregate = Aggregate::new(budget.clone());
            for n in 0..1000 {
                aggregate.add(&one(&[n * 7 + 10, n * 3 + 10], false, 2), &none);
            }
            (stacks(&aggregate).len(), aggregate)
        };
        let (alone, first) = stacks_kept();
        let (beside, second) = stacks_kept();
        assert!(alone > 300 && beside < 10, "{alone} {beside}");
        drop((first, second));
        assert_eq!(stacks_kept().0, alone);
    }
}
