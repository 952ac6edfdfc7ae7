//! Files that name addresses, to the server: only those that it asks for (`docs/debuginfo.md`).
//!
//! | file | job |
//! |---|---|
//! | `candidate` | an open file, and how much it tells |
//! | `bucket` | bytes a second |
//! | `send` | questions and bytes |
//!
//! A fleet that starts anew must not flood its server: each agent waits a random while before it asks, asks for many
//! files at once, and sends at a bounded rate.

mod bucket;
mod candidate;
mod send;

pub(crate) use candidate::Candidate;

use crate::files::Files;
use crate::process::Process;
use pilotlight_wire::{Authorization, Client, Rng, Url};
use send::Road;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Files that wait with an open descriptor each.
const WAITING: usize = 64;
/// Files whose build ids are remembered as asked for.
const ASKED: usize = 65_536;

/// What is sent, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadOptions {
    /// Nothing is sent at all.
    pub off: bool,
    /// Bytes a second; bursts of ten seconds.
    pub bytes_per_second: u64,
    /// Larger files are not sent.
    pub file_bytes: u64,
    /// A question waits up to this long, at random.
    pub jitter: Duration,
}

impl Default for UploadOptions {
    /// 8 MiB a second, files up to 1 GiB, up to 30 s of waiting.
    fn default() -> Self {
        Self {
            off: false,
            bytes_per_second: 8 << 20,
            file_bytes: 1 << 30,
            jitter: Duration::from_secs(30),
        }
    }
}

impl UploadOptions {
    /// The default; a server on the same machine has one agent and a fast way, and is asked and told at once.
    pub fn towards(server: &Url) -> Self {
        let default = Self::default();
        match server.is_loopback() {
            true => Self {
                bytes_per_second: 256 << 20,
                jitter: Duration::from_millis(200),
                ..default
            },
            false => default,
        }
    }
}

/// Counts of files. All values only grow.
#[derive(Debug, Default)]
pub struct UploadCounters {
    /// The server asked for them and has them now.
    pub sent: AtomicU64,
    /// The server has them, or something as good.
    pub not_wanted: AtomicU64,
    /// Too large, unreadable, or the server did not take them.
    pub failed: AtomicU64,
}

/// Takes note of files, and sends those that are wanted.
pub(crate) struct Uploader {
    options: UploadOptions,
    asked: HashSet<String>,
    queue: mpsc::Sender<Candidate>,
    counters: Arc<UploadCounters>,
    sender: JoinHandle<()>,
}

impl Uploader {
    /// Starts on the current tokio runtime.
    pub fn start(
        server: Url,
        authorization: Option<Authorization>,
        options: UploadOptions,
        rng: Arc<dyn Rng>,
        counters: Arc<UploadCounters>,
    ) -> Uploader {
        let (queue, receiver) = mpsc::channel(WAITING);
        let road = Road {
            client: Client::new().authorized(authorization),
            server,
            bucket: bucket::Bucket::new(options.bytes_per_second),
            jitter: options.jitter,
            rng,
            counters: Arc::clone(&counters),
        };
        Uploader {
            options,
            asked: HashSet::new(),
            queue,
            counters,
            sender: tokio::spawn(road.run(receiver)),
        }
    }

    /// Notes the files behind `addresses` of a process that were not noted before.
    pub fn note(&mut self, process: &Process, files: &Files, addresses: impl Iterator<Item = u64>) {
        if self.options.off {
            return;
        }
        let mut seen = HashSet::new();
        for address in addresses {
            let Some(mapping) = process.mapping(address).filter(|m| seen.insert(m.start)) else {
                continue;
            };
            let Some(file) = files.of(process.id.pid, mapping) else {
                continue;
            };
            let is_new = !self.asked.contains(&file.build_id);
            if !is_new || self.asked.len() >= ASKED {
                continue;
            }
            // A full queue: the file is noted again with a later sample.
            let Ok(place) = self.queue.try_reserve() else {
                return;
            };
            self.asked.insert(file.build_id.clone());
            match Candidate::open(process.id.pid, mapping, &file, self.options.file_bytes) {
                Some(candidate) => place.send(candidate),
                None => drop(self.counters.failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        self.sender.abort();
    }
}
