//! One module for all of the process: nobody reads what is loaded here.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use pilotlight_unwind::{Module, Segment, Table};

use crate::fork::{Held, Lock};

/// What a record belongs to.
pub(crate) struct Snapshot {
    pub(crate) generation: u32,
}

impl Snapshot {
    pub(crate) fn new(_modules: &[Arc<Module>], generation: u32) -> Box<Snapshot> {
        Box::new(Snapshot { generation })
    }
}

/// Modules as they were at one time.
pub(crate) struct Generation {
    pub(crate) number: u32,
    pub(crate) modules: pilotlight_unwind::Modules,
    pub(crate) known: Vec<Arc<Module>>,
}

impl Generation {
    pub(crate) fn new(number: u32, known: Vec<Arc<Module>>) -> Generation {
        let copies = known.iter().map(|module| Module::clone(module)).collect();
        Generation {
            number,
            modules: pilotlight_unwind::Modules::new(copies),
            known,
        }
    }
}

/// Nothing is told of what comes and goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoaderCounts(());

pub(crate) fn loader_counts() -> LoaderCounts {
    LoaderCounts(())
}

/// The module that holds every address.
fn everything() -> Arc<Module> {
    static EVERYTHING: OnceLock<Arc<Module>> = OnceLock::new();
    let make = || {
        let path = std::env::current_exe().unwrap_or_default();
        let whole = Segment {
            start: 0x1000,
            limit: u64::MAX,
            file_offset: 0,
            executable: true,
        };
        Arc::new(Module {
            start_avma: whole.start,
            end_avma: whole.limit,
            base_avma: 0,
            table: Arc::new(Table::empty()),
            build_id: Vec::new(),
            path: path.as_os_str().as_bytes().to_vec(),
            segments: vec![whole],
        })
    };
    Arc::clone(EVERYTHING.get_or_init(make))
}

pub(crate) fn loaded(_known: &[Arc<Module>], _counts: LoaderCounts) -> Vec<Arc<Module>> {
    vec![everything()]
}

pub(crate) fn current() -> Arc<Vec<Arc<Module>>> {
    Arc::new(vec![everything()])
}

/// Held around a fork: there is nothing to hold.
pub(crate) fn locks() -> [&'static dyn Held; 2] {
    static NOTHING: [Lock<()>; 2] = [Lock::new(()), Lock::new(())];
    [&NOTHING[0], &NOTHING[1]]
}
