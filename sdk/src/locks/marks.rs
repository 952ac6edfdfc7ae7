//! What a site knows beside its stack, as words before the frames: no code has such addresses.

use std::cell::Cell;

use super::Kind;
use crate::sites::Row;

/// Words before the frames at most.
pub(super) const MARKS: usize = 3;

/// High 16 bits that no address of user space has.
const KIND: u64 = 0x71c1 << 48;
const NAME: u64 = 0x71c2 << 48;
const LENGTH: u64 = 0x71c3 << 48;
const LOW: u64 = (1 << 48) - 1;

// No destructors: they can be read until a thread's last instruction.
thread_local! {
    /// Name of the lock that this thread is about to wait for.
    static LOCK: Cell<&'static str> = const { Cell::new("") };
    static IGNORED: Cell<bool> = const { Cell::new(false) };
}

/// Waits of the calling thread are not recorded: it is pilotlight's.
pub(crate) fn ignore_this_thread() {
    IGNORED.set(true);
}

pub(super) fn is_ignored() -> bool {
    IGNORED.get()
}

/// Names the lock that `wait` waits for.
pub(crate) fn named<T>(name: &'static str, wait: impl FnOnce() -> T) -> T {
    struct Restore(&'static str);
    impl Drop for Restore {
        fn drop(&mut self) {
            LOCK.set(self.0);
        }
    }
    let _restore = Restore(LOCK.replace(name));
    wait()
}

/// Writes what is known of the present wait; how many words that took.
pub(super) fn write(words: &mut [u64], kind: Kind) -> usize {
    words[0] = KIND | kind as u64;
    let name = LOCK.get();
    if name.is_empty() {
        return 1;
    }
    words[1] = NAME | name.as_ptr() as u64 & LOW;
    words[2] = LENGTH | name.len() as u64 & LOW;
    3
}

/// Takes the marks off a row: its kind, and the name of its lock.
pub(super) fn take(row: &mut Row) -> (Kind, Option<&'static str>) {
    let is = |at: usize, mark: u64| row.frames.get(at).filter(|w| **w & !LOW == mark);
    let Some(kind) = is(0, KIND).map(|word| Kind::from_number((word & LOW) as u8)) else {
        return (Kind::Futex, None);
    };
    let name = is(1, NAME).zip(is(2, LENGTH)).map(|(name, length)| {
        // SAFETY: written by `write` from a `&'static str` of this process.
        unsafe {
            let bytes =
                std::slice::from_raw_parts((name & LOW) as *const u8, (length & LOW) as usize);
            std::str::from_utf8_unchecked(bytes)
        }
    });
    row.frames.drain(..if name.is_some() { 3 } else { 1 });
    (kind, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(frames: &[u64]) -> Row {
        Row {
            frames: frames.to_vec(),
            truncated: false,
            is_overflow: false,
            counters: [1, 2, 0, 0],
        }
    }

    #[test]
    fn marks_come_back_and_leave_the_frames() {
        let mut words = [0; MARKS];
        assert_eq!(write(&mut words, Kind::Condvar), 1);
        let mut plain = row(&[words[0], 10, 20]);
        assert_eq!(take(&mut plain), (Kind::Condvar, None));
        assert_eq!(plain, row(&[10, 20]));

        let written = named("orders", || write(&mut words, Kind::FutexLock));
        assert_eq!(written, 3);
        let mut named_row = row(&[words[0], words[1], words[2], 10]);
        assert_eq!(take(&mut named_row), (Kind::FutexLock, Some("orders")));
        assert_eq!(named_row, row(&[10]));
        assert_eq!(write(&mut words, Kind::Join), 1);
        // The place for what found no room has no frames.
        assert_eq!(take(&mut row(&[])), (Kind::Futex, None));
    }
}
