//! Sampling by perf events alone: the kernel copies registers and the top of the stack into a ring, and we walk the
//! copy. For hosts that deny BPF, for processes without any privilege (their own user's), and as the truth that the BPF
//! sampler is held against.
//!
//! | file | job |
//! |---|---|
//! | `sys` | the system calls and their structures |
//! | `open` | which events, by what is permitted |
//! | `ring` | the ring of one CPU |
//! | `record` | records as values |
//! | `collect` | records to samples; keeps the table of processes true |
//! | `sideband` | the same without samples, for a sampler that takes them elsewhere |

mod collect;
mod floods;
mod open;
mod record;
mod ring;
mod sideband;
mod sys;

pub(crate) use sideband::{Foreign, Sideband};

use crate::process::Processes;
use crate::{Batch, Error, Event, Sampler, SamplerOptions};
use collect::Collector;
use open::Events;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The rings are read at least this often.
const TURN: Duration = Duration::from_millis(100);
/// New processes of the same user are looked for this often, where the kernel does not tell of them.
const SCAN: Duration = Duration::from_secs(1);

/// Whether this machine has the event, and this process may count it.
pub(crate) fn try_event(event: Event) -> std::io::Result<()> {
    open::try_event(event)
}

/// Any bytes as a record: [`crate::hostile`].
pub(crate) fn hostile(input: &[u8]) {
    let record = record::parse(input);
    let _ = (
        record.changes(),
        record::maps(input),
        record::time_ns(input),
    );
    if let record::Record::Sample(sample) = record {
        assert!(sample.kernel().len() <= input.len() / 8 && sample.stack.len() <= input.len());
    }
}

/// The sampler; see the module.
pub struct PerfSampler {
    shared: Arc<Shared>,
    kernel: bool,
    thread: Option<JoinHandle<()>>,
}

/// Where some process maps memory without end, a ring asks to be read all the time.
pub(crate) const FLOOD_PAUSE: Duration = Duration::from_millis(10);

struct Shared {
    end: AtomicBool,
    collector: Mutex<Collector>,
}

impl Shared {
    fn collector(&self) -> MutexGuard<'_, Collector> {
        self.collector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl PerfSampler {
    /// Starts sampling: all CPUs where that is permitted, else the processes of this user, without the kernel's frames.
    ///
    /// # Errors
    /// When not even this process may be sampled.
    pub fn start(
        options: &SamplerOptions,
        processes: Arc<Processes>,
    ) -> Result<PerfSampler, Error> {
        let events = Events::open(options)?;
        let collector = Collector::new(options, processes);
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            collector: Mutex::new(collector),
        });
        let kernel = events.kernel();
        let name = "pilotlight-perf".to_owned();
        let run = {
            let shared = Arc::clone(&shared);
            move || run(events, &shared)
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|source| Error::Thread {
            what: "reading perf rings",
            source,
        })?;
        Ok(PerfSampler {
            shared,
            kernel,
            thread: Some(thread),
        })
    }

    /// Frames of the kernel are in the samples.
    pub fn has_kernel_frames(&self) -> bool {
        self.kernel
    }
}

impl Sampler for PerfSampler {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn drain(&mut self) -> Result<Batch, Error> {
        Ok(self.shared.collector().take())
    }
}

impl Drop for PerfSampler {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut events: Events, shared: &Shared) {
    let mut scanned = std::time::Instant::now();
    while !shared.end.load(Ordering::Relaxed) {
        events.wait(TURN);
        if scanned.elapsed() >= SCAN {
            scanned = std::time::Instant::now();
            events.scan();
        }
        // What is newer stays for the next turn: another ring may hold something older.
        let until_ns = sys::monotonic_ns();
        let mut collector = shared.collector();
        for ring in events.rings() {
            ring.read(&mut |bytes| collector.add(bytes));
        }
        collector.turn(until_ns);
        let flooded = collector.is_flooded();
        drop(collector);
        if flooded {
            std::thread::sleep(FLOOD_PAUSE);
        }
    }
}
