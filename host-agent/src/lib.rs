//! Profiles every process of a host from outside: no change to them, no restart, nothing loaded into them.
//!
//! ```no_run
//! use pilotlight_host_agent::{Agent, Options};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = pilotlight_wire::Url::parse("http://127.0.0.1:4040/")?;
//! let agent = Agent::start(Options::new(server))?; // inside a tokio runtime
//! println!("sampling by {}", agent.sampler());
//! # Ok(()) }
//! ```
//!
//! # Who is responsible for what
//! - A [`Sampler`] interrupts CPUs and hands out stacks of addresses, with a process, a thread and a weight, and counts
//!   what it lost, by reason. There are two: by BPF (`bpf`), and by perf events alone ([`perf`]).
//! - [`process`] knows which processes there are and what is mapped in them; [`files`] reads what is mapped, once a
//!   file, whatever its size, through doors that a deleted or replaced file still has.
//! - [`unwind`] walks copied stacks; [`verify`] does so with some that the kernel walked too. `export` makes profiles of batches and gets them to a server.
//! - [`runtimes`]: interpreters, and the frames of scripts.
//! - [`names`]: of the kernel, and of code that runtimes made. Those of native code are the server's job: addresses
//!   leave with build id and file offset.
//!
//! Every profiled process is hostile input: each length that is read from one has a limit (`limits`).

mod agent;
pub mod bpf;
mod calls;
pub mod confine;
mod disk;
pub mod doctor;
mod error;
mod event;
mod export;
pub mod files;
#[doc(hidden)]
pub mod hostile;
pub mod labels;
pub mod limits;
mod metrics;
pub mod names;
pub mod perf;
pub mod privileges;
pub mod process;
pub mod runtimes;
mod sampler;
pub mod unwind;
mod upload;
pub mod verify;

pub use agent::{Agent, Instead, Options};
pub use error::Error;
pub use event::Event;
pub use export::{Counters, Protocol};
pub use sampler::{Batch, Comm, Losses, Sample, Sampler, SamplerOptions, Why};
pub use upload::{UploadCounters, UploadOptions};
