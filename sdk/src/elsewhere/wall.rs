//! Nobody looks at threads from outside here.

use std::sync::Arc;

#[path = "../wall/settings.rs"]
mod settings;

pub(crate) use settings::Settings;

use crate::Error;
use crate::context::Context;
use crate::fork::{Held, Lock};
use crate::modules::Generation;

/// Stacks of other threads can be read.
pub(crate) const READS_STACKS: bool = false;
/// Threads can be looked at.
pub(crate) const SEES_THREADS: bool = false;

/// What was seen of threads: nothing ever.
pub(crate) struct Seen {
    pub(crate) frames: Box<[u64]>,
    pub(crate) truncated: bool,
    pub(crate) generation: Arc<Generation>,
    pub(crate) context: Context,
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

/// A thread and where it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadStack {
    pub(crate) tid: i32,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) frames: Vec<u64>,
    pub(crate) truncated: bool,
}

pub(crate) struct Wall(());

impl Wall {
    pub(crate) fn start(_: &Settings, _max_depth: usize, _: &Arc<Generation>) -> Wall {
        Wall(())
    }

    pub(crate) fn publish(&self, _generation: &Arc<Generation>) {}
}

pub(crate) fn settle() {}

pub(crate) fn take(_all: bool) -> Vec<Seen> {
    Vec::new()
}

pub(crate) fn unanswered_ns() -> u64 {
    0
}

/// Reads nothing.
pub(crate) fn read_memory(_address: u64, _to: &mut [u8]) -> usize {
    0
}

pub(crate) fn stacks() -> Result<Vec<ThreadStack>, Error> {
    Ok(Vec::new())
}

/// Held around a fork: there is nothing to hold.
pub(crate) fn lock() -> &'static dyn Held {
    static NOTHING: Lock<()> = Lock::new(());
    &NOTHING
}

pub(crate) fn forget_in_child() {}
