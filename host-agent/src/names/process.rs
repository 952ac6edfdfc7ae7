//! All names that the runtimes of one process wrote down.

use super::{Ranges, hotspot, jitdump, perfmap};
use crate::files::open_regular;
use crate::limits;
use crate::process::Process;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A Java process is asked for its perf map at most this often.
const ASK: Duration = Duration::from_secs(60);
/// One that did not answer may still be starting.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Names of code that a process made. Files are followed: only what is new is read.
#[derive(Debug, Default)]
pub struct JitNames {
    ranges: Ranges,
    map: Followed,
    dump: Followed,
    asked: Option<Instant>,
    answered: bool,
}

/// How far a file was read.
#[derive(Debug, Default)]
struct Followed {
    inode: u64,
    changed: (i64, i64),
    at: u64,
    broken: bool,
}

impl JitNames {
    /// Reads what is new. `ask_java`: a Java process is asked to write its map.
    pub fn refresh(&mut self, process: &Process, ask_java: bool) {
        let pause = if self.answered { ASK } else { ASK_AGAIN };
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= pause);
        if ask_java && is_due && hotspot::is_java(process) {
            self.asked = Some(Instant::now());
            // A process that does not answer has no map; its frames show as placeholders.
            self.answered = hotspot::ask(process, "Compiler.perfmap").is_ok();
        }
        self.perf_map(process);
        self.jit_dump(process);
    }

    /// The name at an address, as the runtime wrote it.
    pub fn find(&self, address: u64) -> Option<&str> {
        self.ranges.find(address)
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn perf_map(&mut self, process: &Process) {
        let (pid, inner) = (process.id.pid, inner_pid(process));
        let path = format!("/proc/{pid}/root/tmp/perf-{inner}.map");
        let Some(file) = open_of(process, path) else {
            return;
        };
        if self.map.is_new(&file) {
            self.ranges = Ranges::default();
        }
        while let Some(bytes) = self.map.next(&file) {
            let read = perfmap::read(&bytes, &mut self.ranges);
            if !self.map.advance(read) {
                break;
            }
        }
    }

    fn jit_dump(&mut self, process: &Process) {
        let is_dump = |path: &[u8]| {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&[]);
            name.starts_with(b"jit-") && name.ends_with(b".dump")
        };
        let Some(mapping) = process
            .mappings
            .iter()
            .find(|m| m.is_file() && is_dump(&m.path))
        else {
            return;
        };
        let Some((file, _)) = crate::files::open(process.id.pid, mapping) else {
            return;
        };
        self.dump.is_new(&file);
        while let Some(bytes) = self.dump.next(&file) {
            let read = match self.dump.at {
                0 => jitdump::header(&bytes),
                _ => jitdump::read(&bytes, &mut self.ranges),
            };
            self.dump.broken = read.is_none();
            if !self.dump.advance(read.unwrap_or(0)) {
                break;
            }
        }
    }
}

impl Followed {
    /// Another file than before, or one that was written anew; then reading begins again.
    fn is_new(&mut self, file: &File) -> bool {
        let Ok(data) = file.metadata() else {
            return false;
        };
        let changed = (data.mtime(), data.mtime_nsec());
        let rewritten =
            data.size() < self.at || (data.size() == self.at && changed != self.changed);
        let is_new = data.ino() != self.inode || rewritten;
        if is_new {
            *self = Followed::default();
        }
        (self.inode, self.changed) = (data.ino(), changed);
        is_new
    }

    /// The next piece.
    fn next(&self, file: &File) -> Option<Vec<u8>> {
        if self.broken || self.at >= limits::JIT_FILE_BYTES {
            return None;
        }
        let mut bytes = vec![0; limits::JIT_PIECE_BYTES];
        let read = file
            .read_at(&mut bytes, self.at)
            .ok()
            .filter(|&read| read > 0)?;
        bytes.truncate(read);
        Some(bytes)
    }

    /// False when there is nothing more to read now.
    fn advance(&mut self, read: usize) -> bool {
        self.at += read as u64;
        read > 0
    }
}

/// Its pid in its own namespace, which runtimes put into names of files.
pub(super) fn inner_pid(process: &Process) -> u32 {
    process
        .namespace_pids
        .last()
        .copied()
        .unwrap_or(process.id.pid)
}

/// A file that belongs to the user of the process: others could give it any names.
fn open_of(process: &Process, path: String) -> Option<File> {
    let (file, _) = open_regular(PathBuf::from(path))?;
    let owner = std::fs::metadata(format!("/proc/{}", process.id.pid))
        .ok()?
        .uid();
    let of_file = file.metadata().ok()?.uid();
    (of_file == owner || of_file == 0).then_some(file)
}
