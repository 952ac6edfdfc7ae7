//! The list of live spanned futures. An entry is part of its future, which is pinned once it was
//! polled; it links itself in at the first poll and out when it ends.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::marker::PhantomPinned;
use std::ptr::null;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Task, TaskState, nodes, waits};
use crate::Labels;
use crate::context::{self, Context};
use crate::fork::{Held, Lock};

/// Values of [`Entry::waits_since`] that are no time.
const RUNNING: u64 = 0;
/// Waits, but its inner spans are what is waited for.
const INNER_WAITS: u64 = 1;
/// Waits since nobody knows when: `await` was off.
const UNTIMED: u64 = 2;

/// What the list knows of a spanned future.
#[derive(Debug)]
pub(crate) struct Entry {
    links: Links,
    /// 0 until the first poll.
    id: AtomicU64,
    /// Entry whose poll ran at this one's first, 0 for none.
    parent: AtomicU64,
    context: AtomicU64,
    began_ns: AtomicU64,
    /// When the last poll ended, or one of the values above.
    waits_since: AtomicU64,
    /// The entry at which this one counts as an inner one that waits. Only for the polling thread.
    counted_at: Cell<u64>,
    /// Inner entries that wait. Only for the polling thread.
    inner_waiting: Cell<u32>,
    _pinned: PhantomPinned,
}

/// Neighbours in the list of a shard; only touched under its lock.
#[derive(Debug)]
struct Links {
    next: Cell<*const Entry>,
    before: Cell<*const Entry>,
}

struct Shard {
    first: *const Entry,
}

// SAFETY: entries are reached under the lock only, and leave the list before they end.
unsafe impl Send for Shard {}

const SHARDS: usize = 16;
static LIVE: [Lock<Shard>; SHARDS] = [const { Lock::new(Shard { first: null() }) }; SHARDS];
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// Entries below are those of a parent, and in no list.
static FIRST_ID: AtomicU64 = AtomicU64::new(1);

fn shard(id: u64) -> MutexGuard<'static, Shard> {
    LIVE[id as usize % SHARDS].lock()
}

/// Held around a fork.
pub(super) fn lock() -> &'static dyn Held {
    &LIVE
}

/// A forked child starts with an empty list: futures on stacks of threads that it does not have are
/// nowhere any more.
pub(crate) fn forget_in_child() {
    FIRST_ID.store(NEXT_ID.load(Ordering::Relaxed), Ordering::Relaxed);
    for shard in &LIVE {
        shard.lock().first = null();
    }
}

impl Entry {
    pub(super) const fn new() -> Entry {
        Entry {
            links: Links {
                next: Cell::new(null()),
                before: Cell::new(null()),
            },
            id: AtomicU64::new(0),
            parent: AtomicU64::new(0),
            context: AtomicU64::new(0),
            began_ns: AtomicU64::new(0),
            waits_since: AtomicU64::new(RUNNING),
            counted_at: Cell::new(0),
            inner_waiting: Cell::new(0),
            _pinned: PhantomPinned,
        }
    }

    #[inline(always)]
    pub(super) fn is_live(&self) -> bool {
        self.id.load(Ordering::Relaxed) != 0
    }

    /// The span that this entry stands for.
    #[inline(always)]
    pub(super) fn node(&self) -> u32 {
        Context(self.context.load(Ordering::Relaxed)).node()
    }

    /// Puts the entry in the list.
    ///
    /// # Safety
    /// The entry does not move until [`Entry::end`] was called.
    pub(super) unsafe fn begin(&self, context: Context) {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // SAFETY: an entry whose poll is on this thread's stack.
        let outer = unsafe { context::current_entry().as_ref() };
        let parent = outer.map_or(0, |outer| outer.id.load(Ordering::Relaxed));
        self.parent.store(parent, Ordering::Relaxed);
        self.context.store(context.0, Ordering::Relaxed);
        self.began_ns.store(waits::now_ns(), Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
        let mut shard = shard(id);
        self.links.next.set(shard.first);
        // SAFETY: in the list, under its lock.
        if let Some(next) = unsafe { shard.first.as_ref() } {
            next.links.before.set(self);
        }
        shard.first = self;
    }

    /// Takes the entry out of the list; what it waited until now is counted.
    pub(super) fn end(&self) {
        let id = self.id.load(Ordering::Relaxed);
        if id == 0 {
            return;
        }
        self.wait_ends();
        // Not while others may find it in the list.
        if id >= FIRST_ID.load(Ordering::Relaxed) {
            self.unlink(id);
        }
        self.id.store(0, Ordering::Relaxed);
    }

    fn unlink(&self, id: u64) {
        let mut shard = shard(id);
        let (before, next) = (self.links.before.get(), self.links.next.get());
        // SAFETY: neighbours in the list, under its lock.
        match unsafe { before.as_ref() } {
            Some(before) => before.links.next.set(next),
            None => shard.first = next,
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.links.before.set(before);
        }
    }

    /// A poll returned without an end, in the poll of `outer` if that is not null.
    #[inline(always)]
    pub(super) fn wait_begins(&self, outer: *mut Entry) {
        if !waits::is_enabled() {
            return self.waits_since.store(UNTIMED, Ordering::Relaxed);
        }
        // Only the innermost span waits; those around it wait for it.
        let since = match self.inner_waiting.get() {
            0 => waits::now_ns(),
            _ => INNER_WAITS,
        };
        self.waits_since.store(since, Ordering::Relaxed);
        // SAFETY: an entry whose poll is on this thread's stack.
        if let Some(outer) = unsafe { outer.as_ref() } {
            outer.inner_waiting.set(outer.inner_waiting.get() + 1);
            self.counted_at.set(outer.id.load(Ordering::Relaxed));
        }
    }

    /// A poll begins, or the future is dropped.
    #[inline(always)]
    pub(super) fn wait_ends(&self) {
        let since = self.waits_since.load(Ordering::Relaxed);
        if since == RUNNING {
            return;
        }
        self.waits_since.store(RUNNING, Ordering::Relaxed);
        if since > UNTIMED {
            waits::add(self.node(), waits::now_ns().saturating_sub(since));
        }
        let counted_at = self.counted_at.replace(0);
        if counted_at == 0 {
            return;
        }
        // SAFETY: an entry whose poll is on this thread's stack.
        let outer = unsafe { context::current_entry().as_ref() };
        // When the future was moved out of the outer one, that one's waits are no longer known.
        if let Some(outer) = outer.filter(|o| o.id.load(Ordering::Relaxed) == counted_at) {
            outer
                .inner_waiting
                .set(outer.inner_waiting.get().saturating_sub(1));
        }
    }

    fn seen(&self) -> Seen {
        Seen {
            id: self.id.load(Ordering::Relaxed),
            parent: self.parent.load(Ordering::Relaxed),
            context: Context(self.context.load(Ordering::Relaxed)),
            began_ns: self.began_ns.load(Ordering::Relaxed),
            waits_since: self.waits_since.load(Ordering::Relaxed),
        }
    }
}

/// A copy of an entry.
struct Seen {
    id: u64,
    parent: u64,
    context: Context,
    began_ns: u64,
    waits_since: u64,
}

/// All entries, each shard at a moment of its own.
fn all() -> Vec<Seen> {
    let mut seen = Vec::new();
    for shard in 0..SHARDS as u64 {
        let shard = self::shard(shard);
        let mut at = shard.first;
        // SAFETY: in the list, under its lock.
        while let Some(entry) = unsafe { at.as_ref() } {
            seen.push(entry.seen());
            at = entry.links.next.get();
        }
    }
    seen
}

/// Waits that last now: node, and nanoseconds so far.
pub(super) fn waiting() -> Vec<(u32, u64)> {
    let all = all();
    let now = waits::now_ns();
    let timed = all.iter().filter(|seen| seen.waits_since > UNTIMED);
    timed
        .map(|seen| (seen.context.node(), now.saturating_sub(seen.waits_since)))
        .collect()
}

/// See [`super::tasks`].
pub(super) fn tasks() -> Vec<Task> {
    let all = all();
    let now = waits::now_ns();
    let parents: HashMap<u64, u64> = all.iter().map(|seen| (seen.id, seen.parent)).collect();
    let outer: HashSet<u64> = all.iter().map(|seen| seen.parent).collect();
    let root_of = |id: u64| {
        let outer = |id: &u64| parents.get(id).copied().filter(|p| parents.contains_key(p));
        std::iter::successors(Some(id), outer).last().unwrap_or(id)
    };
    let since = |ns: u64| Duration::from_nanos(now.saturating_sub(ns));
    let innermost = all.iter().filter(|seen| !outer.contains(&seen.id));
    let mut tasks: Vec<Task> = innermost
        .map(|seen| Task {
            id: seen.id,
            root: root_of(seen.id),
            stack: nodes::path(seen.context.node()),
            age: since(seen.began_ns),
            state: match seen.waits_since {
                RUNNING => TaskState::Running,
                INNER_WAITS | UNTIMED => TaskState::Waiting(None),
                ns => TaskState::Waiting(Some(since(ns))),
            },
            labels: Labels::of_id(seen.context.labels()),
        })
        .collect();
    tasks.sort_by_key(|task| (std::cmp::Reverse(task.age), task.id));
    tasks
}
