//! Durable files. `object_store` 0.13 never calls fsync on a local directory, so the put is ours;
//! listing, reading and deleting go through it.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use tokio::runtime::Handle;

use super::lease;
use super::steps::{Steps, Watch};
use crate::block;

/// The files of segments and blocks. Calls block; none of them may run on an async worker.
pub trait Disk: Send + Sync + 'static {
    /// Writes a new file; when this returns `Ok`, content and name survive a power cut.
    /// After an error the file is not there (or, if even its removal fails, may be).
    ///
    /// # Errors
    /// The cause as the system gives it; `AlreadyExists` when the name is taken.
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Names and lengths of all files, sorted by name.
    ///
    /// # Errors
    /// When the folder cannot be read.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Bytes of a file; shorter than asked when the file ends earlier.
    ///
    /// # Errors
    /// `NotFound`, or what reading gives.
    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>>;
    /// Deletes a file; one that is not there counts as deleted.
    ///
    /// # Errors
    /// When it is still there.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the removals so far survive a power cut; a file that comes back would count again once
    /// nothing says any more that it was replaced.
    ///
    /// # Errors
    /// What the system answers; removals may then be undone.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether other servers may work on the same files.
    fn shared(&self) -> bool {
        false
    }
}

/// A local directory: segments in one folder, the files of blocks in another.
pub struct LocalDisk {
    segments: Folder,
    blocks: Folder,
    temporary: PathBuf,
    runtime: Handle,
    steps: Steps,
}

struct Folder {
    path: PathBuf,
    objects: Arc<dyn ObjectStore>,
}

impl Folder {
    fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&path)?);
        Ok(Self { path, objects })
    }
}

impl LocalDisk {
    /// Opens (and makes) `root/segments`, `root/blocks` and `root/tmp`.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub fn open(root: &Path, runtime: Handle) -> io::Result<Self> {
        Self::with_steps(root, runtime, Steps::default())
    }

    /// The same, with `watch` told of every step of a put, and able to make it fail.
    ///
    /// # Errors
    /// As [`LocalDisk::open`].
    pub fn watched(root: &Path, runtime: Handle, watch: Arc<dyn Watch>) -> io::Result<Self> {
        Self::with_steps(root, runtime, Steps::watched(watch))
    }

    fn with_steps(root: &Path, runtime: Handle, steps: Steps) -> io::Result<Self> {
        let temporary = root.join("tmp");
        fs::create_dir_all(&temporary)?;
        let segments = Folder::open(root.join("segments"))?;
        let blocks = Folder::open(root.join("blocks"))?;
        // What a crash left half written was never acknowledged.
        for left in fs::read_dir(&temporary)?.flatten() {
            let _ = fs::remove_file(left.path());
        }
        // The names of the folders themselves, and of the one that holds them.
        steps.sync_folder(root)?;
        if let Some(parent) = root.parent().filter(|parent| parent.is_dir()) {
            match steps.sync_folder(parent) {
                // A folder that may only be passed through was made by somebody else.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(Self {
            segments,
            blocks,
            temporary,
            runtime,
            steps,
        })
    }

    fn folder(&self, name: &str) -> &Folder {
        if name.ends_with(SEGMENT) {
            &self.segments
        } else {
            &self.blocks
        }
    }
}

/// Whether a file in the folder is one of the store's.
pub(super) fn is_ours(name: &str) -> bool {
    let blocks = [block::MANIFEST, block::SAMPLES, block::SYMBOLS];
    [SEGMENT, lease::END]
        .iter()
        .chain(&blocks)
        .any(|end| name.ends_with(end))
}

/// End of the names of segments.
const SEGMENT: &str = ".plseg";

pub(super) fn io_error(error: object_store::Error) -> io::Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Disk for LocalDisk {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.temporary.join(name);
        let folder = &self.folder(name).path;
        let target = folder.join(name);
        let written = self.steps.write(&temporary, bytes);
        let linked = written.and_then(|()| self.steps.link(&temporary, &target));
        let _ = self.steps.remove(&temporary);
        linked?;
        self.steps.sync_folder(folder).inspect_err(|_| {
            // Not durable, so not acknowledged, so it must not be found later either.
            let _ = self.steps.remove(&target);
        })
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files: Vec<(String, u64)> = Vec::new();
        for folder in [&self.segments, &self.blocks] {
            // By itself: `object_store` walks paths from the root, a third of a start's time.
            for entry in fs::read_dir(&folder.path)? {
                let entry = entry?;
                let Some(name) = entry
                    .file_name()
                    .to_str()
                    .filter(|name| is_ours(name))
                    .map(str::to_owned)
                else {
                    continue;
                };
                match entry.metadata() {
                    Ok(metadata) => files.push((name, metadata.len())),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let path = ObjectPath::from(name);
        let objects = &self.folder(name).objects;
        let bytes = self.runtime.block_on(objects.get_range(&path, range));
        bytes.map(|bytes| bytes.to_vec()).map_err(io_error)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.steps.remove(&self.folder(name).path.join(name))
    }

    fn settle(&self) -> io::Result<()> {
        self.steps.sync_folder(&self.segments.path)?;
        self.steps.sync_folder(&self.blocks.path)
    }
}

/// Whether the cause is a full disk (or quota), which the operator can end.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
