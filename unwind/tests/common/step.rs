//! Walks at every single instruction of a call, by the processor's trap flag.

use super::{install, mapping_end, registers};
use pilotlight_unwind::{Cache, End, Module, Modules, unwind};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static STEPPING: AtomicBool = AtomicBool::new(false);

const DEEPEST: usize = 256;
const KEPT: usize = 64;

/// A walk that did not end as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub ip: u64,
    pub frames: usize,
    pub end: End,
}

/// What the handler needs and finds; used by the stepping thread only.
struct State {
    modules: *const Modules,
    cache: *const Cache,
    stack_end: usize,
    /// Outermost frames of the stepping function itself, root last.
    tail: [u64; DEEPEST],
    tail_length: usize,
    steps: u64,
    deepest: usize,
    failures: [Failure; KEPT],
    failure_count: usize,
    /// Instructions by 64 KiB page, open addressing: enough to say which modules were crossed.
    pages: [u64; 256],
}

struct Shared(UnsafeCell<State>);

// SAFETY: `every_instruction` is called by one thread at a time, in whose handler it is used.
unsafe impl Sync for Shared {}

const NO_FAILURE: Failure = Failure {
    ip: 0,
    frames: 0,
    end: End::Root,
};

static STATE: Shared = Shared(UnsafeCell::new(State {
    modules: std::ptr::null(),
    cache: std::ptr::null(),
    stack_end: 0,
    tail: [0; DEEPEST],
    tail_length: 0,
    steps: 0,
    deepest: 0,
    failures: [NO_FAILURE; KEPT],
    failure_count: 0,
    pages: [0; 256],
}));

extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let regs = registers(context);
    set_trap_flag(context, STEPPING.load(SeqCst));
    let mut out = [0u64; DEEPEST];
    // SAFETY: see `Shared`; the stack bounds are this thread's.
    let (state, unwound) = unsafe {
        let state = &mut *STATE.0.get();
        let stack = (regs.sp as usize - 128)..state.stack_end;
        let unwound = unwind(regs, &*state.modules, &*state.cache, stack, &mut out);
        (state, unwound)
    };
    state.steps += 1;
    state.deepest = state.deepest.max(unwound.frames);
    let page = regs.ip >> 16;
    for probe in 0..256 {
        let slot = &mut state.pages[(page as usize + probe) % 256];
        if *slot == page || *slot == 0 {
            *slot = page;
            break;
        }
    }
    let tail = &state.tail[..state.tail_length];
    let ok = unwound.end == End::Root && out[..unwound.frames].ends_with(tail);
    if !ok {
        if let Some(slot) = state.failures.get_mut(state.failure_count) {
            *slot = Failure {
                ip: regs.ip,
                frames: unwound.frames,
                end: unwound.end,
            };
        }
        state.failure_count += 1;
    }
}

fn set_trap_flag(context: *mut c_void, on: bool) {
    const TRAP: i64 = 0x100;
    // SAFETY: the kernel passes a ucontext_t to SA_SIGINFO handlers.
    let flags = unsafe {
        &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize]
    };
    *flags = if on { *flags | TRAP } else { *flags & !TRAP };
}

/// What stepping through a call found.
pub struct Report {
    pub steps: u64,
    pub deepest: usize,
    pub failure_count: usize,
    pub failures: Vec<Failure>,
    /// 64 KiB pages of code that were executed.
    pages: Vec<u64>,
}

impl Report {
    /// Code of a module whose path contains `name` was executed.
    pub fn crossed(&self, modules: &Modules, name: &str) -> bool {
        let named = |m: &&Module| String::from_utf8_lossy(&m.path).contains(name);
        let mut pages = modules
            .iter()
            .filter(named)
            .map(|m| m.start_avma >> 16..=m.end_avma >> 16);
        pages.any(|pages| self.pages.iter().any(|page| pages.contains(page)))
    }

    /// The failures with module-relative addresses.
    pub fn describe(&self, modules: &Modules) -> String {
        let line = |f: &Failure| match modules.find(f.ip) {
            Some(m) => format!(
                "{}+{:#x}: {} frames, {:?}",
                String::from_utf8_lossy(&m.path),
                f.ip - m.base_avma,
                f.frames,
                f.end
            ),
            None => format!("{:#x} outside: {} frames, {:?}", f.ip, f.frames, f.end),
        };
        self.failures
            .iter()
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Runs `call`, walking before each of its instructions; every walk must end at the root and pass
/// through the frames that called this function.
#[inline(never)]
pub fn every_instruction(modules: &Modules, cache: &Cache, call: &mut dyn FnMut()) -> Report {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let base = super::capture(modules, cache);
    let local = 0u8;
    install(libc::SIGTRAP, on_trap);
    // SAFETY: see `Shared`; the trap flag only raises SIGTRAP, which has a handler.
    unsafe {
        let state = &mut *STATE.0.get();
        // This function's own frame differs (another call site); its callers are the tail.
        let own = base
            .frames
            .iter()
            .position(|&f| within(f, every_instruction as *const () as usize));
        let tail = &base.frames[own.expect("this function is on its own stack") + 1..];
        *state = State {
            modules,
            cache,
            stack_end: mapping_end(&raw const local as usize),
            tail: [0; DEEPEST],
            tail_length: tail.len(),
            steps: 0,
            deepest: 0,
            failures: [NO_FAILURE; KEPT],
            failure_count: 0,
            pages: [0; 256],
        };
        state.tail[..tail.len()].copy_from_slice(tail);
        // The handler sets the trap flag in the saved flags, and clears it there in the end.
        STEPPING.store(true, SeqCst);
        libc::raise(libc::SIGTRAP);
        call();
        STEPPING.store(false, SeqCst);
        let state = &*STATE.0.get();
        Report {
            steps: state.steps,
            deepest: state.deepest,
            failure_count: state.failure_count,
            failures: state.failures[..state.failure_count.min(KEPT)].to_vec(),
            pages: state.pages.iter().copied().filter(|&p| p != 0).collect(),
        }
    }
}

fn within(frame: u64, function: usize) -> bool {
    // The function is short; its size is not known here.
    (frame as usize).wrapping_sub(function) < 4096
}
