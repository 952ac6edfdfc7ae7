//! What waits to be sent, within its bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::COUNTERS;

/// One request on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    /// Query of the address, without the question mark.
    pub(super) query: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Queue {
    limit_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    parcels: VecDeque<Parcel>,
    /// Of those that wait, and of the one that is being sent.
    bytes: usize,
    sending_bytes: usize,
    /// When the process wants to end.
    ends: Option<Instant>,
    /// Nothing will be added.
    closed: bool,
    /// The sender has gone.
    done: bool,
}

impl Queue {
    pub(super) fn new(limit_bytes: usize) -> Queue {
        Queue {
            limit_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a parcel. Where it does not fit, the oldest go; one that never fits goes itself.
    pub(super) fn add(&self, parcel: Parcel) {
        let mut state = self.state();
        let size = parcel.body.len();
        if size + state.sending_bytes > self.limit_bytes {
            COUNTERS.push_lost_queue_full.add(1);
            return;
        }
        while state.bytes + size > self.limit_bytes {
            let Some(oldest) = state.parcels.pop_front() else {
                break;
            };
            state.bytes -= oldest.body.len();
            COUNTERS.push_lost_queue_full.add(1);
        }
        state.bytes += size;
        state.parcels.push_back(parcel);
        drop(state);
        self.changed.notify_all();
    }

    /// The oldest parcel, once there is one; `None` when there will be none. It counts as bytes
    /// until [`Queue::sent`].
    pub(super) fn next(&self) -> Option<Parcel> {
        let mut state = self.state();
        loop {
            if let Some(parcel) = state.parcels.pop_front() {
                state.sending_bytes = parcel.body.len();
                return Some(parcel);
            }
            if state.closed {
                state.done = true;
                drop(state);
                self.changed.notify_all();
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The parcel of the last [`Queue::next`] is done with, one way or the other.
    pub(super) fn sent(&self) {
        let mut state = self.state();
        state.bytes -= state.sending_bytes;
        state.sending_bytes = 0;
    }

    /// Sleeps, less long when the process wants to end; true if it does.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        while state.ends.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// When everything must be over, if the process wants to end.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.state().ends
    }

    pub(super) fn end(&self, deadline: Instant) {
        self.state().ends = Some(deadline);
        self.changed.notify_all();
    }

    /// Nothing will be added.
    pub(super) fn no_more(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Waits until the sender is done; what waits at `deadline` counts as lost.
    pub(super) fn wait_until_sent(&self, deadline: Instant) {
        let mut state = self.state();
        while !state.done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let left = state.parcels.len() as u64;
        COUNTERS.push_lost_unsent.add(left);
        state.parcels.clear();
    }
}
