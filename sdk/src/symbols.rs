//! Names and lines for addresses of this process, from the files that are mapped.
//!
//! Happens after a capture, on a thread of its own; files are mapped, not copied, what is read of them
//! stays within a limit, and is forgotten when nobody captured for a while.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

pub(crate) use pilotlight_symbolize::Frame;
use pilotlight_symbolize::{Memory, Object};
use pilotlight_unwind::Module;

use crate::config::SYMBOLIZE_BYTES as DEFAULT_BYTES;
use crate::fork::{Held, Lock};
use crate::stats::COUNTERS;

/// By path and build id; `None` when the file is gone or is another one by now.
type Objects = HashMap<(Vec<u8>, Vec<u8>), Option<Arc<Object>>>;

/// A program that loads ever new libraries while captures go on for ever must not fill the memory.
const MAX_OBJECTS: usize = 512;

/// Symbol tables and demangling recurse; pages that are not touched cost nothing.
const STACK: usize = 1 << 20;

static ON: AtomicBool = AtomicBool::new(true);
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(DEFAULT_BYTES);
/// Something did not fit the memory since it was last emptied.
static CUT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Addresses that are counted already, on the thread of one profile.
    static COUNTED: RefCell<HashSet<u64>> = RefCell::default();
}

static KNOWN: Lock<Option<Known>> = Lock::new(None);

struct Known {
    memory: Arc<Memory>,
    objects: Objects,
}

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock()
}

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &KNOWN
}

impl Known {
    fn new() -> Known {
        Known {
            memory: Arc::new(Memory::new(LIMIT_BYTES.load(Ordering::Relaxed))),
            objects: Objects::new(),
        }
    }
}

/// Whether names are looked up in this process, and how many bytes that may hold.
pub(crate) fn configure(on: bool, limit_bytes: usize) {
    ON.store(on, Ordering::Relaxed);
    LIMIT_BYTES.store(limit_bytes, Ordering::Relaxed);
    forget();
}

/// Whether names are looked up in this process.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Frees what was read for names.
pub(crate) fn forget() {
    CUT.store(false, Ordering::Relaxed);
    *known() = None;
}

/// A thread of the parent may have been reading a file at the fork: for the child it would be in the
/// making for ever, and whoever wants a name of it would wait.
pub(crate) fn forget_in_child() {
    std::mem::forget(known().take());
}

/// Runs what looks names up on a thread of its own: it may take long and much stack, which is not
/// the caller's to give.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // Where the last profile found no room, this one begins with all of it.
    if CUT.load(Ordering::Relaxed) {
        forget();
    }
    let mut work = Some(work);
    let done = std::thread::scope(|scope| {
        let run = || {
            crate::engine::note_own_thread();
            // The memory that it takes is no part of the program's heap.
            work.take().map(crate::heap::unsampled)
        };
        let thread = std::thread::Builder::new()
            .name("pilotlight-names".into())
            .stack_size(STACK)
            .spawn_scoped(scope, run);
        match thread.map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => None,
        }
    });
    match (done, work) {
        (Some(done), _) => done,
        (None, Some(work)) => crate::heap::unsampled(work),
        (None, None) => unreachable!("work is there until it is done"),
    }
}

/// Functions at `address`, innermost inlined call first; empty when nothing is known.
pub(crate) fn frames(module: &Module, address: u64) -> Vec<Frame> {
    if !is_on() {
        return Vec::new();
    }
    let Some((object, memory)) = object(module) else {
        return Vec::new();
    };
    let refused = memory.refused();
    let frames = object.frames(address.wrapping_sub(module.base_avma));
    if memory.refused() != refused {
        // Of a profile, an address that is looked up again counts once.
        let is_new = COUNTED.with_borrow_mut(|counted| counted.insert(address));
        COUNTERS.names_over_memory.add(is_new.into());
        CUT.store(true, Ordering::Relaxed);
    }
    frames
}

fn object(module: &Module) -> Option<(Arc<Object>, Arc<Memory>)> {
    let key = (module.path.clone(), module.build_id.clone());
    let memory = {
        let mut guard = known();
        let known = guard.get_or_insert_with(Known::new);
        if let Some(object) = known.objects.get(&key) {
            return object
                .clone()
                .map(|object| (object, Arc::clone(&known.memory)));
        }
        Arc::clone(&known.memory)
    };
    // Not under the lock: reading a large file takes a while.
    let opened = open(module, &memory).map(Arc::new);
    let mut guard = known();
    let known = guard.get_or_insert_with(Known::new);
    if known.objects.len() >= MAX_OBJECTS {
        known.objects.clear();
    }
    known.objects.insert(key, opened.clone());
    opened.map(|object| (object, memory))
}

fn open(module: &Module, memory: &Arc<Memory>) -> Option<Object> {
    let object = if module.path == b"[vdso]" {
        Object::parse_within(copy_of(module)?, Arc::clone(memory)).ok()?
    } else {
        Object::parse_within(MappedFile::open(module)?, Arc::clone(memory)).ok()?
    };
    // A file that was replaced since it was loaded would give wrong names.
    let same = object.build_id().unwrap_or_default() == module.build_id;
    same.then_some(object)
}

/// The vDSO has no file: its pages are read where they are.
fn copy_of(module: &Module) -> Option<Vec<u8>> {
    let length = usize::try_from(module.end_avma.checked_sub(module.start_avma)?).ok()?;
    // SAFETY: the kernel keeps the vDSO mapped and readable as long as the process lives.
    let bytes = unsafe { std::slice::from_raw_parts(module.start_avma as *const u8, length) };
    Some(bytes.to_vec())
}

/// A file mapped for reading.
struct MappedFile {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the mapping is private and only read.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    fn open(module: &Module) -> Option<MappedFile> {
        let path = OsStr::from_bytes(&module.path);
        // A deleted executable can still be read through its link.
        let own = std::env::current_exe().is_ok_and(|exe| exe.as_os_str() == path);
        let file = if own {
            File::open("/proc/self/exe")
        } else {
            File::open(path)
        }
        .ok()?;
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        (start != libc::MAP_FAILED).then(|| MappedFile { start, length })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives. Whoever truncates a running program's file
        // breaks the program itself as well.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_thread_of_their_own_and_a_panic_comes_back() {
        let name = on_own_thread(|| std::thread::current().name().map(str::to_string));
        assert_eq!(name.as_deref(), Some("pilotlight-names"));
        let panic = std::panic::catch_unwind(|| on_own_thread(|| panic!("why")));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"why"));
    }

    #[test]
    fn a_child_waits_for_no_file_that_a_thread_of_the_parent_was_reading() {
        crate::fork::watch();
        let module = crate::modules::current()[0].clone();
        let address = forget as fn() as usize as u64;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    forget();
                    frames(&module, address);
                }
            });
            let named = || {
                // SAFETY: the child looks up one name and leaves.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    // SAFETY: a child that waits for ever is ended.
                    unsafe { libc::alarm(20) };
                    let found = frames(&module, address);
                    // SAFETY: without the exit handlers of the test.
                    unsafe { libc::_exit(i32::from(!found.is_empty())) };
                }
                let mut status = 0;
                // SAFETY: waits for the child just made.
                unsafe { libc::waitpid(pid, &mut status, 0) };
                status
            };
            let failed = (0..10).map(|_| named()).find(|&status| status != 1 << 8);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(failed, None, "wait status");
        });
    }

    #[test]
    fn files_of_libraries_that_come_and_go_are_not_kept_for_ever() {
        let mut module = Module::clone(&crate::modules::current()[0]);
        for n in 0..3 * MAX_OBJECTS {
            module.path = format!("/nowhere/{n}.so").into_bytes();
            assert!(frames(&module, module.start_avma).is_empty());
        }
        assert!(
            known()
                .as_ref()
                .is_some_and(|k| k.objects.len() <= MAX_OBJECTS)
        );
    }
}
