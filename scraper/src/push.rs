//! To the server: a bounded queue, a few senders, retry with one id per profile.

use crate::report::Counters;
use pilotlight_wire::{Attempt, Bytes, Call, Client, Clock, Error, Retry, Rng, StatusCode, Url};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Senders at work; more would only help a server that is slow at acknowledging.
const SENDERS: usize = 4;
/// Time for one try.
const TRY: Duration = Duration::from_secs(15);

/// One profile on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// `{service_name="…",…}`.
    pub series: String,
    /// `process_cpu`.
    pub name: String,
    /// As the target sent it.
    pub body: Bytes,
    /// Start and end for profiles that carry no time, in nanoseconds since the epoch.
    pub window: Option<(i64, i64)>,
    /// Equal for every try.
    pub id: String,
}

/// Takes profiles and gets them to the server.
#[derive(Debug)]
pub struct Pusher {
    queue: Mutex<Option<mpsc::UnboundedSender<Parcel>>>,
    waiting: Arc<Waiting>,
    limit: u64,
    ids: Ids,
    counters: Arc<Counters>,
    senders: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicU64,
    parcels: AtomicU64,
    empty: Notify,
}

#[derive(Debug)]
struct Ids {
    prefix: u64,
    next: AtomicU64,
}

/// What a sender needs.
struct Road {
    client: Client,
    server: Url,
    retry: Retry,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    counters: Arc<Counters>,
    waiting: Arc<Waiting>,
}

impl Pusher {
    /// Starts the senders on the current tokio runtime. `limit`: bytes that may wait.
    pub fn start(
        client: Client,
        server: Url,
        retry: Retry,
        limit: u64,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        counters: Arc<Counters>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let waiting = Arc::new(Waiting::default());
        let ids = Ids {
            prefix: rng.next_u64(),
            next: AtomicU64::new(0),
        };
        let road = Arc::new(Road {
            client,
            server,
            retry,
            clock,
            rng,
            counters: Arc::clone(&counters),
            waiting: Arc::clone(&waiting),
        });
        let senders = (0..SENDERS)
            .map(|_| tokio::spawn(send_all(Arc::clone(&road), Arc::clone(&receiver))))
            .collect();
        Self {
            queue: Mutex::new(Some(sender)),
            waiting,
            limit,
            ids,
            counters,
            senders: Mutex::new(senders),
        }
    }

    /// A new request id.
    pub fn id(&self) -> String {
        let number = self.ids.next.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{number}", self.ids.prefix)
    }

    /// Queues a profile; counts it as dropped when the queue is full.
    pub fn push(&self, parcel: Parcel) {
        let size = parcel.body.len() as u64;
        if self.waiting.bytes.load(Ordering::Relaxed) + size > self.limit {
            self.counters.drop_one("queue_full");
            return;
        }
        self.waiting.bytes.fetch_add(size, Ordering::Relaxed);
        self.waiting.parcels.fetch_add(1, Ordering::Relaxed);
        let sent = lock(&self.queue)
            .as_ref()
            .is_some_and(|queue| queue.send(parcel).is_ok());
        if !sent {
            self.waiting.done(size);
            self.counters.drop_one("shutdown");
        }
    }

    /// Bytes and profiles that wait or are being sent.
    pub fn waiting(&self) -> (u64, u64) {
        let waiting = &self.waiting;
        (
            waiting.bytes.load(Ordering::Relaxed),
            waiting.parcels.load(Ordering::Relaxed),
        )
    }

    /// Takes nothing more, waits until everything is acknowledged or `limit` is over; the rest is counted as dropped.
    pub async fn shutdown(&self, limit: Duration) {
        lock(&self.queue).take();
        let _ = tokio::time::timeout(limit, self.waiting.until_empty()).await;
        for sender in lock(&self.senders).drain(..) {
            sender.abort();
        }
        for _ in 0..self.waiting.parcels.swap(0, Ordering::Relaxed) {
            self.counters.drop_one("shutdown");
        }
    }
}

impl Waiting {
    fn done(&self, size: u64) {
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        if self.parcels.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.empty.notify_waiters();
        }
    }

    async fn until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            if self.parcels.load(Ordering::Acquire) == 0 {
                return;
            }
            empty.await;
        }
    }
}

async fn send_all(
    road: Arc<Road>,
    queue: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Parcel>>>,
) {
    loop {
        let next = queue.lock().await.recv().await;
        let Some(parcel) = next else { return };
        let size = parcel.body.len() as u64;
        road.send(&parcel).await;
        road.waiting.done(size);
    }
}

impl Road {
    async fn send(&self, parcel: &Parcel) {
        let result = self
            .retry
            .run(&*self.clock, &*self.rng, |failed| {
                self.counters
                    .retries
                    .fetch_add(u64::from(failed > 0), Ordering::Relaxed);
                self.try_once(parcel)
            })
            .await;
        match result {
            Ok(()) => {
                self.counters.pushed.fetch_add(1, Ordering::Relaxed);
                self.counters
                    .pushed_bytes
                    .fetch_add(parcel.body.len() as u64, Ordering::Relaxed);
            }
            Err((reason, error)) => {
                self.counters.drop_one(reason);
                self.counters.last_push_error(error.to_string());
            }
        }
    }

    async fn try_once(&self, parcel: &Parcel) -> Attempt<(), (&'static str, Error)> {
        let call = match self.call(parcel) {
            Ok(call) => call,
            Err(error) => return Attempt::Fatal(("rejected", error)),
        };
        let answer = match self.client.send(call).await {
            Ok(answer) => answer,
            Err(error) => {
                self.failed(&error);
                return Attempt::Again(("unreachable", error), None);
            }
        };
        let (status, asked) = (answer.status, retry_after(&answer.headers));
        match answer.success() {
            Ok(_) => Attempt::Done(()),
            Err(error) => {
                self.failed(&error);
                if may_pass(status) {
                    Attempt::Again(("unavailable", error), asked)
                } else {
                    Attempt::Fatal(("rejected", error))
                }
            }
        }
    }

    fn failed(&self, error: &Error) {
        self.counters.push_failures.fetch_add(1, Ordering::Relaxed);
        self.counters.last_push_error(error.to_string());
    }

    fn call(&self, parcel: &Parcel) -> Result<Call, Error> {
        let window = parcel
            .window
            .map(|(from, until)| (from.to_string(), until.to_string()));
        let mut pairs = vec![
            ("series", parcel.series.as_str()),
            ("name", parcel.name.as_str()),
        ];
        if let Some((from, until)) = &window {
            pairs.extend([("from", from.as_str()), ("until", until.as_str())]);
        }
        let url = self.server.with_path_and_query("/api/v1/push", pairs);
        let id = parcel.id.parse().map_err(|_| Error::BadUrl {
            url: url.to_string(),
            reason: "the request id is no header value".to_owned(),
        })?;
        Ok(Call::post(url, parcel.body.clone())
            .header("x-pilotlight-request-id", id)
            .header("content-type", http_octets())
            .timeout(TRY))
    }
}

fn http_octets() -> pilotlight_wire::HeaderValue {
    pilotlight_wire::HeaderValue::from_static("application/octet-stream")
}

/// Statuses that another try may not meet again.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
}

fn retry_after(headers: &pilotlight_wire::HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
