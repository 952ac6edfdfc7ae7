//! libc's own functions, behind ours of the same name.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::sys;

/// One function of libc, looked up once.
pub(super) struct Next {
    /// Ends with a NUL.
    name: &'static str,
    /// Where libc has several, the one that programs of today are linked with.
    #[cfg_attr(
        not(target_env = "gnu"),
        expect(dead_code, reason = "musl has no versions")
    )]
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

/// The thread that asks the loader at the moment, by the address of its errno.
static ASKING: AtomicUsize = AtomicUsize::new(0);

impl Next {
    pub(super) const fn new(name: &'static str, version: Option<&'static CStr>) -> Next {
        Next {
            name,
            version,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// The function's address; null when there is none, or when the loader itself, asked by this
    /// thread, came here.
    #[inline(always)]
    pub(super) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            self.look_up()
        } else {
            found
        }
    }

    #[cold]
    pub(super) fn look_up(&self) -> *mut c_void {
        let errno = sys::errno();
        if ASKING.load(Ordering::Relaxed) == errno as usize {
            return null_mut();
        }
        // SAFETY: the calling thread's.
        let before = unsafe { *errno };
        ASKING.store(errno as usize, Ordering::Relaxed);
        let found = self.ask();
        ASKING.store(0, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { *errno = before };
        self.found.store(found, Ordering::Relaxed);
        found
    }

    fn ask(&self) -> *mut c_void {
        #[cfg(target_env = "gnu")]
        if let Some(version) = self.version {
            // SAFETY: a lookup by constant names.
            let found = unsafe {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr().cast(), version.as_ptr())
            };
            if !found.is_null() {
                return found;
            }
        }
        // SAFETY: a lookup by a constant name.
        unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) }
    }
}
