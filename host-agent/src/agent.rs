//! The agent as a whole: a sampler, drained in turns, whose batches become profiles on their way to the server.

use crate::bpf::BpfSampler;
use crate::export::{Counters, Parcel, Pusher, profiles};
use crate::perf::PerfSampler;
use crate::process::Processes;
use crate::{Batch, Error, Sampler, SamplerOptions};
use pilotlight_wire::{Authorization, Rng, SplitMix, Url};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What to sample and where to send it.
pub struct Options {
    /// The server's base URL.
    pub server: Url,
    /// What the server is shown.
    pub authorization: Option<Authorization>,
    /// What to sample.
    pub sampler: SamplerOptions,
    /// BPF is not tried.
    pub no_bpf: bool,
    /// Time between two exports.
    pub interval: Duration,
    /// Bytes of profiles that may wait for the server.
    pub queue_bytes: u64,
    /// Jitter and request ids.
    pub rng: Arc<dyn Rng>,
}

impl Options {
    /// All processes at 19 Hz, exported every 10 s.
    pub fn new(server: Url) -> Options {
        Options {
            server,
            authorization: None,
            sampler: SamplerOptions::default(),
            no_bpf: false,
            interval: Duration::from_secs(10),
            queue_bytes: 64 << 20,
            rng: Arc::new(SplitMix::from_entropy()),
        }
    }
}

/// A running agent.
pub struct Agent {
    name: &'static str,
    counters: Arc<Counters>,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

struct Turns {
    sampler: Arc<Mutex<Box<dyn Sampler>>>,
    processes: Arc<Processes>,
    pusher: Pusher,
    counters: Arc<Counters>,
    period_ns: u64,
}

impl Agent {
    /// Starts sampling and exporting on the current tokio runtime.
    ///
    /// # Errors
    /// When nothing may be sampled.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers and I/O.
    pub fn start(options: Options) -> Result<Agent, Error> {
        let processes = Arc::new(Processes::new());
        let sampler = start_sampler(&options, &processes)?;
        let name = sampler.name();
        let counters = Arc::new(Counters::default());
        let pusher = Pusher::start(
            options.server,
            options.authorization,
            options.rng,
            options.queue_bytes,
            Arc::clone(&counters),
        );
        let turns = Turns {
            sampler: Arc::new(Mutex::new(sampler)),
            processes,
            pusher,
            counters: Arc::clone(&counters),
            period_ns: 1_000_000_000 / u64::from(options.sampler.frequency_hz.clamp(1, 997)),
        };
        let stop = Arc::new(Notify::new());
        let task = tokio::spawn(turns.run(options.interval, Arc::clone(&stop)));
        Ok(Agent {
            name,
            counters,
            stop,
            task,
        })
    }

    /// How it samples: `bpf` or `perf`.
    pub fn sampler(&self) -> &'static str {
        self.name
    }

    /// Counts of samples and pushes.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Exports what was sampled, and waits for the server up to `limit`.
    pub async fn stop(mut self, limit: Duration) {
        self.stop.notify_one();
        let _ = tokio::time::timeout(limit, &mut self.task).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start_sampler(options: &Options, processes: &Arc<Processes>) -> Result<Box<dyn Sampler>, Error> {
    // Where BPF is denied, perf events alone do; they say themselves why they cannot, when they cannot.
    if !options.no_bpf
        && let Ok(sampler) = BpfSampler::start(&options.sampler, Arc::clone(processes))
    {
        return Ok(Box::new(sampler));
    }
    let sampler = PerfSampler::start(&options.sampler, Arc::clone(processes))?;
    Ok(Box::new(sampler))
}

impl Turns {
    async fn run(self, interval: Duration, stop: Arc<Notify>) {
        loop {
            let ended = tokio::time::timeout(interval, stop.notified())
                .await
                .is_ok();
            if !self.turn().await || ended {
                break;
            }
        }
        self.pusher.stop(Duration::from_secs(60)).await;
    }

    /// One export; false when sampling has ended.
    async fn turn(&self) -> bool {
        let (sampler, processes) = (Arc::clone(&self.sampler), Arc::clone(&self.processes));
        let period_ns = self.period_ns;
        let counters = Arc::clone(&self.counters);
        let work = tokio::task::spawn_blocking(move || {
            let mut sampler = sampler.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = sampler.drain()?;
            drop(sampler);
            let parcels = parcels(&batch, &processes, period_ns, &counters);
            processes.sweep();
            Ok::<_, Error>(parcels)
        });
        let Ok(Ok(parcels)) = work.await else {
            return false;
        };
        for parcel in parcels {
            self.pusher.push(parcel);
        }
        true
    }
}

fn parcels(
    batch: &Batch,
    processes: &Processes,
    period_ns: u64,
    counters: &Counters,
) -> Vec<Parcel> {
    let (exports, unknown) = profiles(batch, processes, period_ns);
    let sum = |cut: bool| -> u64 {
        let samples = batch.samples.iter().filter(|s| !cut || s.cut.is_some());
        samples.map(|sample| sample.count).sum()
    };
    counters
        .samples
        .fetch_add(sum(false) - unknown, Ordering::Relaxed);
    counters.cut_samples.fetch_add(sum(true), Ordering::Relaxed);
    let lost = batch.losses.total() + unknown;
    counters.lost_samples.fetch_add(lost, Ordering::Relaxed);
    let parcel = |export: crate::export::Export| Parcel {
        series: export.labels.selector(),
        name: export.name.to_owned(),
        body: export.profile.to_pprof_gz().into(),
    };
    exports.into_iter().map(parcel).collect()
}
