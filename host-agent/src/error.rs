//! What can go wrong, in words that say what to do.

use std::io;

/// Why the agent or a part of it cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refuses perf events.
    #[error("perf_event_open for {what}: {source}; {next}")]
    Perf {
        /// What was to be sampled.
        what: String,
        /// The kernel's answer.
        source: io::Error,
        /// What to do.
        next: &'static str,
    },
    /// A file of the agent's own or of `/proc` cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file of a process is no ELF image that can be read.
    #[error("{path}: {reason}")]
    File {
        /// Which file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// This way of sampling does not exist here.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// The way of sampling.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A thread of the agent cannot be started.
    #[error("no thread for {what}: {source}")]
    Thread {
        /// Its job.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}
