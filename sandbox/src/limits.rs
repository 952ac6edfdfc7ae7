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
    /// Holds for this process from here on. `file_bytes` will be mapped.
    pub(crate) fn enter(&self, file_bytes: u64) -> Result<(), String> {
        set(libc::RLIMIT_CORE, 0)?;
        set(libc::RLIMIT_NOFILE, 16)?;
        set(libc::RLIMIT_FSIZE, self.table_bytes)?;
        set(libc::RLIMIT_CPU, self.cpu.as_secs().max(1))?;
        set(
            libc::RLIMIT_AS,
            file_bytes.saturating_add(self.memory_bytes),
        )
    }
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
