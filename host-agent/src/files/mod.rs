//! Files that are mapped into processes: read once each, whoever maps them.

mod cache;
mod code;
mod ids;
mod sparse;

pub use code::Code;

use crate::error::Error;
use crate::limits;
use crate::process::Mapping;
use crate::runtimes;
use pilotlight_unwind::{Module, Segment, Table};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which file, and which contents of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change, nanoseconds since the Unix epoch.
    pub changed_ns: i64,
}

/// What is known of one file.
#[derive(Debug)]
pub struct File {
    /// Which.
    pub key: FileKey,
    /// Its GNU build id in hexadecimal, else Go's build id, else its `htlhash`: never empty.
    pub build_id: String,
    /// Unwind rows.
    pub table: Arc<Table>,
    /// The interpreter that it holds.
    pub runtime: Option<runtimes::Found>,
    /// Loadable segments: `start` and `limit` are stated addresses (svma).
    pub segments: Vec<Segment>,
}

impl File {
    /// What is added to stated addresses to get those of a process that mapped `mapping` of this file.
    pub fn bias(&self, mapping: &Mapping) -> Option<u64> {
        const PAGE: u64 = 4096;
        let offset = mapping.file_offset;
        let holds = |s: &&Segment| {
            let size = s.limit.saturating_sub(s.start);
            let first = s.file_offset & !(PAGE - 1);
            (first..s.file_offset.saturating_add(size)).contains(&offset)
        };
        // Segments share pages of the file: the executable one is meant.
        let segment = self.segments.iter().filter(|s| s.executable).find(holds)?;
        let svma = segment
            .start
            .wrapping_sub(segment.file_offset)
            .wrapping_add(offset);
        Some(mapping.start.wrapping_sub(svma))
    }
}

/// All files, by identity.
#[derive(Debug, Default)]
pub struct Files {
    known: Mutex<HashMap<FileKey, Option<Arc<File>>>>,
    cache: Option<Mutex<cache::Cache>>,
    built: AtomicU64,
    cached: AtomicU64,
}

/// Files whose tables are in memory, and where tables came from since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Files that are known.
    pub files: u64,
    /// Bytes of their rows.
    pub bytes: u64,
    /// Tables that were compiled.
    pub built: u64,
    /// Tables that were read from the folder of tables instead.
    pub cached: u64,
    /// Tables in that folder,
    pub kept: u64,
    /// and bytes of its files.
    pub kept_bytes: u64,
    /// Places in it that were damaged.
    pub damaged: u64,
    /// Files in it of another version.
    pub outdated: u64,
    /// Tables in it that made room for others.
    pub evicted: u64,
}

impl Files {
    /// Tables are kept in `folder` too, in at most `budget_bytes`, and found there by the next agent.
    ///
    /// # Errors
    /// When the folder cannot be used, or another agent uses it.
    pub fn kept_in(folder: &Path, budget_bytes: u64) -> Result<Files, Error> {
        let opened = cache::Cache::open(folder, budget_bytes);
        let cache = opened.map_err(|source| Error::Io {
            path: folder.display().to_string(),
            source,
        })?;
        Ok(Files {
            cache: Some(Mutex::new(cache)),
            ..Files::default()
        })
    }

    /// The file behind a mapping of `pid`; `None` when it cannot be had, or is no ELF file.
    pub fn of(&self, pid: u32, mapping: &Mapping) -> Option<Arc<File>> {
        if !mapping.is_file() {
            return None;
        }
        let (file, key) = open(pid, mapping)?;
        if let Some(known) = self.lock().get(&key) {
            return known.clone();
        }
        // A file that cannot be read is not tried again until it changes.
        let read = self.read(&file, key, mapping).ok().map(Arc::new);
        // Another thread may have read it meanwhile: its table is the one that all share.
        self.lock().entry(key).or_insert(read).clone()
    }

    /// Forgets files that no process uses, when there are many.
    pub fn sweep(&self) {
        let mut files = self.lock();
        if files.len() > limits::FILES {
            let used = |file: &File| Arc::strong_count(&file.table) > 1;
            files.retain(|_, file| file.as_deref().is_some_and(used));
        }
    }

    /// What there is, and where it came from.
    pub fn counts(&self) -> TableCounts {
        let known = self.lock();
        let rows = |file: &Arc<File>| file.table.rows().len() as u64 * 4;
        let (files, bytes) = (known.len() as u64, known.values().flatten().map(rows).sum());
        drop(known);
        let mut counts = TableCounts {
            files,
            bytes,
            built: self.built.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
            ..TableCounts::default()
        };
        if let Some(cache) = self.cache() {
            let (kept, bytes) = cache.size();
            let of = cache.counts();
            (counts.kept, counts.kept_bytes) = (kept as u64, bytes);
            (counts.damaged, counts.outdated, counts.evicted) =
                (of.damaged, of.outdated, of.evicted);
        }
        counts
    }

    fn read(&self, file: &fs::File, key: FileKey, mapping: &Mapping) -> Result<File, Error> {
        let failed = |reason| Error::File {
            path: String::from_utf8_lossy(&mapping.path).into_owned(),
            reason,
        };
        sparse::is_elf(file).map_err(failed)?;
        let build_id = ids::id(file, key.size).map_err(|error| failed(error.to_string()))?;
        let cached = self
            .cache()
            .and_then(|mut cache| cache.get(&key, &build_id));
        let (table, segments) = match cached {
            Some(kept) => {
                self.cached.fetch_add(1, Ordering::Relaxed);
                (Arc::new(kept.table), kept.segments)
            }
            None => self.build(file, key, &build_id).map_err(failed)?,
        };
        Ok(File {
            key,
            build_id,
            table,
            segments,
            runtime: runtimes::find(file),
        })
    }

    fn build(
        &self,
        file: &fs::File,
        key: FileKey,
        build_id: &str,
    ) -> Result<(Arc<Table>, Vec<Segment>), String> {
        let bytes = sparse::read(file, key.size)?;
        let module = Module::from_elf(bytes.bytes(), 0, Vec::new()).map_err(|e| e.to_string())?;
        drop(bytes);
        self.built.fetch_add(1, Ordering::Relaxed);
        if let Some(mut cache) = self.cache() {
            // Without room on the disk it is made again next time.
            let put = cache.put(&key, build_id, &module.table, &module.segments);
            drop(put);
        }
        Ok((module.table, module.segments))
    }

    fn cache(&self) -> Option<MutexGuard<'_, cache::Cache>> {
        let cache = self.cache.as_ref()?.lock();
        Some(cache.unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileKey, Option<Arc<File>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Through the mapping itself, which a deleted or replaced file still has; else by its path in the process's own file
/// system, when that is the same file.
pub fn open(pid: u32, mapping: &Mapping) -> Option<(fs::File, FileKey)> {
    let range = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    if let Some(opened) = open_regular(PathBuf::from(range)) {
        return Some(opened);
    }
    let path = std::str::from_utf8(&mapping.path).ok()?;
    let doors = [format!("/proc/{pid}/root{path}"), path.to_owned()];
    let same = |(_, key): &(fs::File, FileKey)| key.inode == mapping.inode;
    doors
        .into_iter()
        .find_map(|door| open_regular(PathBuf::from(door)).filter(same))
}

/// Pipes and devices that a process put in the way neither block nor are read.
pub(crate) fn open_regular(path: PathBuf) -> Option<(fs::File, FileKey)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let data = file.metadata().ok()?;
    let key = FileKey {
        device: data.dev(),
        inode: data.ino(),
        size: data.size(),
        changed_ns: data
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(data.mtime_nsec()),
    };
    data.is_file().then_some((file, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Processes;

    #[test]
    fn the_second_start_builds_no_table_and_has_the_same_rows() {
        let name = format!("pilotlight-kept-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let start = || {
            let processes = Processes::with_files(Files::kept_in(&folder, 64 << 20).unwrap());
            let pid = std::process::id();
            let process = processes.current(pid).unwrap();
            let modules = processes.modules(pid).unwrap();
            let counts = processes.files().counts();
            let runtimes = |mapping: &Mapping| {
                let file = processes.files().of(pid, mapping)?;
                Some((
                    file.build_id.clone(),
                    file.segments.clone(),
                    file.bias(mapping),
                ))
            };
            let files: Vec<_> = process.mappings.iter().map(runtimes).collect();
            (modules, files, counts)
        };
        let (first, first_files, counts) = start();
        assert!(counts.built >= 2 && counts.cached == 0, "{counts:?}");
        let (second, second_files, after) = start();
        assert_eq!((after.built, after.cached), (0, counts.built));
        assert_eq!((after.damaged, after.outdated, after.evicted), (0, 0, 0));
        assert_eq!(first_files, second_files);
        for (a, b) in first.iter().zip(second.iter()) {
            assert_eq!(a.table.rows(), b.table.rows());
            assert_eq!(a.table.rules(), b.table.rules());
            assert_eq!(
                (a.image_base(), a.start_avma),
                (b.image_base(), b.start_avma)
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
