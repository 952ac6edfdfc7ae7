//! The agent as a whole: a sampler, drained in turns, whose batches become profiles on their way to the server.

use crate::bpf::BpfSampler;
use crate::export::{
    Counters, Export, ExportOptions, Exporter, Exports, Naming, Parcel, Protocol, PushOptions,
    Pusher,
};
use crate::files::Files;
use crate::labels::{KubernetesOptions, Pods};
use crate::metrics;
use crate::perf::PerfSampler;
use crate::process::Processes;
use crate::upload::Uploader;
use crate::{Batch, Error, Event, Sampler, SamplerOptions, UploadCounters, UploadOptions};
use pilotlight_labels::Rule;
use pilotlight_wire::{Authorization, Rng, SplitMix, Url};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Until the first export.
const FIRST: Duration = Duration::from_secs(3);

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
    /// Java processes are asked to write down the names of what they compiled (`Compiler.perfmap`).
    pub java_perf_map: bool,
    /// CPU samples of processes that run pilotlight's SDK are exported too, beside what they send themselves.
    pub instrumented: bool,
    /// Which files go to the server, and how fast.
    pub upload: UploadOptions,
    /// Bytes of profiles that may wait for the server.
    pub queue_bytes: u64,
    /// Profiles wait here for the server, and outlive the agent; `None`: in memory.
    pub queue_folder: Option<PathBuf>,
    /// Unwind tables are kept here for the next agent; `None`: nowhere.
    pub tables_folder: Option<PathBuf>,
    /// Bytes that they may take there.
    pub tables_bytes: u64,
    /// What the server speaks. Files that name addresses go to pilotlight alone.
    pub protocol: Protocol,
    /// Environment variables of processes, and the labels that they become.
    pub label_env: Vec<(String, String)>,
    /// Where pods are asked for, whose names become labels.
    pub kubernetes: Option<KubernetesOptions>,
    /// Prometheus' rules over the labels of each process, applied last; what they drop is not exported.
    pub relabel: Vec<Rule>,
    /// Jitter and request ids.
    pub rng: Arc<dyn Rng>,
}

impl Options {
    /// All processes at 19 Hz, exported every 10 s; one sample of a hundred is walked twice.
    pub fn new(server: Url) -> Options {
        Options {
            upload: UploadOptions::towards(&server),
            server,
            authorization: None,
            sampler: SamplerOptions {
                verify: 0.01,
                ..SamplerOptions::default()
            },
            no_bpf: false,
            interval: Duration::from_secs(10),
            java_perf_map: true,
            instrumented: false,
            queue_bytes: 64 << 20,
            queue_folder: None,
            tables_folder: None,
            tables_bytes: 128 << 20,
            protocol: Protocol::default(),
            label_env: Vec::new(),
            kubernetes: None,
            relabel: Vec::new(),
            rng: Arc::new(SplitMix::from_entropy()),
        }
    }
}

/// A running agent.
pub struct Agent {
    name: &'static str,
    event: Event,
    instead: Option<Instead>,
    counters: Arc<Counters>,
    uploads: Arc<UploadCounters>,
    processes: Arc<Processes>,
    pods: Option<(Arc<Pods>, JoinHandle<()>)>,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

/// What one turn needs, away from the runtime's threads.
struct Work {
    sampler: Box<dyn Sampler>,
    exporter: Exporter,
    processes: Arc<Processes>,
    counters: Arc<Counters>,
    protocol: Protocol,
}

struct Turns {
    work: Arc<Mutex<Work>>,
    pusher: Pusher,
}

impl Agent {
    /// Starts sampling and exporting on the current tokio runtime.
    ///
    /// # Errors
    /// When nothing may be sampled, or the folder of the queue or of tables cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers and I/O.
    pub fn start(mut options: Options) -> Result<Agent, Error> {
        options.upload.off |= options.protocol != Protocol::Pilotlight;
        let files = match &options.tables_folder {
            Some(folder) => Files::kept_in(folder, options.tables_bytes)?,
            None => Files::default(),
        };
        let processes = Arc::new(Processes::with_files(files));
        let instead = instead_of_missing(&mut options.sampler);
        let sampler = start_sampler(&options, &processes)?;
        let name = sampler.name();
        let counters = Arc::new(Counters::default());
        let uploads = Arc::new(UploadCounters::default());
        let uploader = Uploader::start(
            options.server.clone(),
            options.authorization.clone(),
            options.upload,
            Arc::clone(&options.rng),
            Arc::clone(&uploads),
        );
        let push = PushOptions {
            server: options.server,
            authorization: options.authorization,
            rng: options.rng,
            limit_bytes: options.queue_bytes,
            folder: options.queue_folder,
        };
        let pusher = Pusher::start(push, Arc::clone(&counters))?;
        let event = options.sampler.event;
        let export = ExportOptions {
            event,
            period: event.period(options.sampler.frequency_hz),
            ask_java: options.java_perf_map,
            instrumented: options.instrumented,
        };
        let pods = options.kubernetes.map(|options| {
            let pods = Arc::new(Pods::default());
            let following = Arc::clone(&pods).follow(options);
            (pods, following)
        });
        let naming = Naming {
            variables: options.label_env,
            pods: pods.as_ref().map(|(pods, _)| Arc::clone(pods)),
            rules: options.relabel,
        };
        let work = Work {
            sampler,
            exporter: Exporter::new(Arc::clone(&processes), export, naming, uploader),
            processes: Arc::clone(&processes),
            counters: Arc::clone(&counters),
            protocol: options.protocol,
        };
        let turns = Turns {
            work: Arc::new(Mutex::new(work)),
            pusher,
        };
        let stop = Arc::new(Notify::new());
        let task = tokio::spawn(turns.run(options.interval, Arc::clone(&stop)));
        Ok(Agent {
            name,
            event,
            instead,
            counters,
            uploads,
            processes,
            pods,
            stop,
            task,
        })
    }

    /// How it samples: `bpf` or `perf`.
    pub fn sampler(&self) -> &'static str {
        self.name
    }

    /// What it samples: what was asked for, unless [`Agent::instead`] says why not.
    pub fn event(&self) -> Event {
        self.event
    }

    /// The event that was asked for and that this machine does not have; a clock is sampled instead.
    pub fn instead(&self) -> Option<&Instead> {
        self.instead.as_ref()
    }

    /// Counts of samples and pushes.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts of files that name addresses.
    pub fn uploads(&self) -> &UploadCounters {
        &self.uploads
    }

    /// Why pods are not known; `None` when they are, or nobody asks for them.
    pub fn pods_error(&self) -> Option<String> {
        self.pods.as_ref().and_then(|(pods, _)| pods.error())
    }

    /// What was sampled, lost and sent, and what the agent takes, in Prometheus' text format.
    pub fn metrics_text(&self) -> String {
        metrics::text(&metrics::State {
            sampler: self.name,
            event: self.event,
            instead: self.instead.as_ref(),
            counters: &self.counters,
            uploads: &self.uploads,
            processes: self.processes.count(),
            tables: self.processes.files().counts(),
        })
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
        if let Some((_, following)) = &self.pods {
            following.abort();
        }
    }
}

/// An event that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instead {
    /// What was asked for.
    pub wanted: Event,
    /// Why it is not there.
    pub reason: String,
}

/// Takes the CPU's clock where there is no such event.
fn instead_of_missing(options: &mut SamplerOptions) -> Option<Instead> {
    let wanted = options.event;
    let reason = wanted.missing()?;
    options.event = Event::default();
    Some(Instead { wanted, reason })
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
        // Whoever has just started it wants to see something.
        let mut wait = interval.min(FIRST);
        loop {
            let ended = tokio::time::timeout(wait, stop.notified()).await.is_ok();
            wait = interval;
            if !self.turn().await || ended {
                break;
            }
        }
        self.pusher.stop(Duration::from_secs(60)).await;
    }

    /// One export; false when sampling has ended.
    async fn turn(&self) -> bool {
        let work = Arc::clone(&self.work);
        let turn = move || {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            work.turn()
        };
        let Ok(Ok(parcels)) = tokio::task::spawn_blocking(turn).await else {
            return false;
        };
        for parcel in parcels {
            self.pusher.push(parcel);
        }
        true
    }
}

impl Work {
    fn turn(&mut self) -> Result<Vec<Parcel>, Error> {
        let batch = self.sampler.drain()?;
        let exports = self.exporter.profiles(&batch);
        self.count(&batch, &exports);
        self.processes.sweep();
        let parcel = |export: Export| {
            Parcel::new(self.protocol, &export.labels, export.name, &export.profile)
        };
        Ok(exports.profiles.into_iter().map(parcel).collect())
    }

    fn count(&self, batch: &Batch, exports: &Exports) {
        let sum = |cut: bool| -> u64 {
            let samples = batch.samples.iter().filter(|s| !cut || s.cut.is_some());
            samples.map(|sample| sample.count).sum()
        };
        let counters = &self.counters;
        let exported = sum(false) - exports.unknown - exports.left_to_sdk - exports.by_rule;
        counters.samples.fetch_add(exported, Ordering::Relaxed);
        counters
            .left_to_sdk
            .fetch_add(exports.left_to_sdk, Ordering::Relaxed);
        let by_rule = &counters.dropped_by_rule;
        by_rule.fetch_add(exports.by_rule, Ordering::Relaxed);
        counters
            .shallow_samples
            .fetch_add(exports.shallow, Ordering::Relaxed);
        counters.cut_samples.fetch_add(sum(true), Ordering::Relaxed);
        let mut lost = batch.losses.clone();
        lost.add("process_unknown", exports.unknown);
        counters.lose(&lost);
        counters.meet(&batch.met);
    }
}
