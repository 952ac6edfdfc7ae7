//! Which processes there are, what runs in them, and what is mapped where.
//!
//! Samplers tell what they see happen ([`Processes::forked`] and so on); whatever nobody told is read from `/proc` when
//! it is asked for. A process that ended is remembered until its last samples have been exported.

mod context;
mod entry;
mod maps;
mod proc;
mod table;
mod variables;

pub use context::{Context, read_context};
pub use maps::{Mapping, parse_maps};
pub(crate) use proc::read as read_proc;
pub use table::Processes;
pub use variables::read_variables;

use crate::sampler::Comm;
use std::sync::Arc;

/// Everything here that reads what a process may forge: [`crate::hostile`].
pub(crate) fn hostile(input: &[u8]) {
    context::hostile(input);
    variables::hostile(input);
    proc::hostile(input);
}

/// One program in one process: a pid that is used again, or that executes another program, gets another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// Process id as the agent sees it.
    pub pid: u32,
    /// Number that [`Processes`] gave to this program.
    pub image: u64,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Which.
    pub id: ProcessId,
    /// Name of its first thread.
    pub comm: Comm,
    /// Path of its program in its own file system; empty for kernel threads and where it cannot be read.
    pub exe: Vec<u8>,
    /// Start, in clock ticks since boot; 0 when it ended before it could be read.
    pub start_ticks: u64,
    /// Its pid in each of its pid namespaces, outermost first; empty where that cannot be read.
    pub namespace_pids: Vec<u32>,
    /// The text of `/proc/PID/cgroup`.
    pub cgroup: Vec<u8>,
    /// Executable mappings, by address, without overlaps.
    pub mappings: Arc<Vec<Mapping>>,
}

impl Process {
    /// The executable mapping that holds `address`.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        let above = self.mappings.partition_point(|m| m.start <= address);
        let mapping = self.mappings.get(above.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }
}
