//! Which modules were loaded when: what was recorded in a library that is closed by now still gets
//! its names, and not those of a library that took its place.

use std::sync::{Arc, MutexGuard};

use pilotlight_unwind::Module;

use crate::fork::{Held, Lock};

/// Bytes of unwind tables that closed modules may keep.
const CLOSED_BYTES: usize = 2 << 20;
/// Still loaded.
const OPEN: u32 = u32::MAX;

static LIVED: Lock<Vec<Lived>> = Lock::new(Vec::new());

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &LIVED
}

/// A module, and the first and last generation of snapshots that held it.
#[derive(Clone, Debug)]
pub(crate) struct Lived {
    pub(crate) module: Arc<Module>,
    first: u32,
    last: u32,
}

impl Lived {
    fn is(&self, module: &Arc<Module>) -> bool {
        let known = &self.module;
        Arc::ptr_eq(known, module)
            || !known.build_id.is_empty()
                && known.build_id == module.build_id
                && known.base_avma == module.base_avma
                && known.path == module.path
    }

    fn holds(&self, address: u64) -> bool {
        let inside =
            |s: &pilotlight_unwind::Segment| s.executable && (s.start..s.limit).contains(&address);
        self.module.segments.iter().any(inside)
    }

    fn table_bytes(&self) -> usize {
        let table = &self.module.table;
        size_of_val(table.rows()) + size_of_val(table.rules())
    }
}

fn lived() -> MutexGuard<'static, Vec<Lived>> {
    LIVED.lock()
}

/// A snapshot of this generation holds `loaded`.
pub(crate) fn note(generation: u32, loaded: &[Arc<Module>]) {
    note_in(&mut lived(), generation, loaded);
}

fn note_in(lived: &mut Vec<Lived>, generation: u32, loaded: &[Arc<Module>]) {
    for known in lived.iter_mut().filter(|known| known.last == OPEN) {
        if !loaded.iter().any(|module| known.is(module)) {
            known.last = generation - 1;
        }
    }
    for module in loaded {
        match lived.iter_mut().find(|known| known.is(module)) {
            // The same library, opened again at the same place.
            Some(known) => known.last = OPEN,
            None => lived.push(Lived {
                module: Arc::clone(module),
                first: generation,
                last: OPEN,
            }),
        }
    }
    forget_oldest(lived);
}

fn forget_oldest(lived: &mut Vec<Lived>) {
    let is_closed = |known: &Lived| known.last != OPEN;
    let bytes = |known: &Lived| known.table_bytes() + size_of::<Module>();
    let mut held: usize = lived
        .iter()
        .filter(|known| is_closed(known))
        .map(bytes)
        .sum();
    while held > CLOSED_BYTES {
        let closed = (0..lived.len()).filter(|at| is_closed(&lived[*at]));
        let Some(oldest) = closed.min_by_key(|at| lived[*at].last) else {
            return;
        };
        held -= bytes(&lived.remove(oldest));
    }
}

/// All modules that are known, those that no snapshot has seen yet at the end.
pub(crate) fn all() -> Vec<Lived> {
    let mut all = lived().clone();
    for module in crate::modules::current().iter() {
        if !all.iter().any(|known| known.is(module)) {
            all.push(Lived {
                module: Arc::clone(module),
                first: 0,
                last: OPEN,
            });
        }
    }
    all
}

/// Index of the module that held `address` at `generation`; 0 is now.
pub(crate) fn find(all: &[Lived], address: u64, generation: u32) -> Option<usize> {
    let holders = || (0..all.len()).filter(|at| all[*at].holds(address));
    if generation == 0 {
        return holders().find(|at| all[*at].last == OPEN);
    }
    let before = holders().filter(|at| all[*at].first <= generation);
    // Code that ran before a snapshot held it was seen by the one after.
    before
        .max_by_key(|at| all[*at].first)
        .or_else(|| holders().min_by_key(|at| all[*at].first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::{LoaderCounts, loaded};

    fn named(module: &Arc<Module>, name: &str) -> Arc<Module> {
        let mut module = Module::clone(module);
        module.path = name.into();
        module.build_id = name.into();
        Arc::new(module)
    }

    #[test]
    fn an_address_belongs_to_what_was_loaded_when_it_was_recorded() {
        let real = &loaded(&[], LoaderCounts::default())[0];
        let [a, b] = ["a", "b"].map(|name| named(real, name));
        let code = real.segments.iter().find(|s| s.executable).unwrap().start;
        let mut lived = Vec::new();
        note_in(&mut lived, 10, std::slice::from_ref(&a));
        note_in(&mut lived, 11, std::slice::from_ref(&a));
        note_in(&mut lived, 12, &[]);
        note_in(&mut lived, 13, std::slice::from_ref(&b));
        let path = |generation| {
            let at = find(&lived, code, generation).unwrap();
            String::from_utf8(lived[at].module.path.clone()).unwrap()
        };
        let paths = [9, 10, 11, 12, 13, 99, 0].map(path);
        assert_eq!(paths, ["a", "a", "a", "a", "b", "b", "b"]);
        // Opened again: it is not kept twice.
        note_in(&mut lived, 14, std::slice::from_ref(&a));
        assert_eq!(lived.len(), 2);

        for n in 0..3000 {
            note_in(&mut lived, 15 + n, &[named(real, &n.to_string())]);
        }
        let held: usize = lived.iter().map(Lived::table_bytes).sum();
        assert!(
            held <= CLOSED_BYTES + real.table.rows().len() * 64,
            "{held}"
        );
    }
}
