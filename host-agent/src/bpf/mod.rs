//! Sampling by BPF: stacks are walked and counted inside the kernel (`pilotlight-agent-bpf`). What it cannot walk, for
//! want of tables or mappings, comes as registers and stack, is walked here, and makes that the kernel can next time.
//!
//! | file | job |
//! |---|---|
//! | `publish` | processes and tables, kept true in the kernel |
//! | `queue` | processes whose tables are to be made ready |
//! | `samples` | counts to samples, counters to losses |

mod publish;
mod queue;
mod samples;

use crate::perf::{FLOOD_PAUSE, Foreign, Sideband};
use crate::process::{ProcessId, Processes};
use crate::verify::{Verdict, verdict};
use crate::{Batch, Error, Losses, Sampler, SamplerOptions};
use pilotlight_agent_bpf::{Engine, Event, OffCpu, Options, Raw, TableSize};
pub use pilotlight_agent_bpf::{enable_run_time_statistics, run_times};
use publish::Publisher;
use queue::Queue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What happened is looked at this often, or when there is much of it.
const TURN_MS: i32 = 50;
/// Tables are made by so many threads: a compiler need not wait for the tables of a browser.
const BUILDERS: usize = 2;
/// Samples that wait for tables; those beyond are walked when tables have been made in between.
const MOST_HELD: usize = 2048;
/// A copy of a stack that is shorter ends where the stack does.
const FULL_COPY_BYTES: usize = (16 << 10) - 4096;

/// The sampler; see the module.
pub struct BpfSampler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    end: AtomicBool,
    /// Tables were made since the last drain.
    made: AtomicBool,
    state: Mutex<State>,
    queue: Queue,
    processes: Arc<Processes>,
}

struct State {
    engine: Engine,
    sideband: Sideband,
    publisher: Publisher,
    processes: Arc<Processes>,
    pids: Vec<u32>,
    period: u64,
    /// What the thread met; handed out by the next drain.
    failed: Option<pilotlight_agent_bpf::Error>,
    /// Samples of processes whose tables are being made.
    held: Vec<Raw>,
    /// Tables that found no room any more, up to the last drain.
    evicted: u64,
    /// Waits that the kernel could not walk, since the last drain.
    waits: u64,
    /// What came of walking twice, since the last drain.
    verified: Losses,
}

impl BpfSampler {
    /// Loads the programs and starts sampling all CPUs.
    ///
    /// # Errors
    /// When the kernel refuses: without CAP_BPF and CAP_PERFMON, before 5.10, without BTF.
    pub fn start(options: &SamplerOptions, processes: Arc<Processes>) -> Result<BpfSampler, Error> {
        let mut engine = load(options)?;
        // What happens from now on is told; what was before is read once.
        let sideband = Sideband::open(options, Arc::clone(&processes))?;
        processes.read_all();
        let mut descriptors = sideband.descriptors();
        descriptors.push(engine.wakeup());
        engine.attach().map_err(unavailable)?;
        let state = State {
            engine,
            sideband,
            publisher: Publisher::default(),
            processes: Arc::clone(&processes),
            pids: options.pids.clone(),
            period: options.event.period(options.frequency_hz),
            failed: None,
            held: Vec::new(),
            evicted: 0,
            waits: 0,
            verified: Losses::default(),
        };
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            made: AtomicBool::new(false),
            state: Mutex::new(state),
            queue: Queue::default(),
            processes,
        });
        let mut sampler = BpfSampler {
            shared,
            threads: Vec::new(),
        };
        sampler.spawn("pilotlight-bpf", move |shared| run(shared, &descriptors))?;
        for _ in 0..BUILDERS {
            sampler.spawn("pilotlight-tabs", build)?;
        }
        Ok(sampler)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(&shared));
        self.threads.push(thread.map_err(|source| Error::Thread {
            what: "sampling by BPF",
            source,
        })?);
        Ok(())
    }

    /// What the tables in the kernel take.
    pub fn tables(&self) -> TableSize {
        self.shared.state().engine.tables().size()
    }

    /// What the kernel says of the programs.
    pub fn programs(&self) -> Vec<pilotlight_agent_bpf::ProgramFigures> {
        self.shared.state().engine.programs()
    }
}

/// Has the kernel verify the programs, without sampling: to see whether it would, and what that takes.
///
/// # Errors
/// As of [`BpfSampler::start`].
pub fn load(options: &SamplerOptions) -> Result<Engine, Error> {
    Engine::load(&engine_options(options)).map_err(unavailable)
}

fn engine_options(options: &SamplerOptions) -> Options {
    let only = match options.pids[..] {
        [pid] => Some(pid),
        _ => None,
    };
    let (kind, config) = options.event.perf();
    Options {
        event: Event {
            kind,
            config,
            period: options.event.period(options.frequency_hz),
        },
        only_pid: only,
        kernel: options.kernel,
        by_thread: true,
        off_cpu: options.off_cpu_threshold_ns.map(|min_ns| OffCpu {
            min_ns,
            chance: 1.0,
        }),
        verify: options.verify,
        ..Options::default()
    }
}

fn unavailable(error: pilotlight_agent_bpf::Error) -> Error {
    Error::Unavailable {
        what: "sampling by BPF",
        reason: error.to_string(),
    }
}

impl Sampler for BpfSampler {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn drain(&mut self) -> Result<Batch, Error> {
        let batch = self.shared.state().drain().map_err(unavailable);
        if self.shared.made.swap(false, Ordering::Relaxed) {
            give_back_memory();
        }
        batch
    }
}

impl Drop for BpfSampler {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(shared: &Shared, descriptors: &[i32]) {
    while !shared.end.load(Ordering::Relaxed) {
        wait(descriptors);
        let mut state = shared.state();
        let raw = state.engine.raw();
        let changed = state.turn(raw);
        let flooded = state.sideband.is_flooded();
        drop(state);
        shared.queue.add(changed);
        if flooded {
            std::thread::sleep(FLOOD_PAUSE);
        }
    }
}

/// Makes tables ready and hands them to the kernel, a process after the other.
fn build(shared: &Shared) {
    while let Some(pid) = shared.queue.next() {
        // What takes long is done without the lock.
        let _ = shared.processes.modules(pid);
        shared.made.store(true, Ordering::Relaxed);
        let mut state = shared.state();
        if let Err(error) = state.publish(pid) {
            state.failed = Some(error);
        }
    }
}

/// Making a table takes several times its size for a moment. The C library keeps what was freed, in the arena of each
/// thread: it is made to return whole pages.
fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn wait(descriptors: &[i32]) {
    let poll = |&fd: &i32| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = descriptors.iter().map(poll).collect();
    let count = polls.len() as libc::nfds_t;
    // SAFETY: as many entries as said.
    if unsafe { libc::poll(polls.as_mut_ptr(), count, TURN_MS) } < 0 {
        std::thread::sleep(Duration::from_millis(TURN_MS as u64));
    }
}

impl State {
    /// Brings what processes did and what could not be walked into order. Returns the processes whose tables are to be
    /// made ready.
    fn turn(&mut self, raw: Vec<Raw>) -> Vec<u32> {
        let mut pids = Vec::new();
        for sample in raw {
            if !self.wants(sample.pid) {
                continue;
            }
            if sample.waiting.is_some() {
                self.waits += 1;
                continue;
            }
            pids.push(sample.pid);
            if self.processes.is_ready(sample.pid) || self.held.len() >= MOST_HELD {
                self.sideband.add(&foreign(&sample));
            } else {
                self.held.push(sample);
            }
        }
        self.name_interpreted();
        self.verify();
        pids.extend(self.sideband.turn());
        pids.retain(|&pid| self.wants(pid));
        pids
    }

    /// Walks again what the kernel gave out for that.
    fn verify(&mut self) {
        for check in self.engine.checks() {
            let id = ProcessId {
                pid: check.raw.pid,
                image: u64::from(check.image),
            };
            let modules = self.processes.ready(id);
            let verdict = modules.map_or(Verdict::Unknown, |modules| verdict(&check, &modules));
            self.verified.add(verdict.name(), 1);
        }
    }

    /// Reads what the frames of new stacks are of, while it is there.
    fn name_interpreted(&mut self) {
        for (pid, stack) in self.engine.interpreted() {
            if let Some(id) = self.processes.known(pid) {
                self.processes.runtimes().numbered(id, &stack.frames);
            }
        }
    }

    fn publish(&mut self, pid: u32) -> Result<(), pilotlight_agent_bpf::Error> {
        for sample in self.held.extract_if(.., |sample| sample.pid == pid) {
            self.sideband.add(&foreign(&sample));
        }
        self.publisher
            .update(pid, self.engine.tables(), &self.processes)
    }

    fn wants(&self, pid: u32) -> bool {
        self.pids.is_empty() || self.pids.contains(&pid)
    }

    fn drain(&mut self) -> Result<Batch, pilotlight_agent_bpf::Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut drained = self.engine.drain()?;
        // Processes of these samples are made ready by the next that come.
        self.turn(std::mem::take(&mut drained.raw));
        let refused = self.publisher.sweep(self.engine.tables())?;
        let mut batch = self.sideband.take();
        batch.losses.add("no_room_for_mappings", refused);
        batch
            .losses
            .add("wait_not_walked", std::mem::take(&mut self.waits));
        samples::losses(&drained, &mut batch.losses);
        for (name, count) in &drained.counters {
            batch.met.add(name, *count);
        }
        batch.met.merge(&std::mem::take(&mut self.verified));
        let evicted = self.engine.tables().size().evicted;
        let before = std::mem::replace(&mut self.evicted, evicted);
        batch.met.add("tables_evicted", evicted - before);
        for counted in &drained.counted {
            if self.wants(counted.pid) {
                let sample = samples::sample(counted, &self.processes, &batch, self.period);
                match sample {
                    Some(sample) => batch.samples.push(sample),
                    None => batch.losses.add("no_process", counted.samples),
                }
            }
        }
        Ok(batch)
    }
}

fn foreign(raw: &Raw) -> Foreign<'_> {
    Foreign {
        pid: raw.pid,
        tid: raw.tid,
        time_ns: raw.time_ns,
        in_kernel: !raw.exact,
        registers: raw.registers,
        kernel: raw.kernel.as_ref().map_or(&[], |stack| &stack.frames),
        stack: &raw.stack,
        stack_full: raw.stack.len() > FULL_COPY_BYTES,
    }
}
