//! A server that stops between its lease and its manifest, and dies right after that put.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::runtime;
use super::world::{Held, SECOND, World, contents, reopened, rules};
use crate::block;
use crate::store::disk::{Disk, LocalDisk};

/// What happens right before the put of a manifest, after which its writer dies.
type Stop = Box<dyn FnOnce() + Send>;

/// A store of several servers, as one of them sees it.
struct Shared {
    inner: Arc<dyn Disk>,
    stop: Mutex<Option<Stop>>,
}

impl Shared {
    fn over(inner: &Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            stop: Mutex::new(None),
        })
    }
}

impl Disk for Shared {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let ends = name.ends_with(block::MANIFEST);
        let stop = self.stop.lock().unwrap().take_if(|_| ends);
        let Some(stop) = stop else {
            return self.inner.put_new(name, bytes);
        };
        stop();
        self.inner.put_new(name, bytes)?;
        panic!("killed after the put of {name}");
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.inner.read(name, range)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn shared(&self) -> bool {
        true
    }
}

fn rounds(world: &World, count: usize, seconds: i64) {
    for _ in 0..count {
        world.env.now_ns.fetch_add(seconds * SECOND, Relaxed);
        world.maintainer.round();
    }
}

fn manifests(disk: &Arc<dyn Disk>) -> usize {
    let files = disk.list().unwrap();
    let manifest = |(name, _): &&(String, u64)| name.ends_with(block::MANIFEST);
    files.iter().filter(manifest).count()
}

/// `after`: seconds for which the other works before the late put lands.
fn late_put(after: i64) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let local = LocalDisk::open(folder.path(), runtime.handle().clone()).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(local);
    let (of_first, of_second) = (Shared::over(&disk), Shared::over(&disk));
    let first = World::open(of_first.clone(), &Held::new(1), rules());
    // Its turn begins.
    rounds(&first, 1, 0);
    let pushes = [0, 1, 2, 3, 4];
    for n in pushes {
        assert_eq!(first.push(&runtime, &[n]), [n]);
    }
    let second = Arc::new(World::open(of_second, &Held::new(2), rules()));
    rounds(&second, 1, 0);
    let other = second.clone();
    *of_first.stop.lock().unwrap() = Some(Box::new(move || {
        // Nothing is heard of the first; the second takes over and merges the same segments.
        rounds(&other, 12, 20);
        rounds(&other, after as usize / 10, 10);
    }));
    let killed = catch_unwind(AssertUnwindSafe(|| rounds(&first, 3, 5)));
    assert!(killed.is_err(), "the first one merged nothing");
    let once: BTreeMap<u64, i64> = pushes.iter().map(|&n| (n, 1)).collect();
    let all = manifests(&disk);
    // The next looks of the second.
    rounds(&second, 4, 11);
    assert_eq!(second.contents(), Ok(once.clone()));
    assert!(manifests(&disk) < all, "the late block stays");
    let now_ns = second.env.now_ns.load(Relaxed);
    assert_eq!(contents(disk.clone(), reopened(&disk, now_ns)), Ok(once));
}

#[test]
fn a_block_that_comes_after_its_writers_turn_counts_for_nothing() {
    late_put(0);
    late_put(60);
}
