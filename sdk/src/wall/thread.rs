//! A thread as the sampler knows it.

use std::fs::File;
use std::sync::Arc;

use super::Seen;
use super::ask::{Asked, Slots};
use crate::context::Context;
use crate::modules::Generation;
use crate::stats::COUNTERS;

/// A thread that is looked at.
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) clock_ns: u64,
    /// When it was last looked at; 0 for a thread that started a moment ago.
    pub(super) looked_ns: u64,
    pub(super) stand: Option<Stand>,
    pub(super) asked: Option<Asked>,
    /// Where it was woken to tell its registers: not again for the same wait.
    pub(super) woken_at: u64,
    pub(super) file: Option<File>,
}

/// Where a waiting thread stands, and what that has cost and not been taken yet.
pub(super) struct Stand {
    pub(super) frames: Box<[u64]>,
    pub(super) truncated: bool,
    pub(super) generation: Arc<Generation>,
    pub(super) context: Context,
    pub(super) count: u64,
    pub(super) ns: u64,
}

impl Thread {
    pub(super) fn ask(&mut self, slots: &mut Slots, how: impl FnOnce(&mut Asked) -> bool) {
        if self.asked.is_none() {
            self.asked = Asked::new(slots);
        }
        if !self.asked.as_mut().is_some_and(how) {
            COUNTERS.wall_refused.add(1);
        }
    }
}

impl Stand {
    /// What was counted here and not taken yet.
    pub(super) fn take(&mut self) -> Option<Seen> {
        let (count, ns) = (
            std::mem::take(&mut self.count),
            std::mem::take(&mut self.ns),
        );
        (count > 0).then(|| Seen {
            frames: self.frames.clone(),
            truncated: self.truncated,
            generation: Arc::clone(&self.generation),
            context: self.context,
            count,
            ns,
        })
    }

    pub(super) fn seen(self) -> Option<Seen> {
        (self.count > 0).then_some(Seen {
            frames: self.frames,
            truncated: self.truncated,
            generation: self.generation,
            context: self.context,
            count: self.count,
            ns: self.ns,
        })
    }
}
