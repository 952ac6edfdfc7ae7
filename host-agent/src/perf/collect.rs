//! From records to samples.

use super::floods::Floods;
use super::record::{self, RawSample, Record};
use super::sys;
use crate::process::{ProcessId, Processes};
use crate::sampler::Comm;
use crate::unwind::{Copied, Walked, walk};
use crate::{Batch, Losses, Sample, SamplerOptions, Why};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Distinct stacks between two drains.
const MAX_STACKS: usize = 65_536;
/// Threads whose names are remembered.
const MAX_THREADS: usize = 65_536;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    process: ProcessId,
    comm: Comm,
    user: Vec<u64>,
    cut: Option<&'static str>,
    kernel: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    time_ns: u64,
}

/// Brings the records of all rings into order, and adds up equal samples.
pub(super) struct Collector {
    processes: Arc<Processes>,
    options: SamplerOptions,
    period: u64,
    /// What is added to the records' clock to get Unix time.
    unix_offset_ns: u64,
    from_ns: u64,
    /// Records that wait for their turn, and where they lie in `bytes`.
    waiting: Vec<(u64, Range<usize>)>,
    bytes: Vec<u8>,
    threads: HashMap<u32, Comm>,
    sums: HashMap<Key, Sum>,
    losses: Losses,
    floods: Floods,
    /// Processes that began, ended, or mapped something, for whoever follows them.
    changed: Option<Vec<u32>>,
}

impl Collector {
    pub fn new(options: &SamplerOptions, processes: Arc<Processes>) -> Collector {
        Collector {
            processes,
            options: options.clone(),
            period: options.event.period(options.frequency_hz),
            unix_offset_ns: sys::unix_ns().wrapping_sub(sys::monotonic_ns()),
            from_ns: sys::unix_ns(),
            waiting: Vec::new(),
            bytes: Vec::new(),
            threads: HashMap::new(),
            sums: HashMap::new(),
            losses: Losses::default(),
            floods: Floods::default(),
            changed: None,
        }
    }

    /// Processes that changed since the last call are told from now on.
    pub fn changed(&mut self) -> Vec<u32> {
        self.changed.replace(Vec::new()).unwrap_or_default()
    }

    /// Keeps a record until its turn.
    pub fn add(&mut self, record: &[u8]) {
        let mapped = record::maps(record);
        if mapped.is_some_and(|pid| self.floods.is_too_many(pid, record::time_ns(record))) {
            return;
        }
        self.keep(record);
    }

    fn keep(&mut self, record: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.waiting
            .push((record::time_ns(record), start..self.bytes.len()));
    }

    /// Works on all records up to `until_ns` of their clock, in the order of time.
    pub fn turn(&mut self, until_ns: u64) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|(time_ns, _)| *time_ns);
        for (time_ns, range) in waiting {
            let Some(record) = bytes.get(range) else {
                continue;
            };
            if time_ns > until_ns {
                self.keep(record);
            } else {
                self.one(record, time_ns);
            }
        }
        if self.bytes.is_empty() {
            // Its memory is used again.
            self.bytes = bytes;
            self.bytes.clear();
        }
        let (processes, changed) = (&self.processes, &mut self.changed);
        self.floods.catch_up(|pid| {
            let read = processes.reread(pid);
            if let (Some(true), Some(changed)) = (read, changed.as_mut()) {
                changed.push(pid);
            }
            read.is_some()
        });
    }

    /// Some process maps memory without end: who waits for it a moment has less to do.
    pub fn is_flooded(&mut self) -> bool {
        self.floods.take_turn()
    }

    fn one(&mut self, bytes: &[u8], time_ns: u64) {
        let record = record::parse(bytes);
        if let (Some(changed), Some(pid)) = (&mut self.changed, record.changes()) {
            changed.push(pid);
        }
        match record {
            Record::Sample(sample) => self.sample(&sample, time_ns),
            Record::Mapped { pid, mapping } => self.processes.mapped(pid, mapping),
            Record::Named {
                pid,
                tid,
                comm,
                executed,
            } => self.named(pid, tid, comm, executed),
            Record::Forked { pid, parent, tid } => self.forked(pid, parent, tid),
            Record::Exited { pid, tid } => {
                self.threads.remove(&tid);
                if pid == tid {
                    self.floods.forget(pid);
                    self.processes.exited(pid);
                }
            }
            Record::Lost(count) => self.losses.add("ring_full", count),
            Record::Other => {}
        }
    }

    fn named(&mut self, pid: u32, tid: u32, comm: Comm, executed: bool) {
        if self.threads.len() < MAX_THREADS {
            self.threads.insert(tid, comm);
        }
        if executed {
            self.floods.forget(pid);
            self.processes.executed(pid, comm);
        } else if pid == tid {
            self.processes.renamed(pid, comm);
        }
    }

    fn forked(&mut self, pid: u32, parent: u32, tid: u32) {
        // A new thread is named by its maker's name until it says otherwise.
        self.threads.remove(&tid);
        if pid != parent {
            self.processes.forked(parent, pid);
        }
    }

    fn sample(&mut self, raw: &RawSample<'_>, time_ns: u64) {
        let pids = &self.options.pids;
        if !pids.is_empty() && !pids.contains(&raw.pid) {
            return;
        }
        let Some(process) = self.processes.last(raw.pid) else {
            self.losses.add("no_process", 1);
            return;
        };
        let walked = self.walked(raw);
        let key = Key {
            process: process.id,
            comm: self.comm(raw.pid, raw.tid),
            user: walked.frames,
            cut: walked.cut,
            kernel: raw.kernel(),
        };
        if self.sums.len() >= MAX_STACKS && !self.sums.contains_key(&key) {
            self.losses.add("too_many_stacks", 1);
            return;
        }
        let sum = self.sums.entry(key).or_default();
        sum.count += 1;
        sum.time_ns = time_ns;
    }

    fn walked(&self, raw: &RawSample<'_>) -> Walked {
        let Some(registers) = raw.registers else {
            return Walked::default();
        };
        let stack = Copied {
            start: registers.sp,
            bytes: raw.stack,
            bp: registers.bp,
        };
        let walk_once = || {
            let modules = self.processes.last_modules(raw.pid)?;
            Some(walk(
                registers,
                raw.in_kernel,
                &modules,
                &stack,
                self.options.frames,
            ))
        };
        let mut walked = walk_once().unwrap_or_default();
        // Code that nobody told of: mapped before we began, or made by mprotect.
        if walked.cut == Some("unknown_code") && self.processes.refresh(raw.pid) {
            walked = walk_once().unwrap_or_default();
        }
        if walked.cut == Some("bad_stack") && raw.stack_full {
            walked.cut = Some("stack_copy_too_short");
        }
        walked
    }

    fn comm(&mut self, pid: u32, tid: u32) -> Comm {
        if let Some(comm) = self.threads.get(&tid) {
            return *comm;
        }
        let path = format!("{pid}/task/{tid}/comm");
        let read = std::fs::read(format!("/proc/{path}")).unwrap_or_default();
        let comm = Comm::new(read.trim_ascii_end());
        if self.threads.len() < MAX_THREADS {
            self.threads.insert(tid, comm);
        }
        comm
    }

    /// What came together since the last call.
    pub fn take(&mut self) -> Batch {
        let until_ns = sys::unix_ns();
        let from_ns = std::mem::replace(&mut self.from_ns, until_ns);
        let offset_ns = self.unix_offset_ns;
        let period = self.period;
        let mut met = Losses::default();
        met.add("mappings_left_out", self.floods.take_left_out());
        let sample = |(key, sum): (Key, Sum)| Sample {
            process: key.process,
            tid: 0,
            comm: key.comm,
            why: Why::Cpu,
            user: key.user,
            cut: key.cut,
            kernel: key.kernel,
            count: sum.count,
            weight: sum.count * period,
            time_ns: sum.time_ns.wrapping_add(offset_ns) as i64,
        };
        Batch {
            from_ns: from_ns as i64,
            until_ns: until_ns as i64,
            samples: std::mem::take(&mut self.sums)
                .into_iter()
                .map(sample)
                .collect(),
            losses: std::mem::take(&mut self.losses),
            met,
        }
    }
}
