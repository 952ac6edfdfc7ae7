//! Zeroed memory straight from the kernel, for code that runs inside an allocator.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Words that are mapped on first use and never given back; a page costs memory once it was
/// written. Lock-free.
pub(crate) struct Pages {
    start: AtomicPtr<AtomicU64>,
    words: usize,
}

/// Miri knows no other flags.
const UNRESERVED: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

/// The kernel refused.
const REFUSED: *mut AtomicU64 = std::ptr::dangling_mut();

impl Pages {
    /// `words` words of 8 bytes.
    pub(crate) const fn new(words: usize) -> Pages {
        Pages {
            start: AtomicPtr::new(null_mut()),
            words,
        }
    }

    /// The memory, when it was used before.
    #[inline]
    pub(crate) fn touched(&self) -> &[AtomicU64] {
        let start = self.start.load(Ordering::Acquire);
        if start <= REFUSED {
            return &[];
        }
        // SAFETY: `map` made it with so many zeroed words, and nobody unmaps it.
        unsafe { std::slice::from_raw_parts(start, self.words) }
    }

    /// The memory; empty when the kernel refuses it. Keeps errno.
    #[inline]
    pub(crate) fn get(&self) -> &[AtomicU64] {
        if self.start.load(Ordering::Acquire).is_null() {
            self.map();
        }
        self.touched()
    }

    #[cold]
    fn map(&self) {
        let _errno = KeepErrno::new();
        let bytes = self.words * 8;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let made = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | UNRESERVED,
                -1,
                0,
            )
        };
        let start = match made {
            libc::MAP_FAILED => REFUSED,
            made => made.cast(),
        };
        let lost = self
            .start
            .compare_exchange(null_mut(), start, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        if lost && start != REFUSED {
            // SAFETY: another thread's mapping won; nobody has seen this one.
            unsafe { libc::munmap(made, bytes) };
        }
    }
}

/// Gives the thread's errno back when dropped: an allocation that works leaves it alone.
pub(crate) struct KeepErrno(i32);

impl KeepErrno {
    pub(crate) fn new() -> KeepErrno {
        // SAFETY: the calling thread's errno.
        KeepErrno(unsafe { *crate::sys::errno() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: the calling thread's errno.
        unsafe { *crate::sys::errno() = self.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_first_at_once_get_the_same_memory() {
        static PAGES: Pages = Pages::new(1 << 16);
        assert!(PAGES.touched().is_empty());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| PAGES.get()[77].fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(PAGES.touched()[77].load(Ordering::Relaxed), 8);
    }

    #[test]
    fn what_the_kernel_refuses_is_empty_and_errno_is_kept() {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = 7 };
        let pages = Pages::new(usize::MAX >> 4);
        assert!(pages.get().is_empty());
        assert!(pages.get().is_empty());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(7));
    }
}
