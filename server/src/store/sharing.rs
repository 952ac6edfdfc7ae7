//! Several servers over one object store: one at a time merges and deletes (see [`super::lease`]), and
//! each learns from listings what the others wrote.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::catalog::Segment;
use super::identities::ids_of;
use super::lease::{self, Lease, Now};
use super::load::LoadError;
use super::maintain::Maintainer;
use super::recover;
use crate::log;

/// Columns without a manifest are deleted when they have been seen for so long.
const ORPHAN_NS: i64 = 6 * 3600 * 1_000_000_000;
/// A file counts as damaged when so many looks in a row found it so: a listing is no moment in time,
/// and may show a manifest without the columns that were written before it.
const LOOKS: u32 = 3;

/// What is known of the other servers.
#[derive(Default)]
pub struct Sharing {
    owner: OnceLock<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lease: Lease,
    /// Whether the log was told whose turn it is, and what.
    told: Option<bool>,
    /// When the store was listed last.
    looked_ns: Option<i64>,
    /// Set once the store was listed after this server's turn began: a block of another that turns
    /// up later came too late.
    settled: bool,
    /// Blocks of that listing that could not be read yet.
    admitted: HashSet<String>,
    /// Columns without a manifest, and when they were first seen.
    orphans: HashMap<String, i64>,
    /// Files that could not be understood, and at how many looks.
    suspects: HashMap<String, u32>,
}

impl Maintainer {
    fn clocks(&self) -> Now {
        Now {
            steady_ns: self.env.steady_ns(),
            wall_ns: self.env.now_ns(),
        }
    }

    fn turn_ns(&self) -> i64 {
        self.rules.turn.as_nanos() as i64
    }

    fn owner(&self) -> u64 {
        *self.sharing.owner.get_or_init(|| self.env.random())
    }

    /// Whether this server is the one that merges and deletes; learns what others did meanwhile.
    pub(super) fn has_turn(&self) -> bool {
        if !self.disk.shared() {
            return true;
        }
        let now = self.clocks();
        let state = self.sharing.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let due = |at| now.steady_ns.saturating_sub(at) >= self.rules.refresh.as_nanos() as i64;
        if state.looked_ns.is_none_or(due) {
            self.look(&mut state, now);
            if state.lease.held() && !state.settled {
                // Nothing may be merged before what the last one wrote is known.
                state.settled = self.look(&mut state, now);
            }
        }
        self.tell(&mut state);
        state.lease.held() && state.settled
    }

    /// Lists the store and learns from it; `false` when that did not work.
    fn look(&self, state: &mut State, now: Now) -> bool {
        let before = self.catalog.names();
        let files = match self.disk.list() {
            Ok(files) => files,
            Err(error) => {
                log::warn("the store cannot be listed", &[("error", &error)]);
                return false;
            }
        };
        state.looked_ns = Some(now.steady_ns);
        let newest = lease::newest(&files);
        let (owner, turn_ns) = (self.owner(), self.turn_ns());
        let lease = &mut state.lease;
        lease.look(&*self.disk, owner, newest, now, turn_ns);
        state.settled &= state.lease.held();
        self.refresh(state, before, files, now.steady_ns);
        true
    }

    /// Says in the log and the status whose turn it is, when that changed.
    fn tell(&self, state: &mut State) {
        let held = state.lease.held();
        self.metrics.merging_elsewhere.store(!held, Relaxed);
        if state.told.replace(held) == Some(held) {
            return;
        }
        let what = match held {
            true => "of the servers over this store, this one merges and deletes",
            false => "another server over this store merges and deletes; this one does not",
        };
        log::info(what, &[]);
    }

    /// Whether what is written may take the place of its sources: asked right before the put that
    /// makes it count.
    pub(super) fn may_commit(&self) -> bool {
        if !self.disk.shared() {
            return true;
        }
        let state = self.sharing.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let (owner, turn_ns) = (self.owner(), self.turn_ns());
        let lease = &mut state.lease;
        lease.renew(&*self.disk, owner, self.clocks(), turn_ns)
    }

    /// Whether a put that makes a block count took so long that another server has taken over
    /// meanwhile, and may have written the same profiles.
    pub(super) fn overtaken(&self) -> bool {
        if !self.disk.shared() {
            return false;
        }
        let stale = {
            let state = self.sharing.state.lock();
            let state = state.unwrap_or_else(PoisonError::into_inner);
            state.lease.stale(self.clocks(), self.turn_ns())
        };
        stale && !self.may_commit()
    }

    /// Makes the catalog what the listing says. `before`: what was known when it was asked for.
    fn refresh(
        &self,
        state: &mut State,
        before: HashSet<String>,
        mut files: Vec<(String, u64)>,
        steady_ns: i64,
    ) {
        files.retain(|(name, _)| !name.ends_with(lease::END));
        let (columns, files): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(name, _)| recover::is_columns(name));
        let mut columns: HashMap<String, u64> = columns.into_iter().collect();
        let mut gone = before;
        let mut suspects = HashMap::new();
        let mut unread = HashSet::new();
        for (name, len) in files {
            gone.remove(&name);
            let own = recover::take_columns(&mut columns, &name);
            let looks = state.suspects.remove(&name).unwrap_or(0);
            // A start may have met it half listed.
            let again = looks < LOOKS && self.catalog.is_set_aside(&name);
            let new = again || !self.catalog.knows(&name);
            let late = new && state.settled && !again && !state.admitted.contains(&name);
            if new && !self.take_in(state, &name, len, own, looks, late) {
                suspects.insert(name.clone(), looks + 1);
            } else if looks >= LOOKS {
                suspects.insert(name.clone(), looks);
            }
            if new && !late && !self.catalog.knows(&name) {
                unread.insert(name);
            }
        }
        state.suspects = suspects;
        state.admitted = unread;
        self.catalog.forget(&gone);
        self.sweep(state, columns.into_keys().collect(), steady_ns);
    }

    /// Takes in what another server wrote; `false` when it cannot be understood, as `looks` times
    /// before. `late`: whether it turned up in the middle of this server's turn.
    fn take_in(
        &self,
        state: &mut State,
        name: &str,
        len: u64,
        own: [Option<u64>; 2],
        looks: u32,
        late: bool,
    ) -> bool {
        match recover::read(&*self.disk, name, len, own) {
            Ok((header, block)) => {
                let segment = Segment {
                    name: name.to_owned(),
                    header,
                    block,
                };
                if let (Some(writer), None) = (&self.writer, &segment.block) {
                    // Its sender may come here with a retry.
                    writer.remember(ids_of(&*self.disk, &segment).unwrap_or_default());
                }
                if late && segment.block.is_some() && self.is_double(state, &segment) {
                    let what = "a block came too late: this server merged its profiles already";
                    log::warn(what, &[("block", &name)]);
                    self.catalog.doubt(name.to_owned());
                } else {
                    self.catalog.insert(segment, self.env.now_ns());
                }
                true
            }
            // Merged meanwhile, or asked for again at the next look.
            Err(LoadError::Io(_)) => true,
            Err(error) => {
                if looks + 1 >= LOOKS && self.catalog.quarantine(name, error.to_string()) {
                    self.metrics.damaged_segments.fetch_add(1, Relaxed);
                    let what = "a file is damaged and left out of answers";
                    log::error(what, &[("file", &name), ("reason", &error)]);
                }
                false
            }
        }
    }

    /// Whether a block of another, put in the middle of this server's turn, stands for profiles that
    /// another block stands for already: its writer stopped between its lease and this put. That the
    /// turn goes on is asked after the listing that showed the block, so nobody else can have
    /// written it in a turn of his own.
    fn is_double(&self, state: &mut State, block: &Segment) -> bool {
        let (owner, turn_ns) = (self.owner(), self.turn_ns());
        let mut renew = || {
            let lease = &mut state.lease;
            lease.renew(&*self.disk, owner, self.clocks(), turn_ns)
        };
        self.catalog.stands_for_any(&block.header.replaces) && renew()
    }

    /// Deletes columns that have been without a manifest for long: their writer is gone.
    fn sweep(&self, state: &mut State, orphans: HashSet<String>, steady_ns: i64) {
        state.orphans.retain(|name, _| orphans.contains(name));
        for name in orphans {
            let first_ns = *state.orphans.entry(name.clone()).or_insert(steady_ns);
            let old = steady_ns.saturating_sub(first_ns) > ORPHAN_NS;
            if old && state.lease.held() {
                // Asked for again at the next look.
                let _ = self.disk.remove(&name);
            }
        }
    }
}
