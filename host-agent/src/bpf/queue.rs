//! Processes whose tables are to be made ready, each once, whoever asks how often.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<u32>,
    /// Those in `order`.
    pids: HashSet<u32>,
    closed: bool,
}

impl Queue {
    /// Adds what is not waiting yet.
    pub fn add(&self, pids: impl IntoIterator<Item = u32>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for pid in pids {
            if waiting.pids.insert(pid) {
                waiting.order.push_back(pid);
                self.more.notify_one();
            }
        }
    }

    /// The next one, when there is one; `None` when the queue was closed.
    pub fn next(&self) -> Option<u32> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(pid) = waiting.order.pop_front() {
                waiting.pids.remove(&pid);
                return Some(pid);
            }
            waiting = self
                .more
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whoever waits or asks later gets `None`.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.closed = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_waits_once_and_may_come_again() {
        let queue = Queue::default();
        queue.add([3, 4, 3]);
        assert_eq!((queue.next(), queue.next()), (Some(3), Some(4)));
        queue.add([3]);
        assert_eq!(queue.next(), Some(3));
        queue.close();
        assert_eq!(queue.next(), None);
    }
}
