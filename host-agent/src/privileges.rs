//! Gives away what the agent does not need.

use crate::doctor::KEPT;
use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;
/// Numbers of capabilities that may exist.
const CAPABILITIES: u32 = 64;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps only the capabilities of [`KEPT`] that this process has, for good: nothing it executes gets more.
///
/// Capabilities belong to threads: call it before any other thread is started.
///
/// # Errors
/// When the kernel refuses; then nothing was given away.
pub fn give_away() -> io::Result<()> {
    let held = held()?;
    for capability in (0..CAPABILITIES).filter(|bit| KEPT >> bit & 1 == 0) {
        // Refused without CAP_SETPCAP, and for numbers that do not exist: then there is nothing to take away.
        // SAFETY: changes this thread's bounding set.
        unsafe {
            libc::prctl(
                libc::PR_CAPBSET_DROP,
                libc::c_ulong::from(capability),
                0,
                0,
                0,
            )
        };
    }
    // SAFETY: numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    set(held & KEPT)
}

/// The permitted set.
fn held() -> io::Result<u64> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut sets = [Set::default(); 2];
    // SAFETY: fills two sets, as version 3 has them.
    match unsafe { libc::syscall(libc::SYS_capget, &mut header, sets.as_mut_ptr()) } {
        0 => Ok(u64::from(sets[0].permitted) | u64::from(sets[1].permitted) << 32),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(mask: u64) -> io::Result<()> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let half = |mask: u32| Set {
        effective: mask,
        permitted: mask,
        inheritable: 0,
    };
    let sets = [half(mask as u32), half((mask >> 32) as u32)];
    // SAFETY: reads two sets, as version 3 has them.
    match unsafe { libc::syscall(libc::SYS_capset, &mut header, sets.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_left_and_cannot_grow() {
        // Of this thread alone; each test has one of its own.
        give_away().unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(found.unwrap().trim(), 16).unwrap()
        };
        assert_eq!(line("CapEff:") & !KEPT, 0);
        assert_eq!(line("CapPrm:") & !KEPT, 0);
        assert_eq!(line("NoNewPrivs:"), 1);
    }
}
