//! Logical spans: where a task is, in words of the program rather than of the machine. They make the
//! stacks of `await` (where tasks wait) and `tasks` (which tasks live).
//!
//! ```
//! use pilotlight::SpanExt;
//! # async fn query() {}
//! async fn checkout() {
//!     query().span("query").await;
//! }
//! # let task = checkout();
//! ```
//! With the feature `macros`, `#[pilotlight::span]` on a function, async or not, does the same.
//!
//! The parent of a span is the one that runs where the future is polled first. A task of its own
//! starts without one; [`LabelExt::in_current_context`](crate::LabelExt::in_current_context) gives it
//! that of the code that spawns it.
//!
//! # Cost and bounds
//! A poll costs a few stores, and two readings of the clock while `await` is on and the future is the
//! one that waits. The first poll puts the future in the list of live tasks under a lock. 16,384
//! different stacks are told apart, 64 spans deep; what does not fit is under `[overflow]` or counted
//! at its caller.
//!
//! A forked child has the spans of the thread that forked, and lists the tasks that begin in it.

mod entry;
mod future;
mod nodes;
mod report;
pub(crate) mod waits;

use std::fmt;
use std::time::Duration;

use crate::context::{self, Context, Entered as EnteredContext};
use crate::fork::Held;

pub(crate) use entry::Entry;
pub use future::{SpanExt, Spanned};
pub use nodes::Site;
pub(crate) use nodes::path;
#[cfg(feature = "tracing")]
pub(crate) use nodes::site_at;
pub use report::{await_profile, tasks_profile, tasks_text};

/// A spanned future that was polled, and has neither ended nor been dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task {
    /// Unique in the process.
    pub id: u64,
    /// The outermost spanned future that this one is part of; itself when it is that one.
    pub root: u64,
    /// Logical stack, outermost first.
    pub stack: Vec<Frame>,
    /// Since the first poll.
    pub age: Duration,
    /// What it does.
    pub state: TaskState,
    /// Labels that held at its first poll.
    pub labels: crate::Labels,
}

/// One logical span of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Name as given in the program.
    pub name: &'static str,
    /// Source file of the span.
    pub file: &'static str,
    /// Line in it.
    pub line: u32,
}

/// What a task does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState {
    /// Being polled.
    Running,
    /// Not being polled, for so long; no time while `await` is off.
    Waiting(Option<Duration>),
}

/// Held around a fork.
pub(crate) fn locks() -> [&'static dyn Held; 4] {
    let [tree, sites] = nodes::locks();
    [tree, sites, entry::lock(), waits::lock()]
}

pub(crate) use entry::forget_in_child;

/// The live tasks: of futures that are nested, only the innermost. Oldest first.
#[must_use]
pub fn tasks() -> Vec<Task> {
    entry::tasks()
}

/// The logical stack of the calling thread, outermost first.
#[must_use]
pub fn current() -> Vec<Frame> {
    path(context::current().node())
}

/// A span of the calling thread, until it is dropped. See [`enter`].
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct SpanGuard {
    _context: EnteredContext,
}

/// Begins a span in this thread, for code without futures.
#[track_caller]
pub fn enter(name: &'static str) -> SpanGuard {
    enter_site(nodes::site(name, std::panic::Location::caller()))
}

/// For `#[pilotlight::span]`.
#[doc(hidden)]
#[inline]
pub fn enter_site(site: &'static Site) -> SpanGuard {
    let outer = context::current();
    let node = site.under(outer.node());
    SpanGuard {
        _context: EnteredContext::new(Context::new(outer.labels(), node)),
    }
}

/// Counts time between polls from now on, or no longer. Off by default.
pub fn set_await_enabled(on: bool) {
    waits::set_enabled(on);
}

/// Whether time between polls is counted.
#[must_use]
pub fn is_await_enabled() -> bool {
    waits::is_enabled()
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.file, self.line)
    }
}
