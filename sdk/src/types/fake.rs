//! A cumulative source whose counts the test sets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_profile::{Profile, ProfileBuilder};

use super::{Ask, Kind, Source, State};

/// Columns of a heap profile: two that grow, two levels.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Function, address and values.
    pub(crate) rows: Mutex<Vec<(&'static str, u64, [i64; 4])>>,
    pub(crate) on: AtomicBool,
}

impl Fake {
    /// Registers one that is never freed.
    pub(crate) fn add(name: &'static str, kind: Kind) -> &'static Fake {
        let fake: &'static Fake = Box::leak(Box::new(Fake {
            name,
            kind,
            rows: Mutex::default(),
            on: AtomicBool::new(true),
        }));
        super::add(fake);
        fake
    }

    pub(crate) fn set(&self, rows: &[(&'static str, u64, [i64; 4])]) {
        *self.rows.lock().unwrap() = rows.to_vec();
    }
}

pub(crate) const HEAP: Kind = Kind::Cumulative {
    growing: &["alloc_objects", "alloc_space"],
};

impl Source for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "made up"
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn state(&self) -> State {
        match self.on.load(Ordering::Relaxed) {
            true => State::On,
            false => State::switched_off(self.name),
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        self.on.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn cost(&self) -> String {
        "7 ns an event".into()
    }

    fn count(&self) -> usize {
        self.rows.lock().unwrap().len()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        let mut builder = ProfileBuilder::new();
        builder.sample_type("alloc_objects", "count");
        builder.sample_type("alloc_space", "bytes");
        builder.sample_type("inuse_objects", "count");
        builder.sample_type("inuse_space", "bytes");
        builder.time(1, 0);
        for (name, address, values) in self.rows.lock().unwrap().iter() {
            let name = builder.string(name.as_bytes());
            let function = builder.function(name, name, Default::default(), 0);
            let location = builder.location(None, *address, &[(function, 3)]);
            let stack = builder.stack(&[location]);
            builder.sample(stack, Default::default(), values);
        }
        Ok(builder.finish())
    }
}
