//! Which runtimes there are, and what of their scripts is seen.

use super::{Found, Support, find};
use crate::files::{FileKey, Files, open};
use crate::limits;
use crate::process::{Process, parse_maps, read_proc};
use std::collections::{BTreeMap, HashMap};

/// A runtime on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `CPython 3.12`
    pub runtime: String,
    /// Processes that hold it.
    pub processes: usize,
    /// Its frames are seen, if it is told to help where it must be.
    pub supported: bool,
    /// What is seen of its scripts.
    pub scripts: String,
}

/// Looks at all processes that may be looked at.
pub fn survey() -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut files: HashMap<FileKey, Option<Found>> = HashMap::new();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for pid in pids.take(limits::PROCESSES) {
        for found in of_pid(pid, &mut files) {
            let entry = seen.entry(found.to_string()).or_insert_with(|| Seen {
                runtime: found.to_string(),
                processes: 0,
                supported: found.is_walked() || matches!(found.known.support, Support::Told(_)),
                scripts: scripts(&found),
            });
            entry.processes += 1;
        }
    }
    seen.into_values().collect()
}

/// Each once.
fn of_pid(pid: u32, files: &mut HashMap<FileKey, Option<Found>>) -> Vec<Found> {
    let maps = read_proc(pid, "maps", limits::MAPS_BYTES).unwrap_or_default();
    let mut all: Vec<Found> = Vec::new();
    for mapping in parse_maps(&maps, b"")
        .0
        .iter()
        .filter(|mapping| mapping.is_file())
    {
        let Some((file, key)) = open(pid, mapping) else {
            continue;
        };
        if let Some(found) = files.entry(key).or_insert_with(|| find(&file))
            && !all
                .iter()
                .any(|known| known.to_string() == found.to_string())
        {
            all.push(found.clone());
        }
    }
    all
}

fn scripts(found: &Found) -> String {
    match found.known.support {
        Support::Walked if found.is_walked() => {
            "functions with file and line; with BPF only".to_owned()
        }
        Support::Told(how) => format!("named when it is started with {how}"),
        Support::Walked | Support::Native => "not seen: only its native functions".to_owned(),
    }
}

/// Code that a sample shows without the scripts that it executed, unless it has frames of scripts.
pub(crate) struct Hiding {
    start: u64,
    bytes: u64,
    /// Which runtime.
    pub runtime: String,
}

impl Hiding {
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// Of runtimes that write down names themselves, code without one is seen as such.
pub(crate) fn hiding(process: &Process, files: &Files) -> Vec<Hiding> {
    let of_mapping = |mapping: &crate::process::Mapping| {
        let file = files.of(process.id.pid, mapping)?;
        let found = file.runtime.as_ref()?;
        let (start, bytes) = match found.known.support {
            Support::Told(_) => return None,
            Support::Walked => {
                let start = found.executor.address.wrapping_add(file.bias(mapping)?);
                (start, found.executor.size)
            }
            Support::Native => (mapping.start, mapping.end - mapping.start),
        };
        Some(Hiding {
            start,
            bytes,
            runtime: found.to_string(),
        })
    };
    process.mappings.iter().filter_map(of_mapping).collect()
}
