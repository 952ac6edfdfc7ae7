//! What was asked of the disk, and what a power cut may leave of it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::world::Rng;
use crate::store::disk::Disk;
use crate::store::steps::{Step, Watch};

/// A step, kept.
#[derive(Debug, Clone)]
pub enum Op {
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    SyncFile(PathBuf),
    Link(PathBuf, PathBuf),
    SyncFolder(PathBuf),
    Remove(PathBuf),
    /// This push was acknowledged.
    Acked(u64),
}

impl From<Step<'_>> for Op {
    fn from(step: Step<'_>) -> Self {
        match step {
            Step::Create(path) => Self::Create(path.into()),
            Step::Write(path, bytes) => Self::Write(path.into(), bytes.into()),
            Step::SyncFile(path) => Self::SyncFile(path.into()),
            Step::Link(from, to) => Self::Link(from.into(), to.into()),
            Step::SyncFolder(path) => Self::SyncFolder(path.into()),
            Step::Remove(path) => Self::Remove(path.into()),
        }
    }
}

/// Keeps every step.
#[derive(Default)]
pub struct Recorder(pub Mutex<Vec<Op>>);

impl Recorder {
    pub fn push(&self, op: Op) {
        let mut ops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ops.push(op);
    }
}

impl Watch for Recorder {
    fn before(&self, step: Step<'_>) -> io::Result<()> {
        self.push(step.into());
        Ok(())
    }
}

/// How much of what was not synced is there after the cut.
#[derive(Debug, Clone, Copy)]
pub enum Kept {
    /// All: the process was killed, the machine went on.
    All,
    /// None.
    None,
    /// Some, in any order; content torn, zeroed or missing.
    Some(u64),
}

#[derive(Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: bool,
}

type Names = BTreeMap<PathBuf, usize>;

/// The files after a cut behind the last of `ops`.
pub fn after_cut(ops: &[Op], kept: Kept) -> Files {
    let (mut inodes, mut temporary) = (Vec::<Inode>::new(), Names::new());
    let mut durable = Names::new();
    let mut pending: Vec<(PathBuf, Option<usize>)> = Vec::new();
    for op in ops {
        match op {
            Op::Create(path) => {
                temporary.insert(path.clone(), inodes.len());
                inodes.push(Inode::default());
            }
            Op::Write(path, bytes) => inodes[temporary[path]].bytes.clone_from(bytes),
            Op::SyncFile(path) => inodes[temporary[path]].synced = true,
            Op::Link(from, to) => pending.push((to.clone(), Some(temporary[from]))),
            Op::Remove(path) if temporary.remove(path).is_some() => {}
            Op::Remove(path) => pending.push((path.clone(), None)),
            Op::SyncFolder(folder) => pending.retain(|change| {
                let here = change.0.parent() == Some(folder);
                if here {
                    apply(&mut durable, change);
                }
                !here
            }),
            Op::Acked(_) => {}
        }
    }
    let mut rng = Rng(match kept {
        Kept::Some(seed) => seed,
        _ => 0,
    });
    for change in &pending {
        let reached = match kept {
            Kept::All => true,
            Kept::None => false,
            Kept::Some(_) => rng.below(2) == 0,
        };
        if reached {
            apply(&mut durable, change);
        }
    }
    let content = |inode: &Inode, rng: &mut Rng| match kept {
        Kept::Some(_) if !inode.synced => torn(&inode.bytes, rng),
        Kept::None if !inode.synced => Vec::new(),
        _ => inode.bytes.clone(),
    };
    let files = durable.into_iter().map(|(path, at)| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, content(&inodes[at], &mut rng))
    });
    Files(Mutex::new(files.collect()))
}

fn apply(names: &mut Names, (path, inode): &(PathBuf, Option<usize>)) {
    match inode {
        Some(inode) => names.insert(path.clone(), *inode),
        None => names.remove(path),
    };
}

fn torn(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    match rng.below(3) {
        0 => bytes.truncate(at),
        1 => bytes[at..].fill(0),
        _ => bytes.clear(),
    }
    bytes
}

/// Files in memory.
pub struct Files(pub Mutex<BTreeMap<String, Vec<u8>>>);

impl Disk for Files {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.0.lock().unwrap();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = self.0.lock().unwrap();
        let listed = files
            .iter()
            .map(|(name, bytes)| (name.clone(), bytes.len() as u64));
        Ok(listed.collect())
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let files = self.0.lock().unwrap();
        let bytes = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let end = (range.end as usize).min(bytes.len());
        Ok(bytes[(range.start as usize).min(end)..end].to_vec())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }
}

/// A folder in memory where there is one: a recorded log needs no disk.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(folder) = tempfile::tempdir_in(memory)
    {
        return folder;
    }
    tempfile::tempdir().unwrap()
}
