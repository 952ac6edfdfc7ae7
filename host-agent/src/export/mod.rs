//! Batches to profiles, and profiles to the server.

mod profile;
mod push;

pub use push::Counters;
pub(crate) use push::{Parcel, Pusher};

use crate::labels::Labels;
use crate::process::{Process, ProcessId, Processes};
use crate::{Batch, Sample, Why};
use profile::Builder;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One profile, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub labels: Labels,
    /// `process_cpu` or `offcpu`.
    pub name: &'static str,
    pub profile: pilotlight_profile::Profile,
}

/// One profile a process and kind; a process that is not known any more is counted.
pub(crate) fn profiles(batch: &Batch, processes: &Processes, period_ns: u64) -> (Vec<Export>, u64) {
    let mut groups: BTreeMap<(ProcessId, bool), Vec<&Sample>> = BTreeMap::new();
    for sample in &batch.samples {
        let on_cpu = sample.why == Why::Cpu;
        groups
            .entry((sample.process, on_cpu))
            .or_default()
            .push(sample);
    }
    let mut unknown = 0;
    let mut exports = Vec::new();
    for ((id, on_cpu), samples) in groups {
        match processes.get(id) {
            Some(process) => {
                exports.push(export(
                    &process, on_cpu, &samples, batch, processes, period_ns,
                ));
            }
            None => unknown += samples.iter().map(|sample| sample.count).sum::<u64>(),
        }
    }
    (exports, unknown)
}

fn export(
    process: &Arc<Process>,
    on_cpu: bool,
    samples: &[&Sample],
    batch: &Batch,
    processes: &Processes,
    period_ns: u64,
) -> Export {
    let kind = if on_cpu { "cpu" } else { "offcpu" };
    let mut builder = Builder::new(process, processes.files(), kind, period_ns);
    builder.time(batch.from_ns, batch.until_ns);
    for sample in samples {
        builder.add(sample);
    }
    Export {
        labels: Labels::of(process),
        name: if on_cpu { "process_cpu" } else { "offcpu" },
        profile: builder.finish(),
    }
}
