//! A table on disk without a name, mapped: it takes room in memory only while it is read.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A table that [`Parser::map`](crate::Parser::map) built. Its file goes away with it.
#[derive(Debug)]
pub struct Mapped(memmap2::Mmap);

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The file of a table that is to be built. Nobody outside this crate writes to it.
pub(crate) struct Nameless(File);

impl Nameless {
    /// A new file in `folder` that goes away with its last descriptor.
    pub fn create(folder: &Path) -> io::Result<Nameless> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = folder.join(format!("{}-{number}.table", std::process::id()));
        // One of that name is a leftover of a process that had the number of this one.
        let _ = fs::remove_file(&path);
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(Nameless(file))
    }

    /// For the child.
    pub fn writer(&self) -> io::Result<File> {
        self.0.try_clone()
    }

    /// What the child wrote, which has ended.
    pub fn map(self) -> io::Result<Mapped> {
        // SAFETY: the file has no name, so nobody can open it, and the only one that had it open
        // besides us, the child, has ended: nobody changes it or makes it shorter.
        unsafe { memmap2::Mmap::map(&self.0) }.map(Mapped)
    }
}
