//! The stack of the calling thread, at once: no allocation, no lock, no libgcc. May be called
//! inside an allocator or an interposed function of libc.
//!
//! It walks over the snapshot that the signal handler uses. Somebody must keep that snapshot true
//! while no capture runs: [`crate::engine::keep_modules_current`]. Before that there are no frames.

use std::cell::Cell;
use std::ops::Range;

use pilotlight_unwind::End;

use crate::handler::scratch::{Scratch, ScratchPool};
use crate::pages::KeepErrno;
use crate::sys::{self, own_registers};
use crate::{config, handler};

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Here {
    /// Frames written.
    pub(crate) len: usize,
    /// The stack goes on behind the last frame.
    pub(crate) truncated: bool,
    /// Generation of the module snapshot that the frames belong to; 0 when there is none yet.
    pub(crate) generation: u32,
}

/// A buffer is held for a microsecond; while one is held, no snapshot is freed.
static BUFFERS: ScratchPool = ScratchPool::new();

thread_local! {
    /// Readable bytes of this thread's stack, empty when not known yet. No destructor: it can be
    /// read until the thread's last instruction.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// The stack of the caller, leaf first; `frames[0]` is in the caller of this function. Every frame
/// is an address inside the instruction, not behind it.
#[allow(dead_code, reason = "for callers with room of their own")]
#[inline(never)]
pub(crate) fn here(frames: &mut [u64]) -> Here {
    let registers = own_registers();
    let mut scratch = BUFFERS.acquire(hint());
    let Some(scratch) = scratch.as_mut() else {
        return Here::default();
    };
    let here = walk(registers, scratch, frames.len().saturating_add(1));
    frames[..here.len].copy_from_slice(&scratch.frames(config::MAX_DEPTH)[1..=here.len]);
    here
}

/// As [`here`], with room of pilotlight's for `depth` frames: for callers on small stacks.
/// Without frames when all rooms are taken.
#[inline(never)]
pub(crate) fn with_stack<T>(depth: usize, work: impl FnOnce(Here, &[u64]) -> T) -> T {
    let registers = own_registers();
    let mut scratch = BUFFERS.acquire(hint());
    let Some(scratch) = scratch.as_mut() else {
        return work(Here::default(), &[]);
    };
    let here = walk(registers, scratch, depth.saturating_add(1));
    work(here, &scratch.frames(config::MAX_DEPTH)[1..=here.len])
}

/// Returns once every walk that began before the call has ended; false when one does not end.
pub(crate) fn each_walk_ended() -> bool {
    BUFFERS.each_was_free()
}

/// In a forked child: walks of threads that are not there any more hold nothing.
pub(crate) fn forget_in_child() {
    BUFFERS.free_all();
}

/// Tells the calling thread's stack, where it is known for nothing.
#[cfg_attr(
    not(feature = "thread-hook"),
    expect(dead_code, reason = "for the hook")
)]
pub(crate) fn note_stack(stack: Range<usize>) {
    if !stack.is_empty() {
        STACK.set((stack.start, stack.end));
    }
}

/// Where to look for a free buffer: threads differ in their thread-local memory.
fn hint() -> usize {
    STACK.with(|stack| std::ptr::from_ref(stack) as usize >> 12)
}

/// Walks into `scratch`; its first frame is the function that took the registers, and not counted.
fn walk(registers: sys::Registers, scratch: &mut Scratch<'_>, depth: usize) -> Here {
    // SAFETY: a buffer is held until the walk is over, see `handler::publish`.
    let Some(snapshot) = (unsafe { handler::snapshot() }) else {
        return Here::default();
    };
    let frames = scratch.frames(depth);
    let stack = own_stack(registers.sp as usize);
    // SAFETY: the bounds are those of a mapping of this thread's stack.
    let unwound =
        unsafe { sys::unwind(registers, &snapshot.modules, &snapshot.cache, stack, frames) };
    for (at, frame) in frames[..unwound.frames].iter_mut().enumerate() {
        *frame -= u64::from(!unwound.is_exact(at));
    }
    if unwound.end == End::NoModule {
        handler::note_stale();
    }
    Here {
        len: unwound.frames.saturating_sub(1),
        truncated: unwound.end == End::Truncated,
        generation: snapshot.generation,
    }
}

/// Readable bytes of the calling thread's stack, from `sp` on.
fn own_stack(sp: usize) -> Range<usize> {
    let (start, end) = STACK.get();
    if (start..end).contains(&sp) {
        return sp..end;
    }
    let found = mapping_of(sp);
    if let Some(found) = &found {
        // A stack that grew, or a coroutine's.
        STACK.set((found.start, found.end));
    }
    // Only the page of `sp` is known to be there.
    found.map_or(sp..(sp | 4095) & !7, |found| sp..found.end)
}

/// The mapping that holds `address`, by `/proc/self/maps`: tens of microseconds, once a thread.
/// `pthread_getattr_np` would tell too, but allocates.
#[cold]
fn mapping_of(address: usize) -> Option<Range<usize>> {
    let _errno = KeepErrno::new();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with NUL.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), flags) };
    if file < 0 {
        return None;
    }
    let mut finder = Finder::new(address);
    let mut bytes = [0u8; 1024];
    while finder.found.is_none() {
        // SAFETY: reads at most so many bytes into `bytes`.
        let read = unsafe { libc::read(file, bytes.as_mut_ptr().cast(), bytes.len()) };
        let Some(bytes) = usize::try_from(read)
            .ok()
            .and_then(|read| bytes.get(..read))
        else {
            break;
        };
        if bytes.is_empty() {
            break;
        }
        bytes.iter().for_each(|byte| finder.feed(*byte));
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    finder.found
}

/// Reads lines `start-end …`, a byte at a time.
struct Finder {
    address: usize,
    start: usize,
    number: usize,
    in_numbers: bool,
    found: Option<Range<usize>>,
}

impl Finder {
    fn new(address: usize) -> Finder {
        Finder {
            address,
            start: 0,
            number: 0,
            in_numbers: true,
            found: None,
        }
    }

    fn feed(&mut self, byte: u8) {
        match byte {
            b'\n' => (self.in_numbers, self.number) = (true, 0),
            _ if !self.in_numbers => {}
            b'-' => self.start = std::mem::take(&mut self.number),
            b' ' => {
                self.in_numbers = false;
                let range = self.start..self.number;
                if range.contains(&self.address) {
                    self.found = Some(range);
                }
            }
            _ => {
                let digit = (byte as char).to_digit(16).unwrap_or(0) as usize;
                self.number = self.number << 4 | digit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::{LoaderCounts, Snapshot, loaded};

    /// Tests that publish snapshots take turns.
    fn turn() -> std::sync::MutexGuard<'static, ()> {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        TURN.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn publish() {
        handler::publish(Snapshot::new(&loaded(&[], LoaderCounts::default()), 1));
    }

    #[inline(never)]
    fn descend(levels: u32, frames: &mut [u64]) -> Here {
        let here = if levels == 0 {
            here(frames)
        } else {
            descend(std::hint::black_box(levels - 1), frames)
        };
        std::hint::black_box(here)
    }

    fn functions(frames: &[u64]) -> Vec<String> {
        let name = |frame: &u64| crate::capture::resolve_symbol(*frame).unwrap_or_default();
        frames.iter().map(name).collect()
    }

    #[test]
    fn the_stack_of_a_thread_is_whole_and_begins_with_the_caller() {
        let _turn = turn();
        publish();
        let whole = |levels| {
            let mut frames = [0; 256];
            let here = descend(levels, &mut frames);
            assert!(!here.truncated);
            assert_eq!(here.generation, 1);
            let names = functions(&frames[..here.len]);
            let own = names.iter().filter(|n| n.contains("descend"));
            assert_eq!(own.count(), levels as usize + 1, "{names:?}");
            assert!(names[0].contains("descend"), "{names:?}");
            let is_root = |n: &String| n.contains("thread_start") || n.contains("hook::run");
            assert!(names.iter().any(is_root), "{names:?}");
            names.len()
        };
        let shallow = whole(0);
        assert_eq!(whole(20), shallow + 20);
        let of_thread = std::thread::spawn(move || whole(5)).join().unwrap();
        assert!(of_thread > 8, "{of_thread}");
        let small = std::thread::Builder::new().stack_size(16 << 10);
        small.spawn(move || whole(3)).unwrap().join().unwrap();
    }

    #[test]
    fn a_stack_that_does_not_fit_is_cut_at_the_root() {
        let _turn = turn();
        publish();
        let mut frames = [0; 10];
        let here = descend(40, &mut frames);
        assert!(here.truncated);
        assert_eq!(here.len, 10);
        with_stack(7, |here, frames| {
            assert!(here.truncated);
            assert_eq!((here.len, frames.len()), (7, 7));
            assert!(functions(frames)[0].contains("a_stack_that_does_not_fit"));
        });
    }

    #[test]
    fn the_mapping_of_a_stack_is_found_and_its_neighbours_are_not() {
        let local = 0u8;
        let at = &raw const local as usize;
        let found = mapping_of(at).unwrap();
        assert!(found.contains(&at));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = format!("{:x}-{:x}", found.start, found.end);
        assert!(maps.lines().any(|l| l.starts_with(&line)), "{line}\n{maps}");
        assert_eq!(mapping_of(8), None);
    }

    #[test]
    fn frames_come_without_a_capture_once_somebody_wants_them() {
        let _turn = turn();
        let config = crate::Config::new("t").no_listener();
        let guard = config.start().unwrap();
        crate::engine::keep_modules_current(true);
        let mut frames = [0; 64];
        let wait_for = |wanted: &dyn Fn(Here) -> bool| {
            let began = std::time::Instant::now();
            loop {
                let here = here(&mut [0; 64]);
                if wanted(here) {
                    return here;
                }
                assert!(began.elapsed().as_secs() < 20, "{here:?}");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        let snapshots = || crate::stats::COUNTERS.snapshots.get();
        wait_for(&|here| here.len > 3 && snapshots() > 0);
        let before = snapshots();
        // A program that holds its libc cannot load more.
        if cfg!(target_feature = "crt-static") {
            return;
        }
        // SAFETY: a library without a constructor that matters.
        let library = unsafe { libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        wait_for(&|here| u64::from(here.generation) > before);
        drop(guard);
        let guard = crate::Config::new("t").no_listener().start().unwrap();
        // A later engine has its snapshot before anything else happens.
        assert!(here(&mut frames).len > 3);
        crate::engine::keep_modules_current(false);
        drop(guard);
    }

    #[test]
    fn walks_while_snapshots_come_and_go() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        let _turn = turn();
        publish();
        let modules = loaded(&[], LoaderCounts::default());
        let (stop, walks) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let walk = || {
                while !stop.load(Ordering::Relaxed) {
                    let mut frames = [0; 64];
                    assert!(descend(5, &mut frames).len > 6);
                    walks.fetch_add(1, Ordering::Relaxed);
                }
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(walk)).collect();
            let mut published = 0;
            while published < 20 || walks.load(Ordering::Relaxed) < 1000 {
                handler::publish(Snapshot::new(&modules, 1));
                published += 1;
                if threads.iter().any(|thread| thread.is_finished()) {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
