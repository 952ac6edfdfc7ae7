//! What every way of sampling hands out.

use crate::process::ProcessId;
use crate::{Error, Event};
use std::collections::BTreeMap;

/// What to sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// What is sampled.
    pub event: Event,
    /// Samples a second of each logical CPU, where a clock is sampled that has no period of its own. 1–997.
    pub frequency_hz: u32,
    /// Only these processes, with their threads; empty: all that may be sampled.
    pub pids: Vec<u32>,
    /// Frames of the kernel too, where that is permitted.
    pub kernel: bool,
    /// Time that threads wait is sampled too, where the sampler can: waits shorter than this are left out, in nanoseconds.
    pub off_cpu_threshold_ns: Option<u64>,
    /// The share of samples, 0 to 1, that is walked twice where the kernel walks: [`crate::verify`].
    pub verify: f64,
    /// Frames of one stack; beyond it those at the root are kept.
    pub frames: usize,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            event: Event::default(),
            frequency_hz: 19,
            pids: Vec::new(),
            kernel: true,
            off_cpu_threshold_ns: None,
            verify: 0.0,
            frames: 512,
        }
    }
}

/// A running way of sampling. Dropping it ends it.
pub trait Sampler: Send {
    /// For logs and metrics: `bpf` or `perf`.
    fn name(&self) -> &'static str;

    /// What was sampled and lost since the last call. Equal samples may be added up.
    ///
    /// Called every 10 s or so; samplers that need care more often have threads of their own.
    ///
    /// # Errors
    /// When sampling has ended for good.
    fn drain(&mut self) -> Result<Batch, Error>;
}

/// What happened between two drains.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Nanoseconds since the Unix epoch.
    pub from_ns: i64,
    /// Nanoseconds since the Unix epoch.
    pub until_ns: i64,
    /// In no order.
    pub samples: Vec<Sample>,
    /// What is missing.
    pub losses: Losses,
    /// What the sampler met on its way, by name: ticks, ends of walks, tables that were evicted.
    pub met: Losses,
}

/// What a sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The thread was running, when the CPU ticked or the event came.
    #[default]
    Cpu,
    /// The thread waited; the kind of wait where the system call tells: `futex`, `io`, `sleep`, `poll`, `other`.
    Waiting(&'static str),
}

/// One stack, or several equal ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Whose.
    pub process: ProcessId,
    /// Thread id as seen by the agent; 0 when samples of several threads were added up.
    pub tid: u32,
    /// Name of the thread.
    pub comm: Comm,
    /// On or off the CPU.
    pub why: Why,
    /// User addresses, leaf first: the interrupted instruction, then **return addresses minus 1**, so that each lies in
    /// the instruction to be named. Frames of an interpreter are numbers between them ([`crate::runtimes::is_frame`]).
    /// Empty for kernel threads, and where nothing could be read.
    pub user: Vec<u64>,
    /// The walk did not reach the root: why.
    pub cut: Option<&'static str>,
    /// Kernel addresses, leaf first, callers minus 1 too.
    pub kernel: Vec<u64>,
    /// How many samples.
    pub count: u64,
    /// What they stand for: nanoseconds of time, or a number of the events that are sampled.
    pub weight: u64,
    /// When the last of them was taken, nanoseconds since the Unix epoch.
    pub time_ns: i64,
}

/// A thread's name: at most 15 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Comm([u8; 16]);

impl Comm {
    /// Takes the bytes up to the first NUL, 15 at most.
    pub fn new(bytes: &[u8]) -> Comm {
        let mut comm = [0; 16];
        let named = bytes.iter().take(15).take_while(|&&byte| byte != 0);
        for (to, from) in comm.iter_mut().zip(named) {
            *to = *from;
        }
        Comm(comm)
    }

    /// The name, which need not be UTF-8.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0);
        &self.0[..end.unwrap_or(self.0.len())]
    }
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

/// What was lost, by reason. Everything that was sampled is delivered or stands here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<&'static str, u64>);

impl Losses {
    /// Counts `n` samples as lost.
    pub fn add(&mut self, reason: &'static str, n: u64) {
        if n > 0 {
            *self.0.entry(reason).or_default() += n;
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Losses) {
        for (reason, n) in other.iter() {
            self.add(reason, n);
        }
    }

    /// The count of one; 0 when there is none.
    pub fn of(&self, reason: &str) -> u64 {
        self.0.get(reason).copied().unwrap_or(0)
    }

    /// Reasons and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(reason, n)| (*reason, *n))
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comm_ends_at_its_nul_and_after_15_bytes() {
        assert_eq!(Comm::new(b"tokio\0rest").bytes(), b"tokio");
        assert_eq!(Comm::new(&[b'a'; 40]).bytes(), [b'a'; 15]);
        assert_eq!(Comm::new(b"").bytes(), b"");
    }

    #[test]
    fn losses_add_up_by_reason() {
        let mut losses = Losses::default();
        losses.add("ring_full", 2);
        losses.add("ring_full", 3);
        losses.add("no_process", 0);
        let mut all = losses.clone();
        all.merge(&losses);
        assert_eq!(all.iter().collect::<Vec<_>>(), [("ring_full", 10)]);
        assert_eq!(all.total(), 10);
    }
}
