//! Memory of this process as another thread may unmap it any moment: read by a system call that
//! fails where a load would crash.

use std::cell::{Cell, RefCell};

use pilotlight_unwind::Stack;

/// Bytes of stack that are copied at first; most blocked threads need no more.
const FIRST_BYTES: usize = 4 << 10;
/// Stack beyond this is not looked at.
const MAX_BYTES: usize = 8 << 20;

/// Reads up to `out.len()` bytes at `address`; how many there were.
pub(crate) fn read(address: u64, out: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: out.len(),
    };
    // SAFETY: writes into `out` only; an address that is not mapped is an error, not a fault.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// A blocked thread's stack from its stack pointer upwards, copied as the walk comes to it.
#[derive(Default)]
pub(super) struct StackCopy {
    start: Cell<u64>,
    words: RefCell<Vec<u64>>,
    /// There is no more to copy.
    ended: Cell<bool>,
}

impl StackCopy {
    /// Forgets what was copied; the next word read is that of another stack.
    pub(super) fn begin(&mut self, sp: u64) {
        self.start.set(sp & !7);
        self.words.get_mut().clear();
        self.ended.set(sp == 0);
    }

    /// Copies as much again, and at least the first piece.
    fn grow(&self) {
        let mut words = self.words.borrow_mut();
        let old = words.len();
        let more = (old * 8).max(FIRST_BYTES) / 8;
        words.resize(old + more, 0);
        let at = self.start.get().wrapping_add(old as u64 * 8);
        let (_, fresh, _) = {
            // SAFETY: any bytes are words and words are bytes.
            unsafe { words[old..].align_to_mut::<u8>() }
        };
        let read = read(at, fresh) / 8;
        words.truncate(old + read);
        self.ended.set(read < more || words.len() * 8 >= MAX_BYTES);
    }
}

impl Stack for StackCopy {
    fn word(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.start.get())?;
        if distance % 8 != 0 || distance >= MAX_BYTES as u64 {
            return None;
        }
        let at = (distance / 8) as usize;
        while at >= self.words.borrow().len() {
            if self.ended.get() {
                return None;
            }
            self.grow();
        }
        self.words.borrow().get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_as_far_as_they_are_mapped() {
        let size = 64 << 10;
        // SAFETY: a fresh mapping; its second half is given back.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::munmap(start.byte_add(size / 2), size / 2), 0);
            for at in 0..size / 16 {
                start.cast::<u64>().add(at).write(at as u64 * 3);
            }
            start as u64
        };
        let mut copy = StackCopy::default();
        copy.begin(start + 16);
        assert_eq!(copy.word(start + 16), Some(6));
        assert_eq!(copy.word(start + 8), None, "below the stack pointer");
        assert_eq!(copy.word(start + 20), None, "unaligned");
        let last = start + size as u64 / 2 - 8;
        assert_eq!(copy.word(last), Some((size as u64 / 16 - 1) * 3));
        assert_eq!(copy.word(last + 8), None, "not mapped");
        copy.begin(8);
        assert_eq!(copy.word(8), None);
        // SAFETY: the rest of the mapping above.
        unsafe { libc::munmap(start as *mut _, size / 2) };
    }
}
