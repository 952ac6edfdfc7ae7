//! What the programs counted, and what they could not walk.

use crate::layout::{
    self, COUNTERS, COUNTS, Control, Count, Key, LEAF_FRAMES, RECORD_CHECK, RECORD_KERNEL_STACK,
    RECORD_RAW, RECORD_USER_STACK, ROOT_FRAMES, RawHeader, STACK_HEADER, StackHeader,
};
use crate::load::Loaded;
use crate::{Error, is_interpreted, sys};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

/// One stack, shared by all its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackFrames {
    /// Leaf first; of return addresses 1 less, so that each lies in the instruction to be named. Where frames are
    /// missing between leaf and root, [`StackFrames::missing`] says after how many and how many. A frame of an interpreter
    /// takes two words ([`crate::Interpreted`]) and follows the frame of the native function that executes it.
    pub frames: Vec<u64>,
    /// Frames that were met but are not there: (index before which they are missing, how many).
    pub missing: Option<(usize, u32)>,
    /// The walk did not reach the root: why.
    pub cut: Option<&'static str>,
}

/// Equal samples of a window.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Process.
    pub pid: u32,
    /// Thread; 0 when threads are added up.
    pub tid: u32,
    /// What [`crate::Tables::set_process`] was told of the program; 0 for processes that it was told nothing of.
    pub image: u32,
    /// `None` for kernel threads, and where the stack was lost (then counted among the losses).
    pub user: Option<Arc<StackFrames>>,
    /// `None` where the kernel was not interrupted.
    pub kernel: Option<Arc<StackFrames>>,
    /// Off the CPU: the number of the system call that waited, if it was one.
    pub waiting: Option<Option<u32>>,
    /// Samples.
    pub samples: u64,
    /// Off the CPU: nanoseconds waited.
    pub waited_ns: u64,
}

/// A sample of a process without tables: registers and stack, to be walked in user space.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Process.
    pub pid: u32,
    /// Thread; 0 when threads are added up.
    pub tid: u32,
    /// As in [`Counted`].
    pub kernel: Option<Arc<StackFrames>>,
    /// As in [`Counted`].
    pub waiting: Option<Option<u32>>,
    /// Off the CPU: nanoseconds waited.
    pub waited_ns: u64,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// ip, sp, rbp, rbx.
    pub registers: pilotlight_unwind::Registers,
    /// `ip` was interrupted; else it is behind a system call instruction.
    pub exact: bool,
    /// Address of the first byte of [`Raw::stack`].
    pub stack_start: u64,
    /// Stack bytes, from the stack pointer up.
    pub stack: Vec<u8>,
    /// What the walk in the kernel lacked.
    pub lacked: Option<&'static str>,
}

/// A sample to be walked a second time.
#[derive(Clone, Debug)]
pub struct Check {
    /// What the kernel walked from.
    pub raw: Raw,
    /// As in [`Counted`].
    pub image: u32,
    /// What it came to.
    pub walked: Arc<StackFrames>,
}

/// Checks that wait to be taken.
const MOST_CHECKS: usize = 1024;

/// The frames of stacks by their hash. Bounded: what is not asked for any more goes, and is told to the kernel, which
/// sends it again when it is met again.
#[derive(Default)]
struct Stacks {
    known: HashMap<u64, (Arc<StackFrames>, u32)>,
}

/// Stacks that are remembered at most.
const MOST_STACKS: usize = 65_536;

impl Stacks {
    fn get(&mut self, hash: u64, window: u32) -> Option<Arc<StackFrames>> {
        let (stack, used) = self.known.get_mut(&hash)?;
        *used = window;
        Some(Arc::clone(stack))
    }

    /// Forgets what was not used in the last windows. The kernel is told first, and only a window later it is gone here:
    /// a program may just have found that it was sent.
    fn sweep(&mut self, window: u32, unsee: impl Fn(u64)) {
        let keep = if self.known.len() > MOST_STACKS { 0 } else { 6 };
        self.known.retain(|&hash, (_, used)| {
            let age = window.wrapping_sub(*used);
            if age > keep {
                unsee(hash);
            }
            age <= keep + 2
        });
    }
}

/// Reads what the programs leave.
pub(crate) struct Drain {
    stacks: Stacks,
    /// New stacks with frames of interpreters.
    interpreted: Vec<(u32, Arc<StackFrames>)>,
    checks: Vec<Check>,
    window: u32,
    before: [u64; COUNTERS.len()],
}

impl Drain {
    pub fn new() -> Drain {
        Drain {
            stacks: Stacks::default(),
            interpreted: Vec::new(),
            checks: Vec::new(),
            window: 0,
            before: [0; COUNTERS.len()],
        }
    }

    pub fn window(&self) -> u32 {
        self.window
    }

    /// See [`crate::Engine::interpreted`].
    pub fn interpreted(&mut self) -> Vec<(u32, Arc<StackFrames>)> {
        std::mem::take(&mut self.interpreted)
    }

    /// See [`crate::Engine::checks`].
    pub fn checks(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.checks)
    }

    /// Takes what is in the ring; new stacks are remembered, raw samples handed out.
    pub fn ring(&mut self, loaded: &mut Loaded) -> Vec<Raw> {
        let mut raw = Vec::new();
        while let Some(record) = loaded.ring.next() {
            match read_u32(&record, 0) {
                RECORD_USER_STACK | RECORD_KERNEL_STACK => self.remember(&record),
                RECORD_RAW => raw.extend(self.raw(&record)),
                RECORD_CHECK if self.checks.len() < MOST_CHECKS => {
                    let check = self.check(&record);
                    self.checks.extend(check);
                }
                _ => {}
            }
        }
        raw
    }

    fn remember(&mut self, record: &[u8]) {
        let header: StackHeader = read(record);
        let frames = record.get(STACK_HEADER..).unwrap_or(&[]).chunks_exact(8);
        let frames = frames.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let stack = in_order(frames.collect(), &header);
        let stack = Arc::new(stack);
        if stack.frames.iter().any(|&word| is_interpreted(word)) {
            self.interpreted.push((header.pid, Arc::clone(&stack)));
        }
        let entry = (stack, self.window);
        self.stacks.known.insert(header.hash, entry);
    }

    fn check(&mut self, record: &[u8]) -> Option<Check> {
        let key = read::<RawHeader>(record).key;
        Some(Check {
            raw: self.raw(record)?,
            image: key.image,
            walked: self.stacks.get(key.user, self.window)?,
        })
    }

    fn raw(&mut self, record: &[u8]) -> Option<Raw> {
        let header: RawHeader = read(record);
        let stack = record.get(size_of::<RawHeader>()..)?;
        let key = header.key;
        Some(Raw {
            pid: key.pid,
            tid: key.tid,
            kernel: self.stacks.get(key.kernel, self.window),
            waiting: waiting(&key),
            waited_ns: header.duration_ns,
            time_ns: header.time_ns,
            registers: pilotlight_unwind::Registers {
                ip: header.ip,
                sp: header.sp,
                bp: header.bp,
                bx: header.bx,
            },
            exact: header.exact != 0,
            stack_start: header.sp & !7,
            stack: stack.get(..header.bytes as usize)?.to_vec(),
            lacked: layout::cut(header.end),
        })
    }

    /// Turns the page: programs count in the other map from now on, and what they counted so far is taken.
    pub fn counts(
        &mut self,
        loaded: &mut Loaded,
        wait_for_programs: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Vec<(Key, Count)>, Error> {
        let full = (self.window & 1) as usize;
        self.window = self.window.wrapping_add(1);
        let control = Control {
            odd: self.window & 1,
            window: self.window,
        };
        sys::update(loaded.control.as_fd(), &0u32, &control).map_err(Error::map("control"))?;
        wait_for_programs()?;
        sys::take_all(loaded.counts[full].as_fd(), COUNTS).map_err(Error::map("counts"))
    }

    /// Puts stacks to counts. Call after [`Drain::ring`]: stacks are sent before they are counted.
    pub fn named(&mut self, counts: Vec<(Key, Count)>, loaded: &Loaded) -> (Vec<Counted>, u64) {
        let mut lost = 0;
        let mut out = Vec::with_capacity(counts.len());
        for (key, count) in counts {
            let user = self.stacks.get(key.user, self.window);
            let kernel = self.stacks.get(key.kernel, self.window);
            if (user.is_none() && key.user != 0) || (kernel.is_none() && key.kernel != 0) {
                lost += count.samples;
            }
            out.push(Counted {
                pid: key.pid,
                tid: key.tid,
                image: key.image,
                user,
                kernel,
                waiting: waiting(&key),
                samples: count.samples,
                waited_ns: count.ns,
            });
        }
        let unsee = |hash| drop(sys::delete(loaded.seen.as_fd(), &hash));
        self.stacks.sweep(self.window, unsee);
        (out, lost)
    }

    /// All counters since the last call, by name.
    pub fn counters(&mut self, loaded: &Loaded) -> Result<Vec<(&'static str, u64)>, Error> {
        let cpus = aya::util::nr_cpus().map_err(|(what, e)| Error::Cpus(format!("{what}: {e}")))?;
        let mut of_cpus = vec![0u64; cpus * COUNTERS.len()];
        sys::lookup(loaded.counters.as_fd(), &0u32, &mut of_cpus)
            .map_err(Error::map("counters"))?;
        let mut out = Vec::with_capacity(COUNTERS.len());
        for (index, name) in COUNTERS.iter().enumerate() {
            let of_cpu = of_cpus.iter().skip(index).step_by(COUNTERS.len());
            let now: u64 = of_cpu.sum();
            out.push((*name, now.saturating_sub(self.before[index])));
            self.before[index] = now;
        }
        Ok(out)
    }
}

fn waiting(key: &Key) -> Option<Option<u32>> {
    (key.what == layout::OFF_CPU).then(|| key.wait.checked_sub(1))
}

/// The frames of a record in order: those at the root were written round and round.
fn in_order(mut frames: Vec<u64>, header: &StackHeader) -> StackFrames {
    let met = header.frames as usize;
    let cut = layout::cut(header.end);
    let missing = met.saturating_sub(LEAF_FRAMES + ROOT_FRAMES);
    if missing == 0 {
        frames.truncate(met);
        return StackFrames {
            frames,
            missing: None,
            cut,
        };
    }
    if let Some(ring) = frames.get_mut(LEAF_FRAMES..) {
        let first = (met - LEAF_FRAMES) % ROOT_FRAMES;
        ring.rotate_left(first.min(ring.len()));
    }
    StackFrames {
        frames,
        missing: Some((LEAF_FRAMES, missing as u32)),
        cut,
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// The start of a record; what is missing is zero.
fn read<T: sys::Plain>(record: &[u8]) -> T {
    let mut value = T::default();
    let bytes = record.len().min(size_of::<T>());
    // SAFETY: `Plain` is valid whatever its bytes, and at most its size is copied.
    unsafe {
        let to = std::ptr::from_mut(&mut value).cast::<u8>();
        std::ptr::copy_nonoverlapping(record.as_ptr(), to, bytes);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_at_the_root_are_put_in_order_and_the_gap_is_told() {
        let met = LEAF_FRAMES + ROOT_FRAMES + 10;
        let mut frames: Vec<u64> = (0..LEAF_FRAMES as u64).collect();
        frames.resize(LEAF_FRAMES + ROOT_FRAMES, 0);
        for n in LEAF_FRAMES..met {
            frames[LEAF_FRAMES + (n - LEAF_FRAMES) % ROOT_FRAMES] = n as u64;
        }
        let header = StackHeader {
            frames: met as u32,
            end: 1,
            ..StackHeader::default()
        };
        let stack = in_order(frames, &header);
        assert_eq!(stack.missing, Some((LEAF_FRAMES, 10)));
        let expected: Vec<u64> = (0..64).chain(74..met as u64).collect();
        assert_eq!((stack.frames, stack.cut), (expected, None));
    }
}
