//! Names and lines for addresses of this process, from the files that are mapped.
//!
//! Happens after a capture, in the thread that asked for it; files are mapped, not copied, and
//! forgotten when nobody captured for a while.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use pilotlight_symbolize::Frame;
use pilotlight_symbolize::Object;
use pilotlight_unwind::Module;

/// By path and build id; `None` when the file is gone or is another one by now.
type Objects = HashMap<(Vec<u8>, Vec<u8>), Option<Arc<Object>>>;

/// A program that loads ever new libraries while captures go on for ever must not fill the memory.
const MAX_OBJECTS: usize = 512;

static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);

fn objects() -> MutexGuard<'static, Option<Objects>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees what was read for names.
pub(crate) fn forget() {
    *objects() = None;
}

/// Functions at `address`, innermost inlined call first; empty when nothing is known.
pub(crate) fn frames(module: &Module, address: u64) -> Vec<Frame> {
    object(module).map_or_else(Vec::new, |object| {
        object.frames(address.wrapping_sub(module.base_avma))
    })
}

fn object(module: &Module) -> Option<Arc<Object>> {
    let key = (module.path.clone(), module.build_id.clone());
    if let Some(known) = objects().get_or_insert_default().get(&key) {
        return known.clone();
    }
    // Not under the lock: reading a large file takes a while.
    let opened = open(module).map(Arc::new);
    let mut guard = objects();
    let objects = guard.get_or_insert_default();
    if objects.len() >= MAX_OBJECTS {
        objects.clear();
    }
    objects.insert(key, opened.clone());
    opened
}

fn open(module: &Module) -> Option<Object> {
    let object = if module.path == b"[vdso]" {
        Object::parse(copy_of(module)?).ok()?
    } else {
        Object::parse(MappedFile::open(module)?).ok()?
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
        (start != libc::MAP_FAILED).then_some(MappedFile { start, length })
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
    fn files_of_libraries_that_come_and_go_are_not_kept_for_ever() {
        let mut module = Module::clone(&crate::modules::current()[0]);
        for n in 0..3 * MAX_OBJECTS {
            module.path = format!("/nowhere/{n}.so").into_bytes();
            assert!(frames(&module, module.start_avma).is_empty());
        }
        assert!(objects().as_ref().is_some_and(|o| o.len() <= MAX_OBJECTS));
    }
}
