//! Group commit: what came while the last segment was being written goes out as the next one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_profile::Profile;
use tokio::sync::watch;

use super::ids::{Ids, State};
use crate::env::Env;
use crate::metrics::Metrics;
use crate::segment::{self, About, Kept, Pushed, SegmentBuilder};
use crate::store::catalog::{Catalog, Segment};
use crate::store::disk::{Disk, is_full};

/// How the write of a segment ended.
pub type Outcome = Result<(), WriteFailed>;

/// The segment did not become durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFailed {
    /// Whether the disk is full.
    pub full: bool,
    /// What the system said.
    pub reason: String,
}

/// What became of a push, before its segment is durable.
pub struct Ticket {
    /// Kept and dropped samples; nothing for a duplicate.
    pub kept: Kept,
    /// Whether it was known already.
    pub duplicate: bool,
    /// Tells how the write ended; `None` when it is durable already.
    pub outcome: Option<watch::Receiver<Option<Outcome>>>,
}

impl Ticket {
    /// Waits until the push is durable.
    ///
    /// # Errors
    /// When its segment could not be written; nothing of it is stored then.
    pub async fn durable(&mut self) -> Outcome {
        let Some(outcome) = &mut self.outcome else {
            return Ok(());
        };
        let ended = outcome.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .unwrap_or_else(|| {
                Err(WriteFailed {
                    full: false,
                    reason: "the open segment was given up".to_owned(),
                })
            })
    }
}

/// The open segment.
struct Head {
    builder: SegmentBuilder,
    ids: Vec<u128>,
    bytes: usize,
    since: Instant,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Head {
    fn new() -> Self {
        Self {
            builder: SegmentBuilder::default(),
            ids: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            outcome: watch::channel(None).0,
        }
    }
}

struct Shared {
    head: Head,
    ids: Ids,
}

/// Settings of the writer.
#[derive(Debug, Clone)]
pub struct WriterConfig {
    /// How long the first push of a segment waits for others.
    pub linger: Duration,
    /// An open segment of this many bytes is written at once.
    pub full_bytes: usize,
    /// Identities remembered.
    pub ids: usize,
}

/// Takes pushes into the open segment and writes segments on a thread of its own.
pub struct Writer {
    shared: Mutex<Shared>,
    wake: Condvar,
    stopping: AtomicBool,
    config: WriterConfig,
    env: Arc<dyn Env>,
    disk: Arc<dyn Disk>,
    catalog: Arc<Catalog>,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// A writer; [`Writer::run`] must run on a thread.
    pub fn new(
        config: WriterConfig,
        env: Arc<dyn Env>,
        disk: Arc<dyn Disk>,
        catalog: Arc<Catalog>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let ids = Ids::new(config.ids);
        Self {
            shared: Mutex::new(Shared {
                head: Head::new(),
                ids,
            }),
            wake: Condvar::new(),
            stopping: AtomicBool::new(false),
            config,
            env,
            disk,
            catalog,
            metrics,
        }
    }

    /// A panic while a profile was interned leaves an open segment that nobody may write: its
    /// pushes fail (their channel closes) and may be sent again.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(|poisoned| {
            let mut shared = poisoned.into_inner();
            let broken = std::mem::replace(&mut shared.head, Head::new());
            broken.ids.iter().for_each(|&id| shared.ids.forget(id));
            self.shared.clear_poison();
            shared
        })
    }

    /// Whether a push with this identity is known, before its body is looked at any further.
    pub fn known(&self, id: u128) -> Option<Ticket> {
        let state = self.lock().ids.get(id)?;
        Some(duplicate(state))
    }

    /// Takes a profile into the open segment. Blocks for the time of interning.
    pub fn add(&self, profile: &Profile, pushed: &Pushed) -> Ticket {
        let mut shared = self.lock();
        if let Some(state) = shared.ids.get(pushed.id) {
            return duplicate(state);
        }
        let Shared { head, ids } = &mut *shared;
        if head.builder.is_empty() {
            head.since = Instant::now();
        }
        let kept = head.builder.add_profile(profile, pushed);
        head.bytes = head.builder.heap_bytes();
        let receiver = head.outcome.subscribe();
        head.ids.push(pushed.id);
        ids.put(pushed.id, State::Pending(receiver.clone()));
        drop(shared);
        self.wake.notify_one();
        Ticket {
            kept,
            duplicate: false,
            outcome: Some(receiver),
        }
    }

    /// Notes identities found on disk.
    pub fn remember(&self, ids: impl IntoIterator<Item = u128>) {
        let mut shared = self.lock();
        ids.into_iter()
            .for_each(|id| shared.ids.put(id, State::Stored));
    }

    /// Identities remembered, and bytes of the open segment.
    pub fn stats(&self) -> (usize, usize) {
        let shared = self.lock();
        (shared.ids.len(), shared.head.bytes)
    }

    /// Writes segments until [`Writer::stop`]; what is open then is written first.
    pub fn run(&self) {
        while let Some(head) = self.next_head() {
            let ids = head.ids.clone();
            let outcome = head.outcome.clone();
            // A writer that ends would leave every later push waiting.
            let result = catch_unwind(AssertUnwindSafe(|| self.write(head))).unwrap_or_else(|_| {
                let reason = "writing the segment panicked; please report it".to_owned();
                Err(WriteFailed {
                    full: false,
                    reason,
                })
            });
            let mut shared = self.lock();
            for id in ids {
                match result {
                    Ok(()) => shared.ids.put(id, State::Stored),
                    Err(_) => shared.ids.forget(id),
                }
            }
            drop(shared);
            outcome.send_replace(Some(result));
        }
    }

    /// Ends [`Writer::run`] once the open segment is written.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.wake.notify_all();
    }

    fn next_head(&self) -> Option<Head> {
        let mut shared = self.lock();
        loop {
            let stopping = self.stopping.load(Relaxed);
            if shared.head.builder.is_empty() {
                if stopping {
                    return None;
                }
                // The timeout covers a `stop` between the check and the wait.
                let waited = self.wake.wait_timeout(shared, Duration::from_millis(500));
                shared = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let left = self
                .config
                .linger
                .saturating_sub(shared.head.since.elapsed());
            if left.is_zero() || stopping || shared.head.bytes >= self.config.full_bytes {
                return Some(std::mem::replace(&mut shared.head, Head::new()));
            }
            let waited = self.wake.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write(&self, head: Head) -> Outcome {
        let created_ns = self.env.now_ns();
        let name = segment::file_name(created_ns, 0, self.env.random());
        let about = About {
            level: 0,
            created_ns,
            replaces: Vec::new(),
        };
        let written =
            segment::encode(about, head.builder.finish(), 1).and_then(|(header, file)| {
                let started = Instant::now();
                self.disk.put_new(&name, &file)?;
                self.metrics.put(started.elapsed(), file.len());
                Ok(header)
            });
        match written {
            Ok(header) => {
                let segment = Segment {
                    name,
                    header,
                    block: None,
                };
                self.catalog.insert(segment, created_ns);
                Ok(())
            }
            Err(error) => {
                self.metrics.write_errors.fetch_add(1, Relaxed);
                Err(failed(&error))
            }
        }
    }
}

fn failed(error: &io::Error) -> WriteFailed {
    WriteFailed {
        full: is_full(error),
        reason: error.to_string(),
    }
}

fn duplicate(state: State) -> Ticket {
    let outcome = match state {
        State::Pending(receiver) => Some(receiver),
        State::Stored => None,
    };
    Ticket {
        kept: Kept::default(),
        duplicate: true,
        outcome,
    }
}
