//! Names by address, read from files once and kept within a bound.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use pilotlight_symbolize::Frame;

/// What a file says of addresses.
pub trait Lookup: Send + Sync {
    /// Functions at an address of the file, innermost inlined one first; empty when none is known.
    fn frames(&self, svma: u64) -> Vec<Frame>;
    /// Where the function at an address begins, when that is all that is known of it.
    fn extent(&self, svma: u64) -> Option<u64>;
    /// Bytes that it holds, in memory or mapped from disk.
    fn held_bytes(&self) -> usize;
}

/// A file's state.
#[derive(Clone)]
pub enum State {
    /// It is to be read.
    Waiting,
    /// It was read.
    Ready(Arc<dyn Lookup>),
}

struct Entry {
    state: State,
    used: u64,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Id, Entry>,
    /// (key, SHA-256, object name) of files to read.
    queue: VecDeque<Job>,
    uses: u64,
    bytes: usize,
    stopped: bool,
}

/// SHA-256 of the file, and of the one that it shares DWARF with.
type Id = (String, Option<String>);

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What the file is stored under.
    pub key: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its object.
    pub file: String,
    /// SHA-256 and object of the file that it shares DWARF with.
    pub shared: Option<(String, String)>,
}

impl Job {
    /// The same file without the one that it shares DWARF with.
    pub fn alone(&self) -> Self {
        Self {
            shared: None,
            ..self.clone()
        }
    }

    /// SHA-256 of the file that it shares DWARF with; empty without one.
    pub fn shared_sha256(&self) -> &str {
        self.shared.as_ref().map_or("", |(sha256, _)| sha256)
    }

    fn id(&self) -> Id {
        let shared = self.shared.as_ref();
        (
            self.sha256.clone(),
            shared.map(|(sha256, _)| sha256.clone()),
        )
    }
}

/// The cache and the queue of what is to be read.
pub struct Tables {
    inner: Mutex<Inner>,
    more: Condvar,
    limit_bytes: usize,
}

impl Tables {
    /// A cache of `limit_bytes`; a single larger file is kept alone.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            inner: Mutex::default(),
            more: Condvar::new(),
            limit_bytes,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file's state; one that is not in the cache is put into the queue.
    pub fn get(&self, job: &Job) -> State {
        self.with(|inner| {
            inner.uses += 1;
            let used = inner.uses;
            if let Some(entry) = inner.entries.get_mut(&job.id()) {
                entry.used = used;
                return entry.state.clone();
            }
            let state = State::Waiting;
            let entry = Entry { state, used };
            inner.entries.insert(job.id(), entry);
            inner.queue.push_back(job.clone());
            self.more.notify_one();
            State::Waiting
        })
    }

    /// What was read of a file, if it is still here.
    pub fn ready(&self, job: &Job) -> Option<Arc<dyn Lookup>> {
        self.with(|inner| match &inner.entries.get(&job.id())?.state {
            State::Ready(read) => Some(read.clone()),
            State::Waiting => None,
        })
    }

    /// Forgets a file, and those that share DWARF with it.
    pub fn forget(&self, sha256: &str) {
        self.with(|inner| {
            let of = |(own, shared): &&Id| own == sha256 || shared.as_deref() == Some(sha256);
            let gone: Vec<Id> = inner.entries.keys().filter(of).cloned().collect();
            gone.iter().for_each(|id| inner.remove(id));
        });
    }

    /// Ends [`Tables::next`].
    pub fn stop(&self) {
        self.with(|inner| inner.stopped = true);
        self.more.notify_all();
    }

    /// The next file to read; waits for one. `None` after [`Tables::stop`].
    pub fn next(&self) -> Option<Job> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if inner.stopped {
                return None;
            }
            if let Some(job) = inner.queue.pop_front() {
                return Some(job);
            }
            inner = self
                .more
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A file was read; without names it is forgotten, and asked for anew when needed.
    pub fn done(&self, job: &Job, read: Option<Arc<dyn Lookup>>) {
        self.with(|inner| {
            let Some(read) = read else {
                return inner.remove(&job.id());
            };
            let bytes = read.held_bytes();
            let Some(entry) = inner.entries.get_mut(&job.id()) else {
                return;
            };
            entry.state = State::Ready(read);
            inner.bytes += bytes;
            inner.shrink(self.limit_bytes, &job.id());
        });
    }

    /// Bytes held, files held.
    pub fn stats(&self) -> (usize, usize) {
        self.with(|inner| (inner.bytes, inner.entries.len()))
    }
}

impl Inner {
    fn remove(&mut self, id: &Id) {
        if let Some(entry) = self.entries.remove(id)
            && let State::Ready(read) = entry.state
        {
            self.bytes -= read.held_bytes();
        }
    }

    /// Drops the least recently used files, but never `keep`.
    fn shrink(&mut self, limit: usize, keep: &Id) {
        while self.bytes > limit {
            let ready =
                |(id, entry): &(&Id, &Entry)| matches!(entry.state, State::Ready(_)) && *id != keep;
            let oldest = self.entries.iter().filter(ready);
            let oldest = oldest.min_by_key(|(_, entry)| entry.used);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else {
                return;
            };
            self.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sized(usize);

    impl Lookup for Sized {
        fn frames(&self, _: u64) -> Vec<Frame> {
            Vec::new()
        }

        fn extent(&self, _: u64) -> Option<u64> {
            None
        }

        fn held_bytes(&self) -> usize {
            self.0
        }
    }

    fn job(sha256: &str) -> Job {
        Job {
            key: String::new(),
            sha256: sha256.to_owned(),
            file: String::new(),
            shared: None,
        }
    }

    fn ready(tables: &Tables, sha: &str) -> bool {
        matches!(tables.get(&job(sha)), State::Ready(_))
    }

    #[test]
    fn files_are_read_once_and_the_least_used_leave() {
        let tables = Tables::new(100);
        for sha in ["a", "b"] {
            assert!(!ready(&tables, sha));
            assert!(!ready(&tables, sha), "waiting, and not queued again");
            assert_eq!(tables.next(), Some(job(sha)));
            tables.done(&job(sha), Some(Arc::new(Sized(40))));
        }
        assert!(ready(&tables, "a"));
        tables.get(&job("c"));
        tables.done(&tables.next().unwrap(), Some(Arc::new(Sized(50))));
        assert_eq!(tables.stats(), (90, 2));
        assert!(ready(&tables, "a") && ready(&tables, "c"));
        assert!(!ready(&tables, "b"), "not used since");
        tables.done(&tables.next().unwrap(), None);
        assert!(!ready(&tables, "b"), "a failed one is queued anew");
        assert_eq!(tables.next(), Some(job("b")));
        let both = Job {
            shared: Some(("s".to_owned(), String::new())),
            ..job("a")
        };
        tables.get(&both);
        assert!(tables.ready(&both).is_none() && tables.ready(&job("a")).is_some());
        tables.done(&tables.next().unwrap(), Some(Arc::new(Sized(5))));
        tables.forget("s");
        assert!(tables.ready(&both).is_none() && tables.ready(&job("a")).is_some());
        tables.stop();
        assert_eq!(tables.next(), None);
    }
}
