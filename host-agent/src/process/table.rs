//! The table of processes: told by samplers, completed from `/proc`.

use super::entry::{Inner, REFRESH, pause_of};
use super::{Mapping, Process, ProcessId, maps, proc};
use crate::files::{Code, Files};
use crate::limits;
use crate::runtimes::Runtimes;
use crate::sampler::Comm;
use pilotlight_unwind::Modules;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All processes that were seen. Shared by threads.
#[derive(Debug, Default)]
pub struct Processes {
    files: Files,
    runtimes: Runtimes,
    inner: Mutex<Inner>,
}

impl Processes {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table over `files`.
    pub fn with_files(files: Files) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// Processes that run, as far as anybody told.
    pub fn count(&self) -> usize {
        self.lock().alive.len()
    }

    /// The files of all processes.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The interpreters of all processes.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// What runs in `pid` now, read from `/proc` when nobody told; `None` when there is no such process.
    pub fn current(&self, pid: u32) -> Option<Arc<Process>> {
        if let Some(entry) = self.lock().alive.get(&pid) {
            return Some(Arc::clone(&entry.process));
        }
        // Reading takes long; others go on meanwhile.
        let process = proc::read_process(pid)?;
        let mut inner = self.lock();
        if !inner.alive.contains_key(&pid) {
            inner.add(pid, process);
        }
        inner
            .alive
            .get(&pid)
            .map(|entry| Arc::clone(&entry.process))
    }

    /// A process that runs, or ended since the last exports.
    pub fn get(&self, id: ProcessId) -> Option<Arc<Process>> {
        let inner = self.lock();
        let alive = inner
            .alive
            .get(&id.pid)
            .filter(|entry| entry.process.id == id);
        let process = alive.map(|entry| &entry.process);
        process
            .or(inner.ended.get(&id).map(|ended| &ended.process))
            .map(Arc::clone)
    }

    /// What runs in `pid` now or, when nothing does, ran there last: a process goes on for a moment after it said that
    /// it ends.
    pub fn last(&self, pid: u32) -> Option<Arc<Process>> {
        if let Some(process) = self.current(pid) {
            return Some(process);
        }
        let inner = self.lock();
        let ended = inner.ended.iter().filter(|(id, _)| id.pid == pid);
        let last = ended.max_by_key(|(id, _)| id.image);
        last.map(|(_, ended)| Arc::clone(&ended.process))
    }

    /// Reads all processes that there are, so that what they start is known from its first moment on.
    pub fn read_all(&self) {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        for pid in entries.filter_map(pid) {
            self.current(pid);
        }
    }

    /// What runs in `pid`, as far as anybody told.
    pub fn known(&self, pid: u32) -> Option<ProcessId> {
        let inner = self.lock();
        inner.alive.get(&pid).map(|entry| entry.process.id)
    }

    /// It runs still, as far as anybody told.
    pub fn is_alive(&self, id: ProcessId) -> bool {
        let inner = self.lock();
        inner
            .alive
            .get(&id.pid)
            .is_some_and(|entry| entry.process.id == id)
    }

    /// [`Processes::modules`] would answer at once, or never.
    pub fn is_ready(&self, pid: u32) -> bool {
        let inner = self.lock();
        let alive = inner.alive.get(&pid);
        alive.is_none_or(|entry| entry.fresh().is_some())
    }

    /// What is mapped in a process, when that is known at once and nothing was mapped since.
    pub fn ready(&self, id: ProcessId) -> Option<Arc<Modules>> {
        let inner = self.lock();
        let alive = inner.alive.get(&id.pid);
        let code = match alive.filter(|entry| entry.process.id == id) {
            Some(entry) => entry.fresh()?,
            None => inner.ended.get(&id)?.code.as_ref()?,
        };
        Some(Arc::clone(&code.modules))
    }

    /// [`Processes::modules`] of what [`Processes::last`] ran in `pid`.
    pub fn last_modules(&self, pid: u32) -> Option<Arc<Modules>> {
        if let Some(modules) = self.modules(pid) {
            return Some(modules);
        }
        let process = self.last(pid)?;
        if let Some(ended) = self.lock().ended.get(&process.id)
            && let Some(code) = &ended.code
        {
            return Some(Arc::clone(&code.modules));
        }
        let code = Arc::new(self.files.code(&process, None));
        if let Some(ended) = self.lock().ended.get_mut(&process.id) {
            ended.code = Some(Arc::clone(&code));
        }
        Some(Arc::clone(&code.modules))
    }

    /// What is mapped in `pid`, ready for a walk.
    pub fn modules(&self, pid: u32) -> Option<Arc<Modules>> {
        Some(Arc::clone(&self.code(pid)?.modules))
    }

    /// What is mapped in `pid`, with its files. Of what was mapped before nothing is opened again.
    pub fn code(&self, pid: u32) -> Option<Arc<Code>> {
        let process = self.current(pid)?;
        let mut before = None;
        if let Some(entry) = self.lock().alive.get(&pid)
            && entry.process.id == process.id
        {
            if let Some(code) = entry.fresh() {
                return Some(Arc::clone(code));
            }
            before.clone_from(&entry.code);
        }
        let code = Arc::new(self.files.code(&process, before.as_deref()));
        if let Some(entry) = self.lock().alive.get_mut(&pid)
            && entry.process.id == process.id
        {
            entry.is_stale = !Arc::ptr_eq(&entry.process.mappings, &process.mappings);
            entry.code = Some(Arc::clone(&code));
        }
        Some(code)
    }

    /// An address of `pid` is in no mapping: reads them again, unless that was done a moment ago.
    /// Says whether there is something new.
    pub fn refresh(&self, pid: u32) -> bool {
        self.reread(pid) == Some(true)
    }

    /// [`Processes::refresh`]; `None` when that was done a moment ago, and is to be done later.
    pub fn reread(&self, pid: u32) -> Option<bool> {
        {
            let mut inner = self.lock();
            let Some(entry) = inner.alive.get_mut(&pid) else {
                return Some(false);
            };
            let now = Instant::now();
            if entry.refresh_after.is_some_and(|after| now < after) {
                return None;
            }
            entry.refresh_after = Some(now + REFRESH);
        }
        let began = Instant::now();
        let found = proc::read_mappings(pid);
        let mut inner = self.lock();
        let Some(entry) = inner.alive.get_mut(&pid) else {
            return Some(false);
        };
        entry.refresh_after = Some(began + pause_of(began.elapsed(), found.len()));
        let known = &entry.process.mappings;
        let is_known = |mapping: &Mapping| {
            let same = known.binary_search_by_key(&mapping.start, |known| known.start);
            same.is_ok_and(|at| known.get(at) == Some(mapping))
        };
        if found.iter().all(is_known) {
            return Some(false);
        }
        // What was unmapped keeps its place as long as nothing else took it: samples of it may still come.
        let process = Arc::make_mut(&mut entry.process);
        let mappings = Arc::make_mut(&mut process.mappings);
        for mapping in found {
            maps::insert(mappings, mapping);
        }
        entry.is_stale = true;
        Some(true)
    }

    /// `child` is a copy of `parent`.
    pub fn forked(&self, parent: u32, child: u32) {
        let mut inner = self.lock();
        let Some(parent) = inner.alive.get(&parent) else {
            return;
        };
        let (code, is_stale) = (parent.code.clone(), parent.is_stale);
        let mut process = Process::clone(&parent.process);
        process.start_ticks = 0;
        process.namespace_pids.clear();
        inner.retire(child);
        inner.add(child, process);
        if let Some(entry) = inner.alive.get_mut(&child) {
            (entry.code, entry.is_stale) = (code, is_stale);
        }
    }

    /// `pid` executes another program.
    pub fn executed(&self, pid: u32, comm: Comm) {
        let seen = proc::read_process(pid);
        let mut inner = self.lock();
        let cgroup = inner
            .alive
            .get(&pid)
            .map(|entry| entry.process.cgroup.clone());
        inner.retire(pid);
        let process = seen.filter(|process| process.comm == comm);
        let process = process.unwrap_or_else(|| Process {
            comm,
            cgroup: cgroup.unwrap_or_default(),
            ..Process::default()
        });
        inner.add(pid, process);
    }

    /// A thread of `pid` named its process anew.
    pub fn renamed(&self, pid: u32, comm: Comm) {
        if let Some(entry) = self.lock().alive.get_mut(&pid) {
            Arc::make_mut(&mut entry.process).comm = comm;
        }
    }

    /// `pid` mapped executable memory.
    pub fn mapped(&self, pid: u32, mapping: Mapping) {
        let mut inner = self.lock();
        let Some(entry) = inner.alive.get_mut(&pid) else {
            return;
        };
        // Of a process with this many they are read as a whole, when code is met that is unknown.
        let known = &entry.process.mappings;
        let same = known.binary_search_by_key(&mapping.start, |known| known.start);
        let is_known = same.is_ok_and(|at| known.get(at) == Some(&mapping));
        if known.len() >= limits::TOLD_MAPPINGS || is_known {
            return;
        }
        let process = Arc::make_mut(&mut entry.process);
        if process.exe.is_empty() && mapping.is_file() {
            process.exe = mapping.path.to_vec();
        }
        maps::insert(Arc::make_mut(&mut process.mappings), mapping);
        entry.is_stale = true;
    }

    /// `pid` ended.
    pub fn exited(&self, pid: u32) {
        self.lock().retire(pid);
    }

    /// Called after each export: forgets what ended before the export before, and processes whose end nobody told.
    pub fn sweep(&self) {
        let pids: Vec<u32> = self.lock().alive.keys().copied().collect();
        let gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        let gone: Vec<u32> = pids.into_iter().filter(gone).collect();
        let mut inner = self.lock();
        inner
            .ended
            .retain(|_, ended| !std::mem::replace(&mut ended.old, true));
        for pid in gone {
            inner.retire(pid);
        }
        drop(inner);
        self.files.sweep();
        self.runtimes.sweep(|id| self.get(id).is_some());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn mapping(start: u64, path: &[u8]) -> Mapping {
        Mapping {
            start,
            end: start + 4096,
            file_offset: 0,
            device: 1,
            inode: 7,
            path: path.into(),
        }
    }

    /// No such process: pids end far below.
    const PID: u32 = 0x7000_0000;

    #[test]
    fn a_program_is_told_from_the_one_before_it_and_remembered_for_one_export() {
        let table = Processes::new();
        table.executed(PID, Comm::new(b"make"));
        table.mapped(PID, mapping(0x1000, b"/usr/bin/make"));
        let make = table.current(PID).unwrap();
        table.forked(PID, PID + 1);
        let child = table.current(PID + 1).unwrap();
        assert_eq!((child.comm, child.mappings.len()), (make.comm, 1));
        table.executed(PID + 1, Comm::new(b"cc1"));
        table.mapped(PID + 1, mapping(0x1000, b"/usr/lib/cc1"));
        let compiler = table.current(PID + 1).unwrap();
        assert_eq!(compiler.exe, b"/usr/lib/cc1");
        assert_ne!(compiler.id, child.id);
        table.exited(PID + 1);
        assert!(table.current(PID + 1).is_none());
        assert_eq!(table.get(compiler.id).unwrap().comm, Comm::new(b"cc1"));
        assert_eq!(table.get(child.id).unwrap().comm, Comm::new(b"make"));
        table.sweep();
        assert!(table.get(compiler.id).is_some());
        table.sweep();
        assert!(table.get(compiler.id).is_none() && table.get(child.id).is_none());
    }

    #[test]
    fn a_process_of_very_many_mappings_is_read_seldom_and_not_told_of_each() {
        let usual = pause_of(Duration::from_micros(300), 40);
        assert_eq!(usual, REFRESH);
        assert_eq!(pause_of(Duration::from_millis(40), 40).as_millis(), 2000);
        assert_eq!(pause_of(Duration::from_millis(40), 60_000).as_secs(), 60);
        let table = Processes::new();
        table.executed(PID, Comm::new(b"many"));
        for page in 0..limits::TOLD_MAPPINGS as u64 + 5 {
            table.mapped(PID, mapping(page << 13, b"/usr/bin/many"));
        }
        let known = table.current(PID).unwrap().mappings.len();
        assert_eq!(known, limits::TOLD_MAPPINGS);
    }

    #[test]
    fn this_process_has_modules_that_hold_this_code() {
        let table = Processes::new();
        let modules = table.modules(std::process::id()).unwrap();
        let here = this_process_has_modules_that_hold_this_code as *const () as u64;
        let module = modules.find(here).unwrap();
        assert!(module.table.stats().fdes > 100);
        assert!(Arc::ptr_eq(
            &modules,
            &table.modules(std::process::id()).unwrap()
        ));
    }
}
