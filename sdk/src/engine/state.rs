//! What captures and the background thread share.

use std::collections::HashMap;

use crate::aggregate::{Aggregate, Frame, Stack};
use crate::context::Context;
use crate::kind::{Kinds, Sampled};
use crate::labels::Labels;
use crate::tags::Tag;
use crate::wall;

#[derive(Default)]
pub(super) struct State {
    pub(super) captures: HashMap<u64, Running>,
    /// What is sampled now.
    pub(super) armed: Kinds,
    /// The ring was drained this often since armed.
    pub(super) drains: u64,
    /// A capture ends: it gets what no sample accounts for so far.
    pub(super) settle: bool,
    pub(super) stop: bool,
}

/// A capture in progress.
pub(super) struct Running {
    pub(super) kind: Sampled,
    /// Only what has this label.
    pub(super) label: Option<(String, String)>,
    pub(super) aggregate: Aggregate,
}

impl Running {
    /// What ran or waited under these labels is counted.
    pub(super) fn wants(&self, context: Context) -> bool {
        let Some((key, value)) = &self.label else {
            return true;
        };
        let labels = Labels::of_id(context.labels());
        labels.iter().any(|label| label == (key, value))
    }

    pub(super) fn add_unanswered(&mut self, ns: u64) {
        // Nobody knows under which labels it ran.
        if ns > 0 && self.label.is_none() {
            self.aggregate.add_pseudo(Frame::Brief, (1, ns));
        }
    }
}

impl State {
    /// What captures want to be sampled.
    pub(super) fn wanted(&self) -> Kinds {
        self.captures.values().map(|running| running.kind).collect()
    }

    /// Adds what the sampler saw to the captures that want it; with `all`, also what threads that
    /// still wait have cost so far.
    pub(super) fn add_seen(&mut self, all: bool) {
        for seen in wall::take(all) {
            let stack = Stack {
                addresses: &seen.frames,
                truncated: seen.truncated,
                samples: seen.count,
                weight: seen.ns,
                tag: Tag {
                    context: seen.context,
                    trace: None,
                },
            };
            let is_wanted = |r: &&mut Running| r.kind.is_wall() && r.wants(seen.context);
            let wall = self.captures.values_mut().filter(is_wanted);
            wall.for_each(|running| running.aggregate.add(&stack, &seen.generation));
        }
    }

    pub(super) fn of_kind(&mut self, kind: Sampled) -> impl Iterator<Item = &mut Aggregate> {
        let all = self.captures.values_mut();
        all.filter(move |running| running.kind == kind)
            .map(|running| &mut running.aggregate)
    }
}
