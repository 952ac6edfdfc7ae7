//! The profiles `mutex` and `block`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_profile::Profile;
use pilotlight_unwind::Module;

use super::purpose::{NAMES_SEEN, Purpose, is_own, purpose};
use super::record::{COUNT_UNIT, SITES};
use super::{Kind, marks};
use crate::sites::{Extra, Row, Shape, profile_with};
use crate::{modules, symbols};

/// Which waits a profile shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For locks that others held.
    Locks,
    /// All.
    All,
}

const SHAPE: Shape<'_, 2> = Shape {
    columns: [("contentions", "count"), ("delay", "nanoseconds")],
    default_column: "delay",
    period: ("contentions", "count", 1),
    without_stack: "[no stack]",
    hidden: |name| name.starts_with("pilotlight::locks::") || name.starts_with("pilotlight_hook_"),
};

/// Waits since the process started: contentions/count and delay/nanoseconds, by the stack of the
/// thread that waited; label `wait` says what for, label `lock` which one, where it has a name.
pub(crate) fn profile(waits: Waits) -> Profile {
    symbols::on_own_thread(|| profile_here(waits))
}

fn profile_here(waits: Waits) -> Profile {
    let mut names = Names::new();
    let mut rows = SITES.rows();
    let mut extras = Vec::with_capacity(rows.len());
    rows.retain_mut(|row| {
        let extra = names.extra(row, waits);
        let kept = extra.is_some();
        extras.extend(extra);
        kept
    });
    let values = |counters: &[u64; crate::sites::COUNTERS]| {
        let [count, ns, ..] = counters;
        [((count + COUNT_UNIT / 2) / COUNT_UNIT) as i64, *ns as i64]
    };
    let mut profile = profile_with(&rows, &SHAPE, values, |at| extras[at].clone());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    profile.time_ns = now.unwrap_or_default().as_nanos() as i64;
    profile
}

/// Names of functions by address.
struct Names {
    modules: Arc<Vec<Arc<Module>>>,
    known: HashMap<u64, Vec<String>>,
}

impl Names {
    fn new() -> Names {
        Names {
            modules: modules::current(),
            known: HashMap::new(),
        }
    }

    /// Takes the marks off a row; what they and its frames say, or `None` when it is not shown.
    fn extra(&mut self, row: &mut Row, waits: Waits) -> Option<Extra> {
        let (kind, lock) = marks::take(row);
        let names = self.innermost(&row.frames);
        let purpose = purpose(kind, &names);
        let shown = row.is_overflow && waits == Waits::All
            || !is_own(&names) && (waits == Waits::All || purpose == Purpose::Lock);
        if !shown {
            return None;
        }
        let mut labels = Vec::new();
        if !row.is_overflow {
            labels.push(("wait", purpose.label().to_string()));
        }
        labels.extend(lock.map(|lock| ("lock", lock.to_string())));
        let leaf = leaf(kind).filter(|_| !row.is_overflow);
        Some(Extra { leaf, labels })
    }

    fn innermost(&mut self, frames: &[u64]) -> Vec<String> {
        let mut names = Vec::new();
        for &address in frames {
            if names.len() >= NAMES_SEEN {
                break;
            }
            names.extend_from_slice(self.at(address));
        }
        names
    }

    fn at(&mut self, address: u64) -> &[String] {
        let modules = &self.modules;
        self.known.entry(address).or_insert_with(|| {
            let inside = |s: &pilotlight_unwind::Segment| {
                s.executable && (s.start..s.limit).contains(&address)
            };
            let holds = |module: &&Arc<Module>| module.segments.iter().any(inside);
            let module = modules.iter().find(holds);
            let frames = module.map_or_else(Vec::new, |module| symbols::frames(module, address));
            frames.into_iter().map(|frame| frame.function).collect()
        })
    }
}

/// Our functions stand before those of pthreads, and are shown as these.
fn leaf(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Futex | Kind::FutexLock => None,
        Kind::Mutex => Some("pthread_mutex_lock"),
        Kind::RwLock => Some("pthread_rwlock_lock"),
        Kind::Condvar => Some("pthread_cond_wait"),
        Kind::Semaphore => Some("sem_wait"),
        Kind::Barrier => Some("pthread_barrier_wait"),
        Kind::Join => Some("pthread_join"),
    }
}
