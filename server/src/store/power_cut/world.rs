//! A store without network or threads: the same steps for the same seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pilotlight_profile::{LabelSetId, Profile, ProfileBuilder};
use tokio::runtime::Runtime;

use crate::debuginfo::{Debuginfo, FolderFiles, Settings};
use crate::env::Env;
use crate::ingest::writer::{Writer, WriterConfig};
use crate::metrics::Metrics;
use crate::query::engine::{Cancel, Engine, Selection};
use crate::query::merge::NameTree;
use crate::query::read::Want;
use crate::query::selector::Selector;
use crate::segment::Pushed;
use crate::store::cache::Cache;
use crate::store::catalog::Catalog;
use crate::store::disk::{Disk, LocalDisk};
use crate::store::identities::IdentityFile;
use crate::store::maintain::{Maintainer, Maintenance};
use crate::store::recover::{self, Progress};
use crate::store::sharing::Sharing;
use crate::store::steps::Watch;

pub const SECOND: i64 = 1_000_000_000;
pub const T0: i64 = 1_767_225_600 * SECOND;

/// splitmix64.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

pub struct Held {
    pub now_ns: AtomicI64,
    draws: AtomicU64,
}

impl Held {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            now_ns: AtomicI64::new(T0),
            draws: AtomicU64::new(seed << 32),
        })
    }
}

impl Env for Held {
    fn now_ns(&self) -> i64 {
        self.now_ns.load(Relaxed)
    }

    fn steady_ns(&self) -> i64 {
        self.now_ns.load(Relaxed) - T0
    }

    fn random(&self) -> u64 {
        let n = self.draws.fetch_add(1, Relaxed) + 1;
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Everything happens all the time.
pub fn rules() -> Maintenance {
    Maintenance {
        patience: Duration::from_secs(2),
        spans: [8, 30, 120].map(Duration::from_secs),
        fan_in: 2,
        roll_ups: vec![(2, Duration::from_secs(10)), (3, Duration::from_secs(20))],
        max_age: None,
        roll_up_max_age: None,
        max_bytes: None,
        grace: Duration::from_secs(1),
        ..Maintenance::default()
    }
}

/// A profile that nobody else pushes: its one function is named after its number.
pub fn profile(n: u64) -> Profile {
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 1);
    out.time(T0 + n as i64 * SECOND, SECOND);
    let name = out.string(format!("push_{n}").as_bytes());
    let function = out.function(name, name, name, 1);
    let location = out.location(None, 0, &[(function, 7)]);
    let stack = out.stack(&[location]);
    out.sample(stack, LabelSetId(0), &[1]);
    out.finish()
}

pub fn pushed(n: u64) -> Pushed {
    Pushed {
        labels: vec![("service_name".into(), format!("s{}", n % 3))],
        name: "process_cpu".into(),
        time_ns: T0 + n as i64 * SECOND,
        duration_ns: SECOND,
        id: u128::from(n) + 1,
    }
}

pub struct World {
    pub env: Arc<Held>,
    pub disk: Arc<dyn Disk>,
    pub maintainer: Maintainer,
    pub writer: Arc<Writer>,
}

/// An answer over everything.
pub struct Answered {
    /// Number of the push → value.
    pub values: BTreeMap<u64, i64>,
    pub partial: bool,
    /// What is named as missing.
    pub files: BTreeSet<String>,
    problems: String,
}

/// Debug information of nothing.
fn no_debuginfo() -> Arc<Debuginfo> {
    static EMPTY: OnceLock<(tempfile::TempDir, Arc<Debuginfo>)> = OnceLock::new();
    let (_, empty) = EMPTY.get_or_init(|| {
        let folder = super::log::folder();
        let files = FolderFiles::open(folder.path().join("files")).unwrap();
        let scratch = folder.path().join("uploads");
        let opened = Debuginfo::open(Arc::new(files), scratch, Settings::default(), Held::new(0));
        (folder, Arc::new(opened.unwrap()))
    });
    empty.clone()
}

/// What a disk answers with.
pub fn answered(disk: &Arc<dyn Disk>, catalog: &Arc<Catalog>) -> Answered {
    let engine = Engine {
        disk: disk.clone(),
        catalog: catalog.clone(),
        cache: Cache::new(0),
        debuginfo: no_debuginfo(),
        metrics: Arc::default(),
        recovering: Mutex::new(None),
        cores: 1,
    };
    let selection = Selection {
        type_id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".into(),
        selector: Selector::parse("{}").unwrap(),
        from_ns: T0,
        until_ns: T0 + 1_000_000 * SECOND,
        sample_labels: None,
    };
    let (tree, coverage) = engine
        .gather(
            &selection,
            Want::Stacks,
            &Cancel::default(),
            NameTree::default,
        )
        .unwrap();
    let rows = tree.top().into_iter();
    Answered {
        values: rows
            .map(|row| (row.name[5..].parse().unwrap(), row.self_value))
            .collect(),
        partial: coverage.partial,
        problems: format!("{:?}", coverage.problems),
        files: coverage
            .problems
            .into_iter()
            .map(|problem| problem.segment)
            .collect(),
    }
}

/// The values, where nothing is damaged.
pub fn contents(disk: Arc<dyn Disk>, catalog: Arc<Catalog>) -> Result<BTreeMap<u64, i64>, String> {
    let answer = answered(&disk, &catalog);
    if answer.partial {
        return Err(format!("partial: {}", answer.problems));
    }
    Ok(answer.values)
}

/// What a start finds.
pub fn reopened(disk: &Arc<dyn Disk>, now_ns: i64) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::default());
    let nothing = std::collections::HashMap::new();
    recover::catalog(&**disk, &catalog, nothing, now_ns, &Progress::default()).unwrap();
    catalog
}

impl World {
    pub fn local(folder: &Path, runtime: &Runtime, watch: Arc<dyn Watch>, env: &Arc<Held>) -> Self {
        let disk = LocalDisk::watched(folder, runtime.handle().clone(), watch).unwrap();
        Self::open(Arc::new(disk), env, rules())
    }

    pub fn open(disk: Arc<dyn Disk>, env: &Arc<Held>, rules: Maintenance) -> Self {
        let catalog = reopened(&disk, env.now_ns());
        let metrics = Arc::new(Metrics::default());
        let config = WriterConfig {
            linger: Duration::ZERO,
            full_bytes: 1 << 20,
            ids: 1000,
            epoch_bytes: 1 << 20,
        };
        let parts = (disk.clone(), catalog.clone(), metrics.clone());
        let writer = Arc::new(Writer::new(config, env.clone(), parts.0, parts.1, parts.2));
        let folder = tempfile::tempdir().unwrap();
        let mut identities = IdentityFile::new(folder.path().join("identities"), 1000, false);
        identities.recall(&*disk, &catalog, &writer, &Progress::default());
        // Told to stop, `run` writes what is open and comes back.
        writer.stop();
        let maintainer = Maintainer {
            rules,
            env: env.clone(),
            disk: disk.clone(),
            catalog,
            metrics,
            writer: Some(writer.clone()),
            age: Mutex::default(),
            sharing: Sharing::default(),
        };
        Self {
            env: env.clone(),
            disk,
            maintainer,
            writer,
        }
    }

    /// Pushes some profiles into one segment; which of them were acknowledged.
    pub fn push(&self, runtime: &Runtime, which: &[u64]) -> Vec<u64> {
        let mut tickets: Vec<_> = which
            .iter()
            .map(|&n| (n, self.writer.add(&profile(n), &pushed(n))))
            .collect();
        self.writer.run();
        let mut acked = Vec::new();
        for (n, ticket) in &mut tickets {
            if runtime.block_on(ticket.durable()).is_ok() {
                acked.push(*n);
            }
        }
        acked
    }

    pub fn contents(&self) -> Result<BTreeMap<u64, i64>, String> {
        contents(self.disk.clone(), self.maintainer.catalog.clone())
    }

    /// One thing after the other: pushes, retries, maintenance, time. `acked` hears of each
    /// acknowledgement as it happens.
    pub fn play(
        &self,
        runtime: &Runtime,
        rng: &mut Rng,
        turns: u64,
        mut each: impl FnMut(&Self, &[u64]),
    ) {
        let (mut next, mut open) = (0, Vec::new());
        for _ in 0..turns {
            match rng.below(8) {
                0..5 => {
                    let fresh = 1 + rng.below(3);
                    // What failed is sent again, with what is new.
                    open.extend(next..next + fresh);
                    next += fresh;
                    if next > 4 && rng.below(4) == 0 {
                        open.push(rng.below(next));
                    }
                    let acked = self.push(runtime, &open);
                    open.retain(|n| !acked.contains(n));
                    each(self, &acked);
                }
                5..7 => {
                    self.maintainer.round();
                    each(self, &[]);
                }
                _ => {}
            }
            let passed = rng.below(3) as i64 * SECOND;
            self.env.now_ns.fetch_add(passed, Relaxed);
        }
        let acked = self.push(runtime, &open);
        each(self, &acked);
    }
}
