//! What another thread does now, without disturbing it: `/proc/self/task/TID/syscall` tells stack
//! and instruction pointer of a thread that is blocked.
//! <https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html>

use std::fs::File;
use std::os::unix::fs::FileExt;

use pilotlight_unwind::{End, Modules};

use super::memory::StackCopy;
use super::outside;
use crate::threads::timer::thread_clock_ns;

/// What a thread was found doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Blocked; its stack is in the looker's frames, whole or cut at the depth asked for.
    Blocked { truncated: bool },
    /// Blocked, but its stack cannot be read to the root from outside; the frames up to there are
    /// in the looker's.
    Partial { sp: u64 },
    /// Nothing can be known from outside.
    Hidden,
    /// It runs, waits for a CPU, or ends.
    Running,
}

/// Buffers for looking at threads one after the other.
#[derive(Default)]
pub(super) struct Looker {
    stack: StackCopy,
    walker: outside::Walker,
    /// Leaf first; every address is inside its instruction.
    pub(super) frames: Vec<u64>,
    /// The system call that the thread is blocked in; -1 when it is in none.
    pub(super) call: Option<i64>,
}

/// Opens what [`Looker::look`] reads.
pub(super) fn open(tid: i32) -> Option<File> {
    File::open(format!("/proc/self/task/{tid}/syscall")).ok()
}

impl Looker {
    /// Code may have come and gone.
    pub(super) fn forget_code(&mut self) {
        self.walker.forget_code();
    }

    /// Looks at thread `tid`, whose CPU clock stood at `clock_ns` a moment ago. `kept`: the frame
    /// pointer it once told of, by stack pointer.
    pub(super) fn look(
        &mut self,
        tid: i32,
        clock_ns: u64,
        file: &File,
        modules: &Modules,
        kept: &dyn Fn(u64) -> Option<u64>,
        max_depth: usize,
    ) -> Found {
        if !outside::CAN_READ {
            return Found::Hidden;
        }
        let mut text = [0; 256];
        let Ok(length) = file.read_at(&mut text, 0) else {
            return Found::Running;
        };
        self.call = call(&text[..length]);
        let Some((sp, ip)) = pointers(&text[..length]) else {
            return Found::Running;
        };
        self.stack.begin(sp);
        let pointers = outside::Pointers {
            sp,
            ip,
            kept_bp: kept(sp),
        };
        let frames = &mut self.frames;
        let end = self
            .walker
            .walk(pointers, modules, &self.stack, max_depth, frames);
        // A clock that stood still: the thread ran no instruction while its stack was copied.
        if thread_clock_ns(tid) != Some(clock_ns) {
            return Found::Running;
        }
        match end {
            End::Root => Found::Blocked { truncated: false },
            End::Truncated => Found::Blocked { truncated: true },
            _ => Found::Partial { sp },
        }
    }
}

/// The number that the line begins with.
fn call(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text)
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// Stack and instruction pointer of a blocked thread: the last two words of the line. One that runs
/// shows as `running`, one that ends shows none.
fn pointers(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    let mut words = text.rsplit(' ').map(|word| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    match (words.next().flatten(), words.next().flatten()) {
        (Some(ip), Some(sp)) if ip != 0 => Some((sp, ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let blocked = b"202 0x55a5 0x89 0xff 0x0 0x0 0xff 0x7f324f1bebb8 0x7f324f4c5829\n";
        assert_eq!(
            pointers(blocked),
            Some((0x7f32_4f1b_ebb8, 0x7f32_4f4c_5829))
        );
        let no_call = b"-1 0x7ffd10 0x401000\n";
        assert_eq!((call(blocked), call(no_call)), (Some(202), Some(-1)));
        assert_eq!(pointers(no_call), Some((0x7f_fd10, 0x40_1000)));
        for nothing in [&b"running\n"[..], b"", b"0\n", b"1 2 3\n", b"0 0x0 0x0\n"] {
            assert_eq!(pointers(nothing), None);
        }
    }
}
