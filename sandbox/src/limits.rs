//! Memory, time and descriptors of the child.

use std::time::Duration;

/// What one file may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, besides the mapped file.
    pub memory_bytes: u64,
    /// CPU time.
    pub cpu: Duration,
    /// Time by the clock, which the parent measures.
    pub wall: Duration,
    /// Bytes of the table.
    pub table_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 1 << 30,
            cpu: Duration::from_secs(300),
            wall: Duration::from_secs(900),
            table_bytes: 2 << 30,
        }
    }
}

impl Limits {
    /// Holds for this process from here on. `file_bytes` are mapped, as is this program.
    pub(crate) fn enter(&self, file_bytes: u64) -> Result<(), String> {
        set(libc::RLIMIT_CORE, 0)?;
        set(libc::RLIMIT_NOFILE, 16)?;
        set(libc::RLIMIT_FSIZE, self.table_bytes)?;
        set(libc::RLIMIT_CPU, self.cpu.as_secs().max(1))?;
        let mapped_bytes = mapped_bytes().unwrap_or(file_bytes);
        set(
            libc::RLIMIT_AS,
            mapped_bytes.saturating_add(self.memory_bytes),
        )
    }
}

/// What of the address space is in use: `/proc/PID/statm` begins with it, in pages.
fn mapped_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    // SAFETY: a question about a constant of the system.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    pages.checked_mul(page_bytes)
}

#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn set(resource: Resource, value: u64) -> Result<(), String> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: a valid pointer to a structure that lives during the call.
    match unsafe { libc::setrlimit(resource, &limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}
