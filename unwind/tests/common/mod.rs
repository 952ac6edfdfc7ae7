//! What the tests share: this process's modules and a signal handler that walks.
// Each test file uses a part; helpers may fail a test.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod elf;
pub mod step;

use pilotlight_unwind::{Cache, End, Module, Modules, ProgramHeader, Registers, Unwound, unwind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

/// All modules of this process, read from memory only.
pub fn own_modules() -> Modules {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: the callback has dl_iterate_phdr's signature and `modules` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut modules).cast()) };
    Modules::new(modules)
}

unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _: usize,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid info, and `own_modules` its vector.
    let (info, out) = unsafe { (&*info, &mut *out.cast::<Vec<Module>>()) };
    // SAFETY: ProgramHeader has the layout of Elf64_Phdr, and the name is a C string.
    let (headers, name) = unsafe {
        let start = info.dlpi_phdr.cast::<ProgramHeader>();
        let headers = std::slice::from_raw_parts(start, usize::from(info.dlpi_phnum));
        (headers, CStr::from_ptr(info.dlpi_name))
    };
    // SAFETY: the loader mapped the segments; tests unload nothing.
    let module = unsafe { Module::from_memory(info.dlpi_addr, headers, name.to_bytes()) };
    out.push(module.unwrap());
    0
}

/// Counts allocations; everything else is the system's.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Frames seen by the handler.
#[derive(Default, Debug, Clone)]
pub struct Capture {
    pub frames: Vec<u64>,
    pub end: Option<End>,
    pub exact: Vec<bool>,
    /// Made while walking.
    pub allocations: usize,
}

static MODULES: AtomicPtr<Modules> = AtomicPtr::new(std::ptr::null_mut());
static CACHE: AtomicPtr<Cache> = AtomicPtr::new(std::ptr::null_mut());
static STACK_END: AtomicUsize = AtomicUsize::new(0);
static ROOM: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Const and without destructor, so that the allocator and the handler may touch it.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

const DEEPEST: usize = 2048;
static SEEN: Seen = Seen(UnsafeCell::new(([0; DEEPEST], None)));

/// Written by the handler, read by the thread that raised the signal.
struct Seen(UnsafeCell<([u64; DEEPEST], Outcome)>);

/// A walk and the allocations made meanwhile.
type Outcome = Option<(Unwound, usize)>;

// SAFETY: `capture` holds a lock around all use, and the handler runs inside it.
unsafe impl Sync for Seen {}

/// Upper end of the mapping that holds `address`.
pub fn mapping_end(address: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bounds = maps.lines().map(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let hex = |s| usize::from_str_radix(s, 16).unwrap();
        hex(start)..hex(end)
    });
    bounds
        .into_iter()
        .find(|b| b.contains(&address))
        .expect("a mapping holds the stack")
        .end
}

/// Registers out of a signal's ucontext.
pub fn registers(context: *mut c_void) -> Registers {
    // SAFETY: the kernel passes a ucontext_t to SA_SIGINFO handlers.
    let gregs = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let reg = |r: c_int| gregs[r as usize] as u64;
    Registers {
        ip: reg(libc::REG_RIP),
        sp: reg(libc::REG_RSP),
        bp: reg(libc::REG_RBP),
        bx: reg(libc::REG_RBX),
    }
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let regs = registers(context);
    let stack = (regs.sp as usize - 128)..STACK_END.load(SeqCst);
    // SAFETY: `capture` holds the references alive while it raises the signal; the statics are
    // used under its lock and by this thread only; `stack` is this thread's stack.
    unsafe {
        let (modules, cache) = (&*MODULES.load(SeqCst), &*CACHE.load(SeqCst));
        let (frames, result) = &mut *SEEN.0.get();
        let before = ALLOCATIONS.get();
        let unwound = unwind(
            regs,
            modules,
            cache,
            stack,
            &mut frames[..ROOM.load(SeqCst)],
        );
        *result = Some((unwound, ALLOCATIONS.get() - before));
    }
}

/// Raises a signal here and walks from its handler.
#[inline(never)]
pub fn capture(modules: &Modules, cache: &Cache) -> Capture {
    capture_into(modules, cache, DEEPEST)
}

/// [`capture`] with room for `room` frames only.
#[inline(never)]
pub fn capture_into(modules: &Modules, cache: &Cache, room: usize) -> Capture {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    ROOM.store(room, SeqCst);
    MODULES.store(std::ptr::from_ref(modules).cast_mut(), SeqCst);
    CACHE.store(std::ptr::from_ref(cache).cast_mut(), SeqCst);
    let local = 0u8;
    STACK_END.store(mapping_end(&raw const local as usize), SeqCst);
    install(libc::SIGUSR1, on_signal);
    // SAFETY: raising a signal that has a handler; then the statics are read under the lock.
    unsafe {
        libc::raise(libc::SIGUSR1);
        let (frames, result) = &mut *SEEN.0.get();
        let (unwound, allocations) = result.take().expect("the handler ran");
        let frames = frames[..unwound.frames].to_vec();
        let exact = (0..unwound.frames).map(|i| unwound.is_exact(i)).collect();
        Capture {
            frames,
            end: Some(unwound.end),
            exact,
            allocations,
        }
    }
}

/// Installs an SA_SIGINFO handler.
pub fn install(signal: c_int, handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)) {
    // SAFETY: a zeroed sigaction is valid; the handler has the SA_SIGINFO signature.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// A fresh directory for what a test builds.
pub fn scratch(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Runs a build tool to success.
pub fn run(command: &mut std::process::Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Compiles a Go program.
pub fn go_binary(source: &str) -> elf::Elf {
    let dir = scratch("go");
    std::fs::write(dir.join("main.go"), source).unwrap();
    run(std::process::Command::new("go")
        .current_dir(&dir)
        .args(["build", "-o", "out", "main.go"]));
    let elf = elf::Elf::open(dir.join("out").to_str().unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
    elf
}

/// The x86-64 ABI fixes this path.
pub const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Where a system library is installed.
pub fn library(name: &str) -> Option<String> {
    let folders = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut paths = folders.iter().map(|folder| format!("{folder}/{name}"));
    paths.find(|path| std::path::Path::new(path).exists())
}

/// An ELF program in `PATH`.
pub fn program(name: &str) -> Option<String> {
    let path = std::env::var("PATH").ok()?;
    let mut paths = path.split(':').map(|folder| format!("{folder}/{name}"));
    paths.find(|path| std::fs::read(path).is_ok_and(|b| b.starts_with(b"\x7fELF")))
}
