//! Which events are opened: of all CPUs where that is permitted, else of one process after the other.

use super::ring::Ring;
use super::sys::{self, Attributes, flag, sample};
use crate::{Error, Event, SamplerOptions};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// rbx, rbp, rsp, rip (`arch/x86/include/uapi/asm/perf_regs.h`).
pub(super) const REGISTERS: u64 = 1 << 1 | 1 << 6 | 1 << 7 | 1 << 8;
/// Bytes of each stack that are copied. 102 frames of the deepest test program take 10 KiB.
const STACK_BYTES: u32 = 32 << 10;
/// A ring holds the samples of this many seconds, and is read ten times a second.
const RING_SECONDS: u64 = 1;

/// All open events.
pub(super) struct Events {
    rings: Vec<(i32, Ring)>,
    /// Events of single threads, whose records go to the rings of their CPUs.
    threads: Vec<OwnedFd>,
    attributes: Attributes,
    /// Threads that have events, or cannot have.
    attached: HashSet<u32>,
    /// Processes of this user are looked for again and again.
    scans: bool,
}

impl Events {
    pub fn open(options: &SamplerOptions) -> Result<Events, Error> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::Unavailable {
                what: "sampling by perf events",
                reason: "stacks are copied on x86-64 only so far".to_owned(),
            });
        }
        let mut attributes = attributes(options);
        let ring_bytes = ring_bytes(options.frequency_hz);
        if options.pids.is_empty() {
            match Events::of_cpus(&attributes, ring_bytes) {
                Ok(events) => return Ok(events),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(refused("all CPUs", error)),
            }
        }
        // Whether the kernel may be seen is tried out on this thread.
        if sys::open(&attributes, 0, -1).is_err() {
            attributes.flags |= flag::EXCLUDE_KERNEL | flag::EXCLUDE_KERNEL_CHAIN;
        }
        Events::of_processes(attributes, ring_bytes, &options.pids)
    }

    /// What processes do, on all CPUs, without samples.
    pub fn without_samples(options: &SamplerOptions) -> Result<Events, Error> {
        let attributes = Attributes {
            kind: sys::SOFTWARE,
            config: sys::DUMMY,
            sample_period: 0,
            sample_type: sample::TID | sample::TIME,
            wakeup_watermark: 4096,
            ..attributes(options)
        };
        Events::of_cpus(&attributes, 512 << 10).map_err(|error| refused("all CPUs", error))
    }

    fn of_cpus(attributes: &Attributes, ring_bytes: usize) -> io::Result<Events> {
        let mut rings = Vec::new();
        for cpu in online_cpus() {
            let event = sys::open(attributes, -1, cpu)?;
            rings.push((cpu, Ring::new(event, ring_bytes)?));
        }
        for (_, ring) in &rings {
            sys::enable(ring.event())?;
        }
        Ok(Events {
            rings,
            threads: Vec::new(),
            attributes: attributes.clone(),
            attached: HashSet::new(),
            scans: false,
        })
    }

    /// Rings that nobody writes to belong to this process; the events of threads write there.
    fn of_processes(
        mut attributes: Attributes,
        ring_bytes: usize,
        pids: &[u32],
    ) -> Result<Events, Error> {
        let holder = Attributes {
            kind: sys::SOFTWARE,
            config: sys::DUMMY,
            sample_period: 0,
            flags: attributes.flags & (flag::EXCLUDE_KERNEL | flag::USE_CLOCK_ID | flag::WATERMARK),
            sample_type: sample::TID | sample::TIME,
            ..attributes.clone()
        };
        let mut rings = Vec::new();
        for cpu in online_cpus() {
            let ring = sys::open(&holder, 0, cpu).and_then(|event| Ring::new(event, ring_bytes));
            rings.push((cpu, ring.map_err(|error| refused("this process", error))?));
        }
        // Children and new threads are followed from here on.
        attributes.flags |= flag::INHERIT;
        let mut events = Events {
            rings,
            threads: Vec::new(),
            attributes,
            attached: HashSet::new(),
            scans: pids.is_empty(),
        };
        for &pid in pids {
            events
                .attach(pid)
                .map_err(|error| refused(&format!("process {pid}"), error))?;
        }
        events.scan();
        Ok(events)
    }

    pub fn kernel(&self) -> bool {
        self.attributes.flags & flag::EXCLUDE_KERNEL == 0
    }

    pub fn rings(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.rings.iter_mut().map(|(_, ring)| ring)
    }

    /// Readable when a ring asks to be read.
    pub fn descriptors(&self) -> Vec<i32> {
        let descriptor = |(_, ring): &(i32, Ring)| ring.event().as_raw_fd();
        self.rings.iter().map(descriptor).collect()
    }

    /// Waits until a ring asks to be read, `longest` at most.
    pub fn wait(&self, longest: Duration) {
        let poll = |(_, ring): &(i32, Ring)| libc::pollfd {
            fd: ring.event().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls: Vec<libc::pollfd> = self.rings.iter().map(poll).collect();
        // SAFETY: as many entries as said.
        let ready = unsafe {
            libc::poll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                longest.as_millis() as i32,
            )
        };
        // Events of threads that ended report a hang-up for ever.
        let hung = polls
            .iter()
            .any(|p| p.revents != 0 && p.revents & libc::POLLIN == 0);
        if ready < 0 || hung {
            std::thread::sleep(longest);
        }
    }

    /// Attaches to the processes of this user that began since the last time.
    pub fn scan(&mut self) {
        if !self.scans {
            return;
        }
        // SAFETY: no preconditions.
        let user = unsafe { libc::geteuid() };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for entry in entries {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let mine = entry.metadata().is_ok_and(|data| data.uid() == user);
            if let Some(pid) = pid.filter(|pid| mine && !self.attached.contains(pid)) {
                // It may have ended, or be out of reach.
                let _ = self.attach(pid);
            }
        }
    }

    fn attach(&mut self, pid: u32) -> io::Result<()> {
        self.attached.insert(pid);
        let mut result = Ok(());
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let tid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(tid) = tid {
                result = self.attach_thread(tid).or(result);
            }
        }
        result
    }

    fn attach_thread(&mut self, tid: i32) -> io::Result<()> {
        for (cpu, ring) in &self.rings {
            let event = sys::open(&self.attributes, tid, *cpu)?;
            sys::redirect(&event, ring.event())?;
            sys::enable(&event)?;
            self.threads.push(event);
        }
        Ok(())
    }
}

/// Whether this machine has the event: opened once, on this thread, and closed.
pub(super) fn try_event(event: Event) -> io::Result<()> {
    let (kind, config) = event.perf();
    let attributes = Attributes {
        kind,
        config,
        sample_period: event.period(1),
        flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HYPERVISOR,
        ..Attributes::default()
    };
    sys::open(&attributes, 0, -1).map(drop)
}

fn attributes(options: &SamplerOptions) -> Attributes {
    let (kind, config) = options.event.perf();
    let mut flags = flag::DISABLED
        | flag::EXCLUDE_HYPERVISOR
        | flag::EXCLUDE_IDLE
        | flag::MMAP
        | flag::MMAP2
        | flag::COMM
        | flag::COMM_EXEC
        | flag::TASK
        | flag::WATERMARK
        | flag::SAMPLE_ID_ALL
        | flag::USE_CLOCK_ID
        | flag::EXCLUDE_USER_CHAIN;
    if !options.kernel {
        flags |= flag::EXCLUDE_KERNEL_CHAIN;
    }
    Attributes {
        kind,
        config,
        sample_period: options.event.period(options.frequency_hz),
        sample_type: sample::TID
            | sample::TIME
            | sample::CALLCHAIN
            | sample::REGISTERS
            | sample::STACK,
        flags,
        wakeup_watermark: (ring_bytes(options.frequency_hz) / 4) as u32,
        sample_regs_user: REGISTERS,
        sample_stack_user: STACK_BYTES,
        clock_id: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    }
}

fn ring_bytes(frequency_hz: u32) -> usize {
    let bytes = u64::from(frequency_hz) * u64::from(STACK_BYTES) * RING_SECONDS;
    // 512 KiB a CPU is what a user without privileges may lock.
    (bytes.next_power_of_two() as usize).clamp(256 << 10, 512 << 10)
}

fn online_cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpus(text.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// `0-3,8`.
fn parse_cpus(text: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?.min(8191))
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn refused(what: &str, source: io::Error) -> Error {
    let next = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "give the agent CAP_PERFMON, or lower kernel.perf_event_paranoid to 2; `pilotlight doctor` says what is missing"
        }
        Some(libc::EMFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ESRCH) => "there is no such process",
        _ => "`pilotlight doctor` says what this system permits",
    };
    Error::Perf {
        what: what.to_owned(),
        source,
        next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_cpus("0"), [0]);
        assert_eq!(parse_cpus("x"), [0i32; 0]);
    }
}
