//! The signal handler that runs one method and times it.

use std::{
    fs, io,
    ops::Range,
    sync::atomic::{AtomicPtr, Ordering},
};

use pilotlight_bench_kit::{Disposition, monotonic_ns};

use crate::counting::Counting;

/// Where a stack walk starts, and what it may read.
pub struct Start {
    /// The interrupted instruction.
    pub ip: u64,
    /// Stack pointer there.
    pub sp: u64,
    /// Frame pointer register there.
    pub bp: u64,
    /// `rbx` there.
    #[cfg_attr(
        not(feature = "unwinders"),
        expect(dead_code, reason = "only tables need it")
    )]
    pub bx: u64,
    /// Readable addresses of the thread's stack.
    pub stack: Range<u64>,
}

/// Fills `out` with return addresses and answers how many.
pub type Walk = fn(&Start, &mut [u64]) -> usize;

/// A named unwinder.
#[derive(Clone, Copy)]
pub struct Method {
    /// Prefix of its output lines.
    pub name: &'static str,
    /// The walk.
    pub walk: Walk,
}

/// One unwound stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Time of the walk, reading the clock included.
    pub nanoseconds: f64,
    /// Frames found.
    pub frames: usize,
    /// Allocations meanwhile.
    pub allocations: u64,
}

struct Armed {
    walk: Walk,
    stack: Range<u64>,
    out: Box<[u64; 1_024]>,
    reading: Reading,
}

/// Installs the handler and passes methods in and readings out.
pub struct Harness {
    armed: *mut Armed,
}

static ARMED: AtomicPtr<Armed> = AtomicPtr::new(std::ptr::null_mut());

impl Harness {
    /// Installs the handler for SIGPROF.
    ///
    /// # Errors
    /// The stack's bounds cannot be read, or the handler is refused.
    pub fn install() -> io::Result<Self> {
        let armed = Box::leak(Box::new(Armed {
            walk: |_, _| 0,
            stack: main_stack()?,
            out: Box::new([0; 1_024]),
            reading: Reading::default(),
        }));
        ARMED.store(armed, Ordering::Release);
        Disposition::handler(libc::SIGPROF, on_signal).install()?;
        Ok(Harness { armed })
    }

    /// Chooses what the next signal runs.
    pub fn arm(&self, method: &Method) {
        // SAFETY: leaked, and no signal is pending: the only sender is this thread, later.
        unsafe { (*self.armed).walk = method.walk };
    }

    /// What the last signal measured.
    pub fn reading(&self) -> Reading {
        // SAFETY: as above; the handler has returned.
        unsafe { (*self.armed).reading }
    }
}

extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a ucontext_t to an SA_SIGINFO handler.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: set before the handler was installed; the interrupted thread is the only other user
    // and it is inside the system call that sent this signal.
    let armed = unsafe { &mut *ARMED.load(Ordering::Acquire) };
    let start = Start {
        ip: registers[libc::REG_RIP as usize] as u64,
        sp: registers[libc::REG_RSP as usize] as u64,
        bp: registers[libc::REG_RBP as usize] as u64,
        bx: registers[libc::REG_RBX as usize] as u64,
        stack: armed.stack.clone(),
    };
    let allocations = Counting::allocations();
    let before = monotonic_ns();
    let frames = (armed.walk)(&start, armed.out.as_mut_slice());
    let spent = monotonic_ns() - before;
    armed.reading = Reading {
        nanoseconds: spent as f64,
        frames,
        allocations: Counting::allocations() - allocations,
    };
}

fn main_stack() -> io::Result<Range<u64>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let bounds = maps
        .lines()
        .find(|line| line.ends_with("[stack]"))
        .and_then(|line| {
            let (low, high) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(low, 16).ok()?..u64::from_str_radix(high, 16).ok()?)
        });
    // The kernel lets it grow below what is mapped now.
    let mut bounds = bounds.ok_or_else(|| io::Error::other("no [stack] in /proc/self/maps"))?;
    bounds.start = bounds.end - (8 << 20);
    Ok(bounds)
}
