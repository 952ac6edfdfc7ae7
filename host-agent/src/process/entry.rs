//! What is kept of each process.

use super::{Process, ProcessId};
use crate::files::Code;
use crate::limits;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mappings of one process are read again at most this often,
pub(super) const REFRESH: Duration = Duration::from_millis(200);
/// and not before so many times what reading them took the last time,
const REFRESH_TIMES: u32 = 50;
/// nor before this much has gone by for each of them: whose code it is takes longer to find out than to read.
const REFRESH_EACH: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) next_image: u64,
    pub(super) alive: HashMap<u32, Entry>,
    /// Ended or replaced by an exec, until their samples are exported.
    pub(super) ended: HashMap<ProcessId, Ended>,
}

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) process: Arc<Process>,
    pub(super) code: Option<Arc<Code>>,
    /// One more export has gone by since.
    pub(super) old: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) process: Arc<Process>,
    /// Made when a stack is to be walked.
    pub(super) code: Option<Arc<Code>>,
    /// The mappings are others since `code` was made.
    pub(super) is_stale: bool,
    /// Not read again before.
    pub(super) refresh_after: Option<Instant>,
}

impl Entry {
    pub(super) fn new(process: Process) -> Entry {
        Entry {
            process: Arc::new(process),
            code: None,
            is_stale: false,
            refresh_after: None,
        }
    }

    pub(super) fn fresh(&self) -> Option<&Arc<Code>> {
        self.code.as_ref().filter(|_| !self.is_stale)
    }
}

impl Inner {
    pub(super) fn add(&mut self, pid: u32, mut process: Process) {
        if self.alive.len() >= limits::PROCESSES {
            return;
        }
        self.next_image += 1;
        process.id = ProcessId {
            pid,
            image: self.next_image,
        };
        self.alive.insert(pid, Entry::new(process));
    }

    pub(super) fn retire(&mut self, pid: u32) {
        let Some(entry) = self.alive.remove(&pid) else {
            return;
        };
        if self.ended.len() < limits::PROCESSES {
            let code = entry.fresh().map(Arc::clone);
            let process = entry.process;
            self.ended.insert(
                process.id,
                Ended {
                    process,
                    code,
                    old: false,
                },
            );
        }
    }
}

/// How long the mappings of a process are left alone after reading `count` of them took `took`: a process that maps
/// without end costs the agent a small share of a CPU, and delays nobody else.
pub(super) fn pause_of(took: Duration, count: usize) -> Duration {
    let each = REFRESH_EACH.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    REFRESH.max(took.saturating_mul(REFRESH_TIMES)).max(each)
}
