//! Identities of recent pushes: a retry is counted once.

use std::collections::{HashMap, VecDeque};

use tokio::sync::watch;

use super::writer::Outcome;

/// What is known about an identity.
#[derive(Clone)]
pub enum State {
    /// In a segment that is not durable yet; the channel tells how that ends.
    Pending(watch::Receiver<Option<Outcome>>),
    /// Durable.
    Stored,
}

/// The newest identities, bounded in number.
pub struct Ids {
    known: HashMap<u128, State>,
    order: VecDeque<u128>,
    limit: usize,
}

impl Ids {
    /// Remembers the last `limit` identities.
    pub fn new(limit: usize) -> Self {
        Self {
            known: HashMap::new(),
            order: VecDeque::new(),
            limit,
        }
    }

    /// What is known about `id`.
    pub fn get(&self, id: u128) -> Option<State> {
        self.known.get(&id).cloned()
    }

    /// Notes an identity; 0 means "none" and is not noted.
    pub fn put(&mut self, id: u128, state: State) {
        if id != 0 && self.known.insert(id, state).is_none() {
            self.order.push_back(id);
            while self.order.len() > self.limit {
                if let Some(old) = self.order.pop_front() {
                    self.known.remove(&old);
                }
            }
        }
    }

    /// Forgets an identity whose segment failed, so that its retry is taken.
    pub fn forget(&mut self, id: u128) {
        // Its place in `order` stays; a second `put` may then leave early, which only costs memory
        // of one identity.
        self.known.remove(&id);
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }
}
