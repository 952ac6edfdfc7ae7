//! Group commit: what came while the last segment was being written goes out as the next one.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_profile::Profile;
use tokio::sync::watch;

use super::epoch::{Epochs, Taken};
use super::ids::{Ids, State};
pub use super::ticket::{Outcome, Ticket, WriteFailed};
use crate::env::Env;
use crate::metrics::Metrics;
use crate::segment::{self, About, Part, PartHeader, Pushed};
use crate::store::catalog::{Catalog, Segment};
use crate::store::disk::Disk;

/// The open segment: the profiles of the open epoch that are in no segment yet.
struct Head {
    ids: Vec<u128>,
    bytes: usize,
    since: Instant,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Head {
    fn new() -> Self {
        Self {
            ids: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            outcome: watch::channel(None).0,
        }
    }
}

/// A segment to be written.
struct Cut {
    head: Head,
    name: String,
    created_ns: i64,
    epoch: u64,
    parts: Vec<(PartHeader, Part)>,
}

struct Shared {
    head: Head,
    epochs: Epochs,
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
    /// Bytes of profiles kept in memory until they become a block; 0 = none.
    pub epoch_bytes: usize,
}

/// Segments live for seconds: CPU counts more than bytes.
const ZSTD_LEVEL: i32 = 1;
/// Epochs that wait to become blocks.
const WAITING_EPOCHS: usize = 2;

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
        let keep = if config.epoch_bytes == 0 {
            0
        } else {
            WAITING_EPOCHS
        };
        // Without anybody who makes blocks of them, names are still kept for a while.
        let epochs = Epochs::new(keep, config.epoch_bytes.max(config.full_bytes));
        Self {
            shared: Mutex::new(Shared {
                head: Head::new(),
                epochs,
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
            shared.epochs.forget_open();
            self.shared.clear_poison();
            shared
        })
    }

    /// Whether a push with this identity is known, before its body is looked at any further.
    pub fn known(&self, id: u128) -> Option<Ticket> {
        let state = self.lock().ids.get(id)?;
        Some(Ticket::duplicate(state))
    }

    /// Takes a profile into the open segment. Blocks for the time of interning.
    pub fn add(&self, profile: &Profile, pushed: &Pushed) -> Ticket {
        let mut shared = self.lock();
        if let Some(state) = shared.ids.get(pushed.id) {
            return Ticket::duplicate(state);
        }
        let Shared { head, epochs, ids } = &mut *shared;
        if head.ids.is_empty() {
            head.since = Instant::now();
        }
        let (kept, bytes) = epochs.open.add(profile, pushed);
        head.bytes += bytes;
        let receiver = head.outcome.subscribe();
        head.ids.push(pushed.id);
        ids.put(pushed.id, State::Pending(receiver.clone()));
        // Between the first push and a full head the writer sleeps by the clock.
        let wake = head.ids.len() == 1 || head.bytes >= self.config.full_bytes;
        drop(shared);
        if wake {
            self.wake.notify_one();
        }
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

    /// The epoch to make a block of; see [`Epochs::take`].
    pub fn take_epoch(&self, due: Option<&str>) -> Taken {
        let mut shared = self.lock();
        let idle = shared.head.ids.is_empty();
        shared.epochs.take(due, idle)
    }

    /// Segments whose profiles are still in memory.
    pub fn held(&self) -> HashSet<String> {
        self.lock().epochs.segments().cloned().collect()
    }

    /// Writes segments until [`Writer::stop`]; what is open then is written first.
    pub fn run(&self) {
        while let Some(cut) = self.next_cut() {
            let Cut { head, epoch, .. } = &cut;
            let (ids, outcome, epoch) = (head.ids.clone(), head.outcome.clone(), *epoch);
            // A writer that ends would leave every later push waiting.
            let result = catch_unwind(AssertUnwindSafe(|| self.write(cut))).unwrap_or_else(|_| {
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
            shared.epochs.written(epoch, result.is_ok());
            drop(shared);
            outcome.send_replace(Some(result));
        }
    }

    /// Ends [`Writer::run`] once the open segment is written.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.wake.notify_all();
    }

    fn next_cut(&self) -> Option<Cut> {
        let mut shared = self.lock();
        loop {
            let stopping = self.stopping.load(Relaxed);
            if shared.head.ids.is_empty() {
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
                return Some(self.cut(&mut shared));
            }
            let waited = self.wake.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn cut(&self, shared: &mut Shared) -> Cut {
        let created_ns = self.env.now_ns();
        let name = segment::file_name(created_ns, 0, self.env.random());
        let (epoch, parts) = shared.epochs.cut(&name);
        let head = std::mem::replace(&mut shared.head, Head::new());
        Cut {
            head,
            name,
            created_ns,
            epoch,
            parts,
        }
    }

    fn write(&self, cut: Cut) -> Outcome {
        let (name, created_ns) = (cut.name, cut.created_ns);
        let about = About {
            level: 0,
            created_ns,
            // Whoever sent those will send them again, perhaps into this segment.
            replaces: self.catalog.doubted(),
        };
        let written = segment::encode(about, cut.parts, ZSTD_LEVEL).and_then(|(header, file)| {
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
                if error.kind() != std::io::ErrorKind::AlreadyExists {
                    self.catalog.doubt(name);
                }
                Err(WriteFailed::of(&error))
            }
        }
    }
}
