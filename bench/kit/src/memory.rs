use std::{fs, io};

/// Resident memory of this process in KiB.
///
/// # Errors
/// `/proc/self/status` cannot be read or lacks the field.
pub fn rss_kib() -> io::Result<u64> {
    field("VmRSS:")
}

/// Highest resident memory since the start or the last [`reset_peak_rss`], in KiB.
///
/// # Errors
/// `/proc/self/status` cannot be read or lacks the field.
pub fn peak_rss_kib() -> io::Result<u64> {
    field("VmHWM:")
}

/// Makes the present resident memory the new peak.
///
/// # Errors
/// `/proc/self/clear_refs` cannot be written.
pub fn reset_peak_rss() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

fn field(name: &str) -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/self/status")))
}
