//! The ring that the kernel writes records into.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Places of `data_head` and `data_tail` in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The ring of one CPU, with the event that it belongs to.
pub(super) struct Ring {
    event: OwnedFd,
    page: NonNull<u8>,
    /// Bytes of records that fit; a power of two.
    size: usize,
}

// SAFETY: the mapping is used through `&mut self` only.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event`; `size` is a power of two of at least a page.
    pub fn new(event: OwnedFd, size: usize) -> io::Result<Ring> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let length = PAGE + size;
        // SAFETY: a new mapping.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                length,
                access,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        let page = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        let page = page.ok_or_else(io::Error::last_os_error)?;
        Ok(Ring { event, page, size })
    }

    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the first page, which kernel and we share and only access whole.
        unsafe { &*self.page.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Hands out whole records, oldest first, and gives their room back.
    pub fn read(&mut self, take: &mut dyn FnMut(&[u8])) {
        // Acquire: what the kernel wrote before it moved the head is seen.
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut joined = Vec::new();
        while tail < head {
            let header = self.copy(tail, 8, &mut joined);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if size < 8 || size as u64 > head - tail {
                // The kernel does not write such; begin anew behind all.
                tail = head;
                break;
            }
            take(self.copy(tail, size, &mut joined));
            tail += size as u64;
        }
        // Release: the kernel writes there only after we have read.
        self.position(TAIL).store(tail, Ordering::Release);
    }

    /// `size` bytes at `position`; those that wrap around are joined in `joined`.
    fn copy<'a>(&'a self, position: u64, size: usize, joined: &'a mut Vec<u8>) -> &'a [u8] {
        let at = position as usize & (self.size - 1);
        // SAFETY: the data pages, `size` long; between tail and head the kernel does not write.
        let piece = |at: usize, size: usize| unsafe {
            std::slice::from_raw_parts(self.page.as_ptr().add(PAGE + at), size)
        };
        let size = size.min(self.size);
        let first = size.min(self.size - at);
        if first == size {
            return piece(at, size);
        }
        joined.clear();
        joined.extend_from_slice(piece(at, first));
        joined.extend_from_slice(piece(0, size - first));
        joined
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no slice of it is left.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE + self.size) };
    }
}
