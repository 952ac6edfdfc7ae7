//! The disk is full, or an fsync fails, at each step of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::log::folder;
use super::runtime;
use super::world::{Held, Rng, World, contents, reopened};
use crate::env::Env;
use crate::store::disk::{Disk, LocalDisk};
use crate::store::steps::{Step, Watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Files are made, written and named in vain, for some steps.
    Full { steps: u64 },
    /// One fsync fails.
    Sync,
}

/// Fails from the `at`th step on that the fault can meet.
struct Faulty {
    fault: Fault,
    at: u64,
    armed: AtomicBool,
    met: AtomicU64,
    failed: AtomicU64,
    /// Files whose fsync failed: nothing of them may be used any more.
    tainted: Mutex<BTreeSet<PathBuf>>,
    misused: AtomicBool,
}

impl Faulty {
    fn new(fault: Fault, at: u64) -> Arc<Self> {
        Arc::new(Self {
            fault,
            at,
            armed: AtomicBool::new(false),
            met: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            tainted: Mutex::default(),
            misused: AtomicBool::new(false),
        })
    }

    fn fails(&self, steps: u64) -> bool {
        if !self.armed.load(Relaxed) {
            return false;
        }
        let met = self.met.fetch_add(1, Relaxed);
        let fails = (self.at..self.at.saturating_add(steps)).contains(&met);
        self.failed.fetch_add(fails.into(), Relaxed);
        fails
    }
}

impl Watch for Faulty {
    fn before(&self, step: Step<'_>) -> io::Result<()> {
        let used = match step {
            Step::Create(path) | Step::Write(path, _) | Step::SyncFile(path) => Some(path),
            Step::Link(from, _) => Some(from),
            _ => None,
        };
        if used.is_some_and(|path| self.tainted.lock().unwrap().contains(path)) {
            self.misused.store(true, Relaxed);
        }
        match (self.fault, step) {
            (Fault::Full { steps }, Step::Create(_) | Step::Link(..)) if self.fails(steps) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            (Fault::Full { steps }, Step::Write(path, bytes)) if self.fails(steps) => {
                // As much as there was room for.
                let _ = std::fs::write(path, &bytes[..bytes.len() / 2]);
                Err(io::ErrorKind::StorageFull.into())
            }
            // Delayed allocation: a full disk or a quota may be found as late as that.
            (Fault::Full { steps }, Step::SyncFile(_)) if self.fails(steps) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            (Fault::Sync, Step::SyncFile(path) | Step::SyncFolder(path)) if self.fails(1) => {
                // A folder may be synced again: what it names then is new.
                if matches!(step, Step::SyncFile(_)) {
                    self.tainted.lock().unwrap().insert(path.to_owned());
                }
                Err(io::Error::other("I/O error (injected)"))
            }
            _ => Ok(()),
        }
    }
}

/// One run; how many steps the fault could have met, and how many it did meet.
fn run(fault: Fault, at: u64, seed: u64) -> (u64, u64) {
    let (folder, runtime) = (folder(), runtime());
    let faulty = Faulty::new(fault, at);
    let env = Held::new(seed);
    let world = World::local(folder.path(), &runtime, faulty.clone(), &env);
    // A server that cannot make its folders does not start.
    faulty.armed.store(true, Relaxed);
    let mut stored = BTreeMap::new();
    world.play(&runtime, &mut Rng(seed), 20, |world, acked| {
        stored.extend(acked.iter().map(|&n| (n, 1)));
        // Reads go on, and say what was acknowledged.
        assert_eq!(world.contents(), Ok(stored.clone()), "{fault:?} at {at}");
    });
    // There is room again: all that was refused is sent once more.
    let next = stored.keys().max().map_or(0, |n| n + 1);
    for _ in 0..6 {
        let acked = world.push(&runtime, &(0..next).collect::<Vec<_>>());
        stored.extend(acked.iter().map(|&n| (n, 1)));
        env.now_ns.fetch_add(3 * super::SECOND, Relaxed);
        world.maintainer.round();
    }
    assert_eq!(stored.len() as u64, next, "{fault:?} at {at}: recovers");
    assert_eq!(world.contents(), Ok(stored.clone()), "{fault:?} at {at}");
    assert!(
        !faulty.misused.load(Relaxed),
        "a file was used after its fsync failed"
    );
    drop(world);
    let disk: Arc<dyn Disk> =
        Arc::new(LocalDisk::open(folder.path(), runtime.handle().clone()).unwrap());
    let catalog = reopened(&disk, env.now_ns());
    assert_eq!(
        contents(disk, catalog),
        Ok(stored),
        "{fault:?} at {at}, reopened"
    );
    (faulty.met.load(Relaxed), faulty.failed.load(Relaxed))
}

fn at_every_step(fault: Fault) {
    let (steps, none) = run(fault, u64::MAX, 11);
    assert_eq!(none, 0);
    let mut failed = 0;
    let stride = match fault {
        Fault::Full { steps: 9 } => 5,
        _ => 1,
    };
    for at in (0..steps).step_by(stride) {
        failed += run(fault, at, 11).1;
    }
    println!("{fault:?} at every {stride}. of {steps} steps, {failed} steps failed");
    assert!(failed >= steps, "{failed} of {steps}");
}

#[test]
fn a_disk_full_at_any_step_loses_nothing_that_was_acknowledged() {
    at_every_step(Fault::Full { steps: 1 });
    at_every_step(Fault::Full { steps: 9 });
}

#[test]
fn an_fsync_that_fails_at_any_step_acknowledges_nothing() {
    at_every_step(Fault::Sync);
}

/// Answers fsyncs of one folder with an error.
struct Refuses(PathBuf, io::ErrorKind);

impl Watch for Refuses {
    fn before(&self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::SyncFolder(path) if path == self.0 => Err(self.1.into()),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_start_needs_no_permission_to_read_the_folder_around_its_own() {
    let (folder, runtime) = (folder(), runtime());
    let data = folder.path().join("data");
    let open = |refused: &std::path::Path, kind| {
        let watch = Arc::new(Refuses(refused.to_owned(), kind));
        LocalDisk::watched(&data, runtime.handle().clone(), watch).map(drop)
    };
    open(folder.path(), io::ErrorKind::PermissionDenied).unwrap();
    let kind = |opened: io::Result<()>| opened.unwrap_err().kind();
    let other = io::ErrorKind::Other;
    assert_eq!(kind(open(folder.path(), other)), other);
    let denied = io::ErrorKind::PermissionDenied;
    assert_eq!(kind(open(&data, denied)), denied, "its own must be durable");
}
