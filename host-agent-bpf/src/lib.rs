//! The host agent's BPF programs: sampling of CPUs and walking of stacks inside the kernel.
//!
//! ```no_run
//! use pilotlight_agent_bpf::{Engine, Mapping, Options};
//! use pilotlight_unwind::Table;
//!
//! let mut engine = Engine::load(&Options::default())?;
//! let table = Table::from_elf(&std::fs::read("/usr/bin/python3.11")?)?;
//! let file = engine.tables().add_file(&table)?;
//! let code = Mapping { start: 0x400000, end: 0x800000, image_base: 0x400000, file };
//! engine.tables().set_process(1234, 1, &[code])?;
//! engine.attach()?;
//! std::thread::sleep(std::time::Duration::from_secs(10));
//! for counted in engine.drain()?.counted {
//!     println!("{} samples of {}", counted.samples, counted.pid);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who is responsible for what
//! - **The programs** (`c/`) take a stack at each tick of a CPU's clock, walk it by the rows of
//!   `docs/formats/unwind-table.md`, and count equal ones. Processes that they do not know they hand out as registers
//!   and a copy of the stack.
//! - **This crate** loads them, puts tables and mappings where they look, and takes out what they counted.
//! - **The agent** knows processes and files: which tables to hand over, and what to do with samples.
//!
//! # Map
//! | module | job |
//! |---|---|
//! | `load` | from the object to attached programs |
//! | `layout` | what C and Rust lay out alike |
//! | `space` | pieces of memory shared with the kernel |
//! | `tables` | rows of files, mappings of processes |
//! | `runtime` | interpreters, and the words of their frames |
//! | `drain` | counts, stacks, raw samples, losses |
//! | `sys` | system calls that aya has no form of |

mod drain;
mod error;
mod layout;
mod load;
mod namespace;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod needs;
mod runtime;
mod space;
mod sys;
mod tables;

pub use drain::{Check, Counted, Raw, StackFrames};
pub use error::Error;
pub use runtime::{Interpreted, Offsets, Runtime, check, is_interpreted};
pub use tables::{FileNumber, Mapping, TableSize, Tables, directory_entry};

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// What to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What a tick is.
    pub event: Event,
    /// Only this process.
    pub only_pid: Option<u32>,
    /// Ticks of idle CPUs too.
    pub idle: bool,
    /// Frames of the kernel too.
    pub kernel: bool,
    /// Threads are told apart; else samples of all threads of a process are added up.
    pub by_thread: bool,
    /// Waits too.
    pub off_cpu: Option<OffCpu>,
    /// The share of samples, 0 to 1, that is handed out to be walked a second time: [`Engine::checks`].
    pub verify: f64,
    /// Kernel memory for tables and mappings, in bytes.
    pub table_budget_bytes: u64,
}

/// A perf event, and how many of it make a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `type` of `perf_event_attr`.
    pub kind: u32,
    /// `config` there.
    pub config: u64,
    /// `sample_period` there.
    pub period: u64,
}

impl Event {
    /// The clock of each logical CPU, `frequency_hz` times a second: 1–997.
    pub fn clock(frequency_hz: u32) -> Event {
        Event {
            // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK
            kind: 1,
            config: 0,
            period: 1_000_000_000 / u64::from(frequency_hz.clamp(1, 997)),
        }
    }
}

/// Which waits to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffCpu {
    /// Shorter waits are left out, nanoseconds.
    pub min_ns: u64,
    /// The share of waits that is looked at, 0 to 1.
    pub chance: f64,
}

impl Default for OffCpu {
    fn default() -> Self {
        OffCpu {
            min_ns: 1_000_000,
            chance: 1.0,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            event: Event::clock(19),
            only_pid: None,
            idle: false,
            kernel: true,
            by_thread: false,
            off_cpu: None,
            verify: 0.0,
            table_budget_bytes: 64 << 20,
        }
    }
}

/// What happened since the last [`Engine::drain`].
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Samples that were walked in the kernel.
    pub counted: Vec<Counted>,
    /// Samples to be walked here, those that [`Engine::raw`] did not hand out before.
    pub raw: Vec<Raw>,
    /// Counters of the programs by name: `ticks` = `idle` + `counted` + `raw` + `counts_full` + `other_process` +
    /// `no_scratch`; losses; `end_` and why walks ended.
    pub counters: Vec<(&'static str, u64)>,
    /// Samples of [`Drained::counted`] that lack a stack that was not received.
    pub without_stack: u64,
}

impl Drained {
    /// A counter by its name; 0 when there is none.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|(counter, _)| *counter == name);
        found.map_or(0, |(_, n)| *n)
    }
}

/// Loaded programs. Dropping them ends sampling.
pub struct Engine {
    loaded: load::Loaded,
    tables: Tables,
    drain: drain::Drain,
    options: Options,
}

impl Engine {
    /// Has the kernel verify the programs and makes their maps. Nothing is sampled before [`Engine::attach`].
    ///
    /// # Errors
    /// When the kernel refuses: without CAP_BPF and CAP_PERFMON, without BTF, before 5.10.
    pub fn load(options: &Options) -> Result<Engine, Error> {
        let loaded = load::Loaded::new(options)?;
        Ok(Engine {
            tables: Tables::new(&loaded, options.table_budget_bytes)?,
            loaded,
            drain: drain::Drain::new(),
            options: *options,
        })
    }

    /// Begins sampling.
    ///
    /// # Errors
    /// When perf events are refused.
    pub fn attach(&mut self) -> Result<(), Error> {
        self.loaded.attach(&self.options)
    }

    /// Stacks with frames of interpreters that came since the last call, with their processes. What they point at may be
    /// gone soon: it is read at once or not at all.
    pub fn interpreted(&mut self) -> Vec<(u32, std::sync::Arc<StackFrames>)> {
        self.drain.interpreted()
    }

    /// Samples that were walked in the kernel and are to be walked here too, as of the last [`Engine::raw`] or
    /// [`Engine::drain`]. They are counted like all others.
    pub fn checks(&mut self) -> Vec<Check> {
        self.drain.checks()
    }

    /// Where tables and mappings go.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Takes what could not be walked so far, without waiting.
    pub fn raw(&mut self) -> Vec<Raw> {
        self.drain.ring(&mut self.loaded)
    }

    /// Readable when [`Engine::raw`] has something to give.
    pub fn wakeup(&self) -> RawFd {
        self.loaded.ring.as_raw_fd()
    }

    /// Takes everything out.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn drain(&mut self) -> Result<Drained, Error> {
        let tables = &mut self.tables;
        let counts = self
            .drain
            .counts(&mut self.loaded, || tables.wait_for_programs())?;
        self.tables.set_window(self.drain.window());
        let raw = self.drain.ring(&mut self.loaded);
        let (counted, without_stack) = self.drain.named(counts, &self.loaded);
        Ok(Drained {
            counted,
            raw,
            counters: self.drain.counters(&self.loaded)?,
            without_stack,
        })
    }

    /// What the kernel says of a program: instructions that the verifier looked at, nanoseconds it took to load, run time
    /// and runs so far (0 unless run-time statistics are on).
    pub fn programs(&self) -> Vec<ProgramFigures> {
        let figures = |(name, program): (&str, &aya::programs::Program)| {
            let info = program.info().ok()?;
            Some(ProgramFigures {
                name: name.to_owned(),
                verified_instructions: info.verified_instruction_count().unwrap_or(0),
                instructions: info.size_translated().unwrap_or(0) / 8,
                run_time_ns: info.run_time().as_nanos() as u64,
                runs: info.run_count(),
            })
        };
        self.loaded.ebpf.programs().filter_map(figures).collect()
    }
}

/// See [`Engine::programs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFigures {
    /// Name in the object.
    pub name: String,
    /// What the verifier looked at.
    pub verified_instructions: u32,
    /// What it accepted.
    pub instructions: u32,
    /// Nanoseconds spent in the program.
    pub run_time_ns: u64,
    /// How often it ran.
    pub runs: u64,
}

/// The number of each BPF program of this machine, and nanoseconds spent in it while statistics were on.
pub fn run_times() -> Vec<(u32, u64)> {
    let times = |program: aya::programs::ProgramInfo| {
        let run_time_ns = program.run_time().as_nanos() as u64;
        (program.id(), run_time_ns)
    };
    aya::programs::loaded_programs()
        .flatten()
        .map(times)
        .collect()
}

/// Run time of BPF programs is counted, machine-wide, while the value lives; costs some 20 ns a run.
///
/// # Errors
/// Without CAP_SYS_ADMIN.
pub fn enable_run_time_statistics() -> std::io::Result<OwnedFd> {
    sys::enable_stats()
}
