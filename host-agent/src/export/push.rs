//! To the server: one sender, the oldest first, retries that count once.

use super::parcel::Parcel;
use super::queue::{Memory, Queue};
use super::spool::Spool;
use crate::verify::Verdict;
use crate::{Error, Losses};
use pilotlight_wire::{Attempt, Authorization, Client, Retry, Rng, StatusCode, SystemClock, Url};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Time for one try.
const TRY: Duration = Duration::from_secs(15);

/// What became of samples and profiles. All values only grow, but those of what waits.
#[derive(Debug, Default)]
pub struct Counters {
    /// Samples in profiles that were made.
    pub samples: AtomicU64,
    /// Samples whose stack ended before its root.
    pub cut_samples: AtomicU64,
    /// Samples in the code of an interpreter whose scripts are not seen.
    pub shallow_samples: AtomicU64,
    /// Samples that were lost, for all reasons.
    pub lost_samples: AtomicU64,
    /// CPU samples of processes that take samples of themselves: left to them.
    pub left_to_sdk: AtomicU64,
    /// Samples of processes that a rule drops.
    pub dropped_by_rule: AtomicU64,
    /// Profiles that the server acknowledged.
    pub pushed: AtomicU64,
    /// Profiles given up: no room, or refused by the server.
    pub dropped: AtomicU64,
    /// Profiles on disk that could not be read any more.
    pub damaged: AtomicU64,
    /// Profiles that wait for the server.
    pub waiting: AtomicU64,
    /// Their bytes.
    pub waiting_bytes: AtomicU64,
    losses: Mutex<Losses>,
    met: Mutex<Losses>,
    error: Mutex<Option<String>>,
}

impl Counters {
    /// Samples that were lost, by reason.
    pub fn losses(&self) -> Losses {
        let losses = self.losses.lock();
        losses.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn lose(&self, more: &Losses) {
        let losses = self.losses.lock();
        losses.unwrap_or_else(PoisonError::into_inner).merge(more);
        self.lost_samples.fetch_add(more.total(), Ordering::Relaxed);
    }

    /// What the sampler met on its way, by name.
    pub fn met(&self) -> Losses {
        let met = self.met.lock();
        met.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Samples that were walked twice, and those of them whose walks led elsewhere ([`crate::verify`]).
    pub fn verified(&self) -> (u64, u64) {
        let met = self.met();
        let [same, different] = [Verdict::Same, Verdict::Different].map(|v| met.of(v.name()));
        (same + different, different)
    }

    pub(crate) fn meet(&self, more: &Losses) {
        let met = self.met.lock();
        met.unwrap_or_else(PoisonError::into_inner).merge(more);
    }

    /// Those that are numbers; a new one is not forgotten here.
    #[cfg(test)]
    pub(crate) fn all(&self) -> [(&'static str, &AtomicU64); 11] {
        let Counters {
            samples,
            cut_samples,
            shallow_samples,
            lost_samples,
            left_to_sdk,
            dropped_by_rule,
            pushed,
            dropped,
            damaged,
            waiting,
            waiting_bytes,
            losses: _,
            met: _,
            error: _,
        } = self;
        [
            ("samples", samples),
            ("cut_samples", cut_samples),
            ("shallow_samples", shallow_samples),
            ("lost_samples", lost_samples),
            ("left_to_sdk", left_to_sdk),
            ("dropped_by_rule", dropped_by_rule),
            ("pushed", pushed),
            ("dropped", dropped),
            ("damaged", damaged),
            ("waiting", waiting),
            ("waiting_bytes", waiting_bytes),
        ]
    }

    /// Why the last push failed; `None` once one went well again.
    pub fn push_error(&self) -> Option<String> {
        let error = self.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// Where profiles go, and where they wait.
pub(crate) struct PushOptions {
    pub server: Url,
    pub authorization: Option<Authorization>,
    pub rng: Arc<dyn Rng>,
    /// Bytes that may wait.
    pub limit_bytes: u64,
    /// They wait here and not in memory.
    pub folder: Option<PathBuf>,
}

/// Takes profiles and gets them to the server.
pub(crate) struct Pusher {
    shared: Arc<Shared>,
    rng: Arc<dyn Rng>,
    sender: JoinHandle<()>,
}

struct Shared {
    queue: Mutex<Queue>,
    news: Notify,
    ending: AtomicBool,
    counters: Arc<Counters>,
}

struct Road {
    client: Client,
    server: Url,
    retry: Retry,
    clock: SystemClock,
    rng: Arc<dyn Rng>,
    counters: Arc<Counters>,
}

/// What became of one profile.
enum Outcome {
    Sent,
    /// The server will never take it.
    Refused,
    /// Later it may.
    Waits,
}

impl Pusher {
    /// Starts on the current tokio runtime.
    ///
    /// # Errors
    /// When the folder of the queue cannot be used.
    pub fn start(options: PushOptions, counters: Arc<Counters>) -> Result<Pusher, Error> {
        let queue = open(&options, &counters)?;
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            news: Notify::new(),
            ending: AtomicBool::new(false),
            counters: Arc::clone(&counters),
        });
        let road = Road {
            client: Client::new().authorized(options.authorization),
            server: options.server,
            retry: Retry::default(),
            clock: SystemClock::new(),
            rng: Arc::clone(&options.rng),
            counters,
        };
        Ok(Pusher {
            shared: Arc::clone(&shared),
            rng: options.rng,
            sender: tokio::spawn(send_all(road, shared)),
        })
    }

    /// Queues a profile; for want of room older ones are dropped and counted.
    pub fn push(&self, parcel: Parcel) {
        let shared = &self.shared;
        let pushed = shared.queue().push(parcel, self.rng.next_u64());
        let dropped = pushed.unwrap_or_else(|error| {
            let text = format!("the queue on disk cannot be written: {error}");
            shared.counters.set_error(Some(text));
            1
        });
        shared
            .counters
            .dropped
            .fetch_add(dropped, Ordering::Relaxed);
        shared.count();
        shared.news.notify_one();
    }

    /// Waits until everything is sent, `limit` at most.
    pub async fn stop(self, limit: Duration) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.shared.news.notify_one();
        let abort = self.sender.abort_handle();
        if tokio::time::timeout(limit, self.sender).await.is_err() {
            abort.abort();
        }
    }
}

fn open(options: &PushOptions, counters: &Counters) -> Result<Queue, Error> {
    let Some(folder) = &options.folder else {
        return Ok(Queue::Memory(Memory::new(options.limit_bytes)));
    };
    let opened = Spool::open(folder, options.limit_bytes);
    let (spool, found) = opened.map_err(|source| Error::Io {
        path: folder.display().to_string(),
        source,
    })?;
    counters.damaged.fetch_add(found.damaged, Ordering::Relaxed);
    counters.waiting.store(found.waiting, Ordering::Relaxed);
    Ok(Queue::Disk(spool))
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        let (waiting, bytes) = self.queue().size();
        self.counters.waiting.store(waiting, Ordering::Relaxed);
        self.counters.waiting_bytes.store(bytes, Ordering::Relaxed);
    }

    fn oldest(&self) -> Option<(u64, u64, Parcel)> {
        let mut damaged = 0;
        let oldest = self.queue().oldest(&mut damaged);
        self.counters.damaged.fetch_add(damaged, Ordering::Relaxed);
        oldest
    }
}

async fn send_all(road: Road, shared: Arc<Shared>) {
    loop {
        let Some((sequence, id, parcel)) = shared.oldest() else {
            if shared.ending.load(Ordering::Relaxed) {
                return;
            }
            shared.news.notified().await;
            continue;
        };
        let id = format!("{id:016x}{sequence:016x}");
        let count = match road.send(&parcel, &id).await {
            Outcome::Sent => &shared.counters.pushed,
            Outcome::Refused => &shared.counters.dropped,
            Outcome::Waits => continue,
        };
        count.fetch_add(1, Ordering::Relaxed);
        shared.queue().done(sequence);
        shared.count();
    }
}

impl Road {
    async fn send(&self, parcel: &Parcel, id: &str) -> Outcome {
        let attempt = |_| self.try_once(parcel, id);
        match self.retry.run(&self.clock, &*self.rng, attempt).await {
            Ok(()) => Outcome::Sent,
            Err(Refused(true)) => Outcome::Refused,
            Err(Refused(false)) => Outcome::Waits,
        }
    }

    async fn try_once(&self, parcel: &Parcel, id: &str) -> Attempt<(), Refused> {
        let call = parcel.call(&self.server, id).timeout(TRY);
        let (error, refused) = match self.client.send(call).await {
            Ok(answer) => {
                let status = answer.status;
                match answer.success() {
                    Ok(_) => {
                        self.counters.set_error(None);
                        return Attempt::Done(());
                    }
                    Err(error) => (error, !may_pass(status)),
                }
            }
            Err(error) => (error, false),
        };
        self.counters.set_error(Some(error.to_string()));
        match refused {
            true => Attempt::Fatal(Refused(true)),
            false => Attempt::Again(Refused(false), None),
        }
    }
}

/// For good, or only now.
#[derive(Debug)]
struct Refused(bool);

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
}
