//! Files of `/proc/PID`, each with a bound.

use super::{Process, parse_maps};
use crate::limits;
use crate::sampler::Comm;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// At most `limit` bytes of a file of `/proc/PID`.
pub(crate) fn read(pid: u32, name: &str, limit: u64) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/{name}")).ok()?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// All that `/proc` tells of a process; `None` when it is gone.
pub(super) fn read_process(pid: u32) -> Option<Process> {
    let small = |name| read(pid, name, limits::PROC_FILE_BYTES);
    let stat = small("stat")?;
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    let mut exe = exe
        .map(|path| path.into_os_string().into_vec())
        .unwrap_or_default();
    if exe.ends_with(b" (deleted)") {
        exe.truncate(exe.len() - b" (deleted)".len());
    }
    Some(Process {
        comm: Comm::new(small("comm").unwrap_or_default().trim_ascii_end()),
        exe,
        start_ticks: start_ticks(&stat).unwrap_or(0),
        namespace_pids: namespace_pids(&small("status").unwrap_or_default()),
        cgroup: small("cgroup").unwrap_or_default(),
        mappings: Arc::new(read_mappings(pid)),
        ..Process::default()
    })
}

/// Its executable mappings now.
pub(super) fn read_mappings(pid: u32) -> Vec<super::Mapping> {
    let text = read(pid, "maps", limits::MAPS_BYTES).unwrap_or_default();
    parse_maps(&text, b"").0
}

/// Field 22, counted behind the name, which may hold anything.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The line `NSpid:` of `/proc/PID/status`.
fn namespace_pids(status: &[u8]) -> Vec<u32> {
    let lines = status.split(|&byte| byte == b'\n');
    let line = lines
        .into_iter()
        .find_map(|line| line.strip_prefix(b"NSpid:"));
    let text = line
        .and_then(|line| std::str::from_utf8(line).ok())
        .unwrap_or("");
    text.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Any bytes as `stat` and as `status`.
pub(super) fn hostile(input: &[u8]) {
    let _ = start_ticks(input);
    let _ = namespace_pids(input);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_a_hostile_name() {
        let mut stat = b"77 (a) R 1) (b) S".to_vec();
        for field in 4..=30 {
            stat.extend(format!(" {field}").bytes());
        }
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(start_ticks(b"77 (a"), None);
    }

    #[test]
    fn pids_of_all_namespaces_are_read() {
        assert_eq!(
            namespace_pids(b"Name:\tx\nNSpid:\t4711\t12\t1\nNSpgid:\t1\n"),
            [4711, 12, 1]
        );
        assert_eq!(namespace_pids(b"Name:\tx\n"), [0u32; 0]);
    }

    #[test]
    fn this_process_is_read() {
        let process = read_process(std::process::id()).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(process.exe, exe.into_os_string().into_vec());
        assert!(process.start_ticks > 0);
        let here = this_process_is_read as *const () as u64;
        assert!(process.mapping(here).unwrap().is_file());
    }
}
