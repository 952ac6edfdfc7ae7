//! Which build ids to look for. A bounded queue that readers fill and one thread empties; nobody
//! waits on it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::super::facts::normal_id;
use super::super::record::Source;
use super::Outcome;

/// Build ids in the queue.
const MOST_WAITING: usize = 1000;
/// Build ids whose answers are remembered.
const MOST_REMEMBERED: usize = 100_000;
/// An answer that may soon be another is remembered for so long.
const PASSING: Duration = Duration::from_secs(600);

/// A file to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quest {
    /// GNU build id, lower-case hex.
    pub build_id: String,
    /// Name of the binary, for people.
    pub name: String,
    /// Where it stands, as the file says that shares DWARF with it; empty where none does.
    pub path: String,
}

/// What was found of a build id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// What came of it.
    pub outcome: Outcome,
    /// When, Unix nanoseconds.
    pub at_ns: i64,
    /// Not looked for again before, Unix nanoseconds.
    pub again_ns: i64,
}

/// Build ids looked for, by outcome.
#[derive(Debug, Default)]
pub struct Counts {
    folders: [AtomicU64; Outcome::ALL.len()],
    debuginfod: [AtomicU64; Outcome::ALL.len()],
}

impl Counts {
    /// Counts one.
    pub fn add(&self, source: Source, outcome: Outcome) {
        let of = match source {
            Source::Folder => &self.folders,
            _ => &self.debuginfod,
        };
        of[outcome as usize].fetch_add(1, Relaxed);
    }

    /// (outcome, how often) of [`Source::Folder`] or [`Source::Debuginfod`].
    pub fn of(&self, source: Source) -> [(&'static str, u64); Outcome::ALL.len()] {
        let of = match source {
            Source::Folder => &self.folders,
            _ => &self.debuginfod,
        };
        Outcome::ALL.map(|outcome| (outcome.word(), of[outcome as usize].load(Relaxed)))
    }
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Quest>,
    /// Build ids in the queue, and the one that is being looked for.
    waiting: HashSet<String>,
    asked: HashMap<String, Asked>,
    /// Whether it is known what is stored.
    started: bool,
    stopped: bool,
}

/// The queue, and the memory of answers.
pub struct Asking {
    inner: Mutex<Inner>,
    more: Condvar,
    stop: watch::Sender<bool>,
    ask_again: Duration,
    counts: Counts,
}

impl Asking {
    /// Remembers answers for `ask_again`.
    pub fn new(ask_again: Duration) -> Self {
        Self {
            inner: Mutex::default(),
            more: Condvar::new(),
            stop: watch::Sender::new(false),
            ask_again,
            counts: Counts::default(),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has a build id looked for, unless it is none of GNU's or was looked for lately. Answers
    /// whether it is waited for now.
    pub fn want(&self, mut quest: Quest, now_ns: i64) -> bool {
        let build_id = normal_id(&quest.build_id);
        if !is_gnu(&build_id) {
            return false;
        }
        self.with(|inner| {
            if inner.waiting.contains(&build_id) {
                return true;
            }
            let known = inner.asked.get(&build_id);
            if inner.stopped || known.is_some_and(|asked| now_ns < asked.again_ns) {
                return false;
            }
            if inner.queue.len() >= MOST_WAITING {
                self.counts.add(Source::Debuginfod, Outcome::Dropped);
                return false;
            }
            inner.waiting.insert(build_id.clone());
            quest.build_id = build_id;
            inner.queue.push_back(quest);
            self.more.notify_one();
            true
        })
    }

    /// Lets [`Asking::next`] give what is wanted: what is stored is known now.
    pub fn start(&self) {
        self.with(|inner| inner.started = true);
        self.more.notify_all();
    }

    /// The next one; waits for it, and for [`Asking::start`]. `None` after [`Asking::stop`].
    pub fn next(&self) -> Option<Quest> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if inner.stopped {
                return None;
            }
            let next = inner.started.then(|| inner.queue.pop_front());
            if let Some(quest) = next.flatten() {
                return Some(quest);
            }
            let waited = self.more.wait(inner);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Remembers what came of one.
    pub fn done(&self, build_id: &str, outcome: Outcome, now_ns: i64) {
        let kept_for = match outcome.passes() {
            true => self.ask_again.min(PASSING),
            false => self.ask_again,
        };
        let kept_ns = i64::try_from(kept_for.as_nanos()).unwrap_or(i64::MAX);
        let asked = Asked {
            outcome,
            at_ns: now_ns,
            again_ns: now_ns.saturating_add(kept_ns),
        };
        self.with(|inner| {
            inner.waiting.remove(build_id);
            if inner.asked.len() >= MOST_REMEMBERED {
                inner.asked.retain(|_, asked| asked.again_ns > now_ns);
            }
            // Forgetting costs a question more, never an answer.
            if inner.asked.len() >= MOST_REMEMBERED {
                inner.asked.clear();
            }
            inner.asked.insert(build_id.to_owned(), asked);
        });
    }

    /// What came of a build id, if it was looked for.
    pub fn asked(&self, build_id: &str) -> Option<Asked> {
        self.with(|inner| inner.asked.get(&normal_id(build_id)).copied())
    }

    /// Build ids that wait, the one that is being looked for included.
    pub fn waiting(&self) -> usize {
        self.with(|inner| inner.waiting.len())
    }

    /// By outcome.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Ends [`Asking::next`], and what waits for [`Asking::stopped`].
    pub fn stop(&self) {
        self.with(|inner| inner.stopped = true);
        self.stop.send_replace(true);
        self.more.notify_all();
    }

    /// Done after [`Asking::stop`].
    pub async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// What linkers write: 8 bytes (`fast`) to 32, most often the 20 of SHA-1. Go's ids are text, and no
/// debuginfod knows them.
fn is_gnu(id: &str) -> bool {
    let hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex && (16..=64).contains(&id.len()) && id.len().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quest(build_id: &str) -> Quest {
        Quest {
            build_id: build_id.to_owned(),
            name: "app".to_owned(),
            path: String::new(),
        }
    }

    const ID: &str = "00112233445566778899aabbccddeeff00112233";

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let asking = Asking::new(Duration::from_secs(3600));
        let want = |id: &str, now_ns| asking.want(quest(id), now_ns);
        asking.start();
        let second = 1_000_000_000;
        assert!(want(&ID.to_uppercase(), 0));
        assert!(want(ID, 1), "in the queue once");
        let quest = asking.next().unwrap();
        assert_eq!((quest.build_id.as_str(), quest.name.as_str()), (ID, "app"));
        assert!(want(ID, 2), "being looked for");
        assert_eq!(asking.waiting(), 1);
        asking.done(ID, Outcome::Missing, 10 * second);
        assert!(!want(ID, 3609 * second));
        let asked = asking.asked(ID).unwrap();
        assert_eq!((asked.at_ns, asked.again_ns), (10 * second, 3610 * second));
        assert!(want(ID, 3610 * second));
        asking.next();
        asking.done(ID, Outcome::Failed, 4000 * second);
        assert!(!want(ID, 4599 * second));
        assert!(want(ID, 4600 * second), "ten minutes for what may pass");
    }

    #[test]
    fn only_gnu_ids_are_looked_for_and_not_too_many() {
        let asking = Asking::new(Duration::from_secs(1));
        let odd = &ID[1..];
        let paths = "../../../../etc/passwd";
        for id in [
            "",
            "ab",
            odd,
            paths,
            "kQx-go-build-id/abcdef0123456789",
            &ID.repeat(2),
        ] {
            assert!(!asking.want(quest(id), 0), "{id}");
        }
        for n in 0..MOST_WAITING + 5 {
            assert_eq!(
                asking.want(quest(&format!("{n:040x}")), 0),
                n < MOST_WAITING
            );
        }
        let counts = asking.counts().of(Source::Debuginfod);
        assert!(counts.contains(&("dropped", 5)), "{counts:?}");
        asking.stop();
        assert_eq!(asking.next(), None);
    }
}
