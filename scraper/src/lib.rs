//! Discovery, scrape loops and push of pprof endpoints: Prometheus' scrape configuration, for profiles.
//!
//! ```no_run
//! use pilotlight_scraper::{Config, Options, Scraper};
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::path::Path::new("pilotlight.yaml");
//! let config = Config::read(path, &["server"])?;
//! let server = pilotlight_scraper::Url::parse("http://127.0.0.1:4040/")?;
//! let scraper = Scraper::start(config.scrape_configs, Options::new(server)); // inside a tokio runtime
//! println!("{}", scraper.targets_json());
//! # Ok(()) }
//! ```
//!
//! Responsibilities, in the order in which a profile passes them:
//! - [`Config`]: the file, checked as a whole before anything starts.
//! - `discovery`: addresses from the file and from followed files.
//! - [`target`](mod@target): Prometheus' label pipeline; labels and URL are the identity.
//! - [`phase`]: when; `looping`: one scrape at a time per target, `captures`: one CPU capture at a time per process.
//! - [`check`](mod@check): only profiles go on, within limits, as the bytes that came.
//! - `push`: a bounded queue to the server's HTTP API, with retries that count once.
//! - `report`: targets and metrics as Prometheus has them.
//!
//! Not here: storing (the server), the rules of relabelling (`pilotlight-labels`), and the other kinds of discovery
//! (not yet, and said so).

mod captures;
pub mod check;
pub mod config;
mod discovery;
mod looping;
pub mod phase;
mod pool;
mod push;
mod report;
pub mod target;
mod time;

pub use config::{Config, ConfigError, Group, Profile, ScrapeConfig};
pub use discovery::{FileSource, Refresh};
pub use pilotlight_labels::Labels;
pub use pilotlight_wire::Url;
pub use push::{Parcel, Pusher};
pub use report::{Cause, Counters, Failure, Status, TargetState};

use looping::Shared;
use pilotlight_profile::Limits;
use pilotlight_wire::{Authorization, Client, Clock, Retry, Rng, SplitMix, SystemClock, TlsClient};
use pool::Pool;
use report::Board;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Where profiles go, and what is passed in.
pub struct Options {
    /// The server's base URL.
    pub server: Url,
    /// What the server is shown.
    pub authorization: Option<Authorization>,
    /// How a failed push is tried again.
    pub retry: Retry,
    /// Bytes of profiles that may wait for the server. Default 64 MiB.
    pub queue_bytes: u64,
    /// Limits of every profile.
    pub limits: Limits,
    /// This machine's name: shifts the phase, so that two scrapers of one target do not meet.
    pub hostname: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Jitter and request ids.
    pub rng: Arc<dyn Rng>,
    /// News for people, one line each: targets that fail or answer again, files that cannot be read.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Options {
    /// The system's clock and random numbers, default limits, news thrown away.
    pub fn new(server: Url) -> Self {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let hostname = hostname.trim();
        Self {
            server,
            authorization: None,
            retry: Retry::default(),
            queue_bytes: 64 << 20,
            limits: Limits::default(),
            hostname: if hostname.is_empty() {
                "localhost"
            } else {
                hostname
            }
            .to_owned(),
            clock: Arc::new(SystemClock::new()),
            rng: Arc::new(SplitMix::from_entropy()),
            log: Arc::new(|_| {}),
        }
    }
}

/// Starts scraping.
#[derive(Debug)]
pub struct Scraper;

/// A running scraper; dropping it ends it at once.
pub struct Handle {
    shared: Arc<Shared>,
    board: Arc<Board>,
    counters: Arc<Counters>,
    hostname: String,
    jobs: Vec<JoinHandle<()>>,
}

impl Scraper {
    /// Starts all jobs on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers and I/O.
    pub fn start(jobs: Vec<ScrapeConfig>, options: Options) -> Handle {
        let counters = Arc::new(Counters::default());
        let own = |job: &ScrapeConfig| {
            let own = job.tls != TlsClient::default();
            own.then(|| {
                (
                    job.job_name.clone(),
                    Client::new().with_tls(job.tls.clone()),
                )
            })
        };
        let shared = Arc::new(Shared {
            client: Client::new(),
            clients: jobs.iter().filter_map(own).collect(),
            seed: phase::fnv1a(options.hostname.as_bytes()),
            limits: options.limits,
            captures: captures::Captures::default(),
            decoding: Semaphore::new(2),
            pusher: Pusher::start(
                Client::new().authorized(options.authorization),
                options.server,
                options.retry,
                options.queue_bytes,
                Arc::clone(&options.clock),
                options.rng,
                Arc::clone(&counters),
            ),
            clock: options.clock,
            log: options.log,
        });
        let board = Arc::new(Board::default());
        let jobs = jobs
            .into_iter()
            .map(|job| tokio::spawn(Pool::new(job, Arc::clone(&shared), Arc::clone(&board)).run()))
            .collect();
        Handle {
            shared,
            board,
            counters,
            hostname: options.hostname,
            jobs,
        }
    }
}

impl Handle {
    /// The present targets in the shape of Prometheus' `/api/v1/targets`.
    pub fn targets_json(&self) -> serde_json::Value {
        self.board.targets_json(&self.hostname)
    }

    /// `up`, durations, sizes, misses and the way to the server, in Prometheus' text format.
    pub fn metrics_text(&self) -> String {
        let mut out = String::new();
        self.board.metrics(&mut out);
        self.counters
            .metrics(&mut out, self.shared.pusher.waiting());
        out
    }

    /// The present targets with their statuses.
    pub fn targets(&self) -> Vec<Arc<TargetState>> {
        self.board.active()
    }

    /// Counts of the way to the server.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Ends all loops, then waits up to `limit` for the acknowledgement of what was scraped.
    pub async fn stop(&self, limit: Duration) {
        for job in &self.jobs {
            job.abort();
        }
        self.shared.pusher.shutdown(limit).await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        for job in &self.jobs {
            job.abort();
        }
    }
}
