//! The single steps by which [`LocalDisk`](super::disk::LocalDisk) makes a file durable, and a place
//! to stand between them: tests make each of them fail, and record them to play a power cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// One thing that is asked of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Make an empty file.
    Create(&'a Path),
    /// Write all of its content.
    Write(&'a Path, &'a [u8]),
    /// fsync it.
    SyncFile(&'a Path),
    /// Give the file a second name, which must be free.
    Link(&'a Path, &'a Path),
    /// fsync a folder: names made and removed in it are durable from then on.
    SyncFolder(&'a Path),
    /// Remove a name.
    Remove(&'a Path),
}

/// Sees every step before it is done.
pub trait Watch: Send + Sync + 'static {
    /// Called before the step.
    ///
    /// # Errors
    /// What the system is to have answered; the step is not done then.
    fn before(&self, step: Step<'_>) -> io::Result<()>;
}

/// Nobody watches.
struct Nobody;

impl Watch for Nobody {
    fn before(&self, _: Step<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Does the steps.
#[derive(Clone)]
pub(super) struct Steps(Arc<dyn Watch>);

impl Default for Steps {
    fn default() -> Self {
        Self(Arc::new(Nobody))
    }
}

impl Steps {
    pub fn watched(watch: Arc<dyn Watch>) -> Self {
        Self(watch)
    }

    /// Writes a file and makes its content durable. A name of its own each time: after a failed
    /// fsync the kernel calls the same pages clean, and a second fsync would say yes to nothing.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.0.before(Step::Create(path))?;
        let mut file = File::create(path)?;
        self.0.before(Step::Write(path, bytes))?;
        file.write_all(bytes)?;
        self.0.before(Step::SyncFile(path))?;
        file.sync_all()
    }

    /// A link fails where a rename would overwrite: create-only.
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.before(Step::Link(from, to))?;
        fs::hard_link(from, to)
    }

    pub fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.before(Step::SyncFolder(folder))?;
        File::open(folder)?.sync_all()
    }

    /// A file that is not there counts as removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.before(Step::Remove(path))?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
