//! To the server: a bounded queue, one sender, retries that count once.

use pilotlight_wire::{
    Attempt, Authorization, Bytes, Call, Client, Clock, Error, HeaderValue, Retry, Rng, StatusCode,
    SystemClock, Url,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Time for one try.
const TRY: Duration = Duration::from_secs(15);

/// What became of samples and profiles. All values only grow.
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
    /// Profiles that the server acknowledged.
    pub pushed: AtomicU64,
    /// Profiles given up.
    pub dropped: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Counters {
    /// Why the last push failed; `None` once one went well again.
    pub fn push_error(&self) -> Option<String> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// One profile on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// `{service_name="…",…}`.
    pub series: String,
    pub name: String,
    /// pprof, gzipped.
    pub body: Bytes,
}

/// Takes profiles and gets them to the server.
#[derive(Debug)]
pub(crate) struct Pusher {
    queue: mpsc::UnboundedSender<Parcel>,
    waiting_bytes: Arc<AtomicU64>,
    limit_bytes: u64,
    counters: Arc<Counters>,
    sender: JoinHandle<()>,
}

struct Road {
    client: Client,
    server: Url,
    retry: Retry,
    clock: SystemClock,
    rng: Arc<dyn Rng>,
    counters: Arc<Counters>,
}

impl Pusher {
    /// Starts on the current tokio runtime.
    pub fn start(
        server: Url,
        authorization: Option<Authorization>,
        rng: Arc<dyn Rng>,
        limit_bytes: u64,
        counters: Arc<Counters>,
    ) -> Pusher {
        let (queue, receiver) = mpsc::unbounded_channel();
        let waiting_bytes = Arc::new(AtomicU64::new(0));
        let road = Road {
            client: Client::new().authorized(authorization),
            server,
            retry: Retry::default(),
            clock: SystemClock::new(),
            rng,
            counters: Arc::clone(&counters),
        };
        Pusher {
            queue,
            waiting_bytes: Arc::clone(&waiting_bytes),
            limit_bytes,
            counters,
            sender: tokio::spawn(send_all(road, receiver, waiting_bytes)),
        }
    }

    /// Queues a profile, or drops and counts it when the queue is full.
    pub fn push(&self, parcel: Parcel) {
        let size = parcel.body.len() as u64;
        let full = self.waiting_bytes.load(Ordering::Relaxed) + size > self.limit_bytes;
        if !full {
            self.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        }
        if full || self.queue.send(parcel).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is sent, `limit` at most.
    pub async fn stop(self, limit: Duration) {
        drop(self.queue);
        let abort = self.sender.abort_handle();
        if tokio::time::timeout(limit, self.sender).await.is_err() {
            abort.abort();
        }
    }
}

async fn send_all(
    road: Road,
    mut queue: mpsc::UnboundedReceiver<Parcel>,
    waiting_bytes: Arc<AtomicU64>,
) {
    while let Some(parcel) = queue.recv().await {
        let counters = &road.counters;
        let done = match road.send(&parcel).await {
            Ok(()) => &counters.pushed,
            Err(_) => &counters.dropped,
        };
        done.fetch_add(1, Ordering::Relaxed);
        waiting_bytes.fetch_sub(parcel.body.len() as u64, Ordering::Relaxed);
    }
}

impl Road {
    async fn send(&self, parcel: &Parcel) -> Result<(), Error> {
        let id = format!("{:016x}{:016x}", self.rng.next_u64(), self.clock.unix_ns());
        let attempt = |_| self.try_once(parcel, &id);
        self.retry.run(&self.clock, &*self.rng, attempt).await
    }

    async fn try_once(&self, parcel: &Parcel, id: &str) -> Attempt<(), Error> {
        let error = match self.client.send(self.call(parcel, id)).await {
            Ok(answer) => {
                let status = answer.status;
                match answer.success() {
                    Ok(_) => {
                        self.counters.set_error(None);
                        return Attempt::Done(());
                    }
                    Err(error) if may_pass(status) => error,
                    Err(error) => {
                        self.counters.set_error(Some(error.to_string()));
                        return Attempt::Fatal(error);
                    }
                }
            }
            Err(error) => error,
        };
        self.counters.set_error(Some(error.to_string()));
        Attempt::Again(error, None)
    }

    fn call(&self, parcel: &Parcel, id: &str) -> Call {
        let pairs = [
            ("series", parcel.series.as_str()),
            ("name", parcel.name.as_str()),
        ];
        let url = self.server.with_path_and_query("/api/v1/push", pairs);
        let call = Call::post(url, parcel.body.clone()).timeout(TRY);
        match HeaderValue::from_str(id) {
            Ok(id) => call.header("x-pilotlight-request-id", id),
            Err(_) => call,
        }
    }
}

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
}
