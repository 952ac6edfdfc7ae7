//! Interpreters: frames of scripts, which native unwinding cannot see.
//!
//! A runtime is known by what its files export, whatever they are called ([`Known`]). Of those whose frames can be
//! walked, the BPF programs put addresses of code objects into stacks where the interpreter's loop is; here they become
//! functions with file and line, as soon as a stack is new, since a code object may be gone a moment later.
//!
//! | file | job |
//! |---|---|
//! | `known` | the table of runtimes |
//! | `symbols` | what an ELF file exports, looked up by its hash table |
//! | `memory` | what is read of a process |
//! | `python` | CPython: its structures, code objects and texts |
//! | `offsets` | where things are in them, by version; made by `python-offsets.sh` |
//! | `lines` | from an instruction to its line |
//! | `survey` | which runtimes there are on this host |
//! | `frames` | the frames of one process, by number |

mod frames;
mod hostile;
mod known;
mod lines;
mod memory;
mod offsets;
mod python;
mod survey;
mod symbols;

pub use frames::{Frame, Function};
pub use known::{Found, Known, Support, find};
pub use lines::line_of;
pub use python::Python;
pub(crate) use survey::{Hiding, hiding};
pub use survey::{Seen, survey};

pub(crate) use hostile::hostile;
#[cfg(test)]
pub(crate) use hostile::memory_of_python;

use crate::files::Code;
use crate::process::ProcessId;
use frames::Frames;
use pilotlight_agent_bpf::Runtime;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The interpreters of all processes. Shared by threads.
#[derive(Debug, Default)]
pub struct Runtimes(Mutex<HashMap<ProcessId, Frames>>);

impl Runtimes {
    /// What the BPF programs need to know to walk the frames of an interpreter in process `id`, which maps `code`; `None` where there is none,
    /// or none whose frames can be walked.
    pub fn of(&self, id: ProcessId, code: &Code) -> Option<Runtime> {
        let known = self.lock().get(&id).map(Frames::runtime);
        if known.is_some() {
            return known;
        }
        let python = code.files().find_map(|(mapping, file)| {
            let found = file.runtime.as_ref().filter(|found| found.is_walked())?;
            Python::open(id.pid, found, file.bias(mapping)?)
        })?;
        let runtime = python.runtime();
        self.lock().insert(id, Frames::new(python));
        Some(runtime)
    }

    /// A stack whose frames of interpreters are numbers ([`is_frame`]); those are read now, unless they are known.
    pub fn numbered(&self, id: ProcessId, words: &[u64]) -> Vec<u64> {
        match self.lock().get_mut(&id) {
            Some(frames) => frames.numbered(words),
            None => frames::without_names(words),
        }
    }

    /// The frame of a number in a stack of `id`.
    pub fn frame(&self, id: ProcessId, number: u64) -> Option<Frame> {
        self.lock().get(&id)?.frame(number)
    }

    /// Forgets all processes but those that `is_used`.
    pub fn sweep(&self, is_used: impl Fn(ProcessId) -> bool) {
        self.lock().retain(|id, _| is_used(*id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProcessId, Frames>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An element of [`crate::Sample::user`] is the number of an interpreter's frame, not an address.
pub fn is_frame(word: u64) -> bool {
    word >> 56 == frames::NUMBER >> 56
}
