//! Batches to profiles, and profiles to the server.

mod parcel;
mod profile;
mod push;
mod queue;
mod spool;

pub(crate) use parcel::Parcel;
pub use parcel::Protocol;
pub use push::Counters;
pub(crate) use push::{PushOptions, Pusher};

use crate::labels::{Pods, labels_of, say};
use crate::limits;
use crate::names::{JitNames, Kallsyms};
use crate::process::{Context, Process, ProcessId, Processes, read_context, read_variables};
use crate::upload::Uploader;
use crate::{Batch, Event, Sample, Why};
use pilotlight_labels::{Labels, Outcome, Rule, relabel};
use profile::{Builder, Names};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of the kernel are read again this often: modules and BPF programs come and go.
const KERNEL_AGE: Duration = Duration::from_secs(60);
/// What a process says of itself is read again this often; a process says it some time after it began.
const CONTEXT_AGE: Duration = Duration::from_secs(20);

/// One profile, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub labels: Labels,
    /// `process_cpu`, `offcpu`, or of another event.
    pub name: &'static str,
    pub profile: pilotlight_profile::Profile,
}

/// Makes profiles; keeps the names of kernel and runtimes between batches.
pub(crate) struct Exporter {
    processes: Arc<Processes>,
    options: ExportOptions,
    uploader: Uploader,
    host: String,
    kernel: Option<(Instant, Kallsyms)>,
    jit: HashMap<ProcessId, JitNames>,
    contexts: HashMap<ProcessId, (Instant, Context)>,
    naming: Naming,
}

/// Labels beyond what a process shows of itself.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    /// Variables of processes, and the labels that they become.
    pub variables: Vec<(String, String)>,
    /// Where pods are asked for.
    pub pods: Option<Arc<Pods>>,
    /// Applied to the labels of a process last.
    pub rules: Vec<Rule>,
}

/// What became of one batch.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    pub profiles: Vec<Export>,
    /// Samples of processes that are not known any more.
    pub unknown: u64,
    /// Samples on the CPU of processes that take samples of themselves.
    pub left_to_sdk: u64,
    /// Samples of processes that a rule drops.
    pub by_rule: u64,
    /// Samples in the code of an interpreter whose scripts are not seen.
    pub shallow: u64,
}

/// How profiles are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportOptions {
    pub event: Event,
    /// Events a sample, or nanoseconds.
    pub period: u64,
    /// Java processes are asked for their perf maps.
    pub ask_java: bool,
    /// CPU samples of processes that take samples of themselves are exported too.
    pub instrumented: bool,
}

impl Exporter {
    pub fn new(
        processes: Arc<Processes>,
        options: ExportOptions,
        naming: Naming,
        uploader: Uploader,
    ) -> Exporter {
        Exporter {
            naming,
            processes,
            options,
            uploader,
            host: hostname(),
            kernel: None,
            jit: HashMap::new(),
            contexts: HashMap::new(),
        }
    }

    /// One profile a process and kind.
    pub fn profiles(&mut self, batch: &Batch) -> Exports {
        let mut groups: BTreeMap<(ProcessId, bool), Vec<&Sample>> = BTreeMap::new();
        for sample in &batch.samples {
            let on_cpu = sample.why == Why::Cpu;
            groups
                .entry((sample.process, on_cpu))
                .or_default()
                .push(sample);
        }
        self.refresh_kernel(batch);
        let mut exports = Exports::default();
        let is_clock = self.options.event.is_clock();
        for ((id, on_cpu), samples) in groups {
            let count = samples.iter().map(|sample| sample.count).sum::<u64>();
            let Some(process) = self.processes.get(id) else {
                exports.unknown += count;
                continue;
            };
            let context = self.context(&process);
            if on_cpu && is_clock && context.samples_itself && !self.options.instrumented {
                exports.left_to_sdk += count;
                continue;
            }
            let Some(labels) = self.labels(&process, &context) else {
                exports.by_rule += count;
                continue;
            };
            let (export, shallow) = self.export(&process, labels, on_cpu, &samples, batch);
            exports.shallow += shallow;
            exports.profiles.push(export);
        }
        let processes = &self.processes;
        self.jit.retain(|id, _| processes.is_alive(*id));
        self.contexts.retain(|id, _| processes.is_alive(*id));
        exports
    }

    fn context(&mut self, process: &Process) -> Context {
        let known = self.contexts.get(&process.id);
        if let Some((_, context)) = known.filter(|(at, _)| at.elapsed() < CONTEXT_AGE) {
            return context.clone();
        }
        let mut read = read_context(process.id.pid).unwrap_or_default();
        // What it publishes comes after, and wins.
        let mut attributes = read_variables(process.id.pid, &self.naming.variables);
        attributes.append(&mut read.resource);
        read.resource = attributes;
        self.contexts
            .insert(process.id, (Instant::now(), read.clone()));
        read
    }

    /// `None`: a rule drops the process.
    fn labels(&self, process: &Process, context: &Context) -> Option<Labels> {
        let mut labels = labels_of(process);
        labels.set("host", self.host.as_str());
        if let Some(pods) = &self.naming.pods {
            pods.label(&mut labels);
        }
        say(&mut labels, context);
        // For rules only: a label for each process would make each a series of its own.
        labels.set("__meta_process_pid", process.id.pid.to_string());
        if let Outcome::Dropped(_) = relabel(&self.naming.rules, &mut labels) {
            return None;
        }
        labels.retain(|name| !name.starts_with("__"));
        // Without these the server can neither name the series nor tell who took it.
        if labels.get("service_name").is_none() {
            labels.set(
                "service_name",
                labels_of(process).get("service_name").unwrap_or("unknown"),
            );
        }
        labels.set("source", "agent");
        Some(labels)
    }

    /// Modules and BPF programs come and go. Reading all names takes as long as some thousand samples, so it is done where
    /// such code was sampled.
    fn refresh_kernel(&mut self, batch: &Batch) {
        let mut addresses = batch.samples.iter().flat_map(|sample| &sample.kernel);
        let is_due = match &self.kernel {
            None => addresses.next().is_some(),
            Some((at, kernel)) => {
                at.elapsed() > KERNEL_AGE && addresses.any(|&address| !kernel.is_fixed(address))
            }
        };
        if is_due {
            self.kernel = Some((Instant::now(), Kallsyms::read()));
        }
    }

    fn export(
        &mut self,
        process: &Process,
        labels: Labels,
        on_cpu: bool,
        samples: &[&Sample],
        batch: &Batch,
    ) -> (Export, u64) {
        self.refresh_jit(process, samples);
        let addresses = samples
            .iter()
            .flat_map(|sample| sample.user.iter().copied());
        self.uploader
            .note(process, self.processes.files(), addresses);
        let none = Kallsyms::default();
        let names = Names {
            files: self.processes.files(),
            kernel: self.kernel.as_ref().map_or(&none, |(_, kernel)| kernel),
            jit: self.jit.get(&process.id),
            runtimes: self.processes.runtimes(),
        };
        let ExportOptions { event, period, .. } = self.options;
        let (name, value) = match on_cpu {
            true => (event.profile(), event.value()),
            false => ("offcpu", ("offcpu", "nanoseconds")),
        };
        let mut builder = Builder::new(process, names, value, period);
        builder.time(batch.from_ns, batch.until_ns);
        for sample in samples {
            builder.add(sample);
        }
        let shallow = builder.shallow();
        let export = Export {
            labels,
            name,
            profile: builder.finish(),
        };
        (export, shallow)
    }

    /// Only processes that ran code without a file have names to be read.
    fn refresh_jit(&mut self, process: &Process, samples: &[&Sample]) {
        let is_jit = |address: &u64| {
            process
                .mapping(*address)
                .is_some_and(|m| !m.is_file() && !m.is_vdso())
        };
        let some = samples.iter().any(|sample| sample.user.iter().any(is_jit));
        let room = self.jit.len() < limits::JIT_PROCESSES || self.jit.contains_key(&process.id);
        if some && room {
            let names = self.jit.entry(process.id).or_default();
            names.refresh(process, self.options.ask_java);
        }
    }
}

fn hostname() -> String {
    let read = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    crate::labels::text(read.trim_ascii_end())
}
