//! `heap` and `allocs`: memory by the stack that allocated it.

use std::sync::atomic::{AtomicU64, Ordering};

use pilotlight_profile::Profile;

use super::{Ask, Kind, Source, State, checked};
use crate::heap::{self, Shown};

/// The interval to go back to when it is switched on again.
static INTERVAL_BYTES: AtomicU64 = AtomicU64::new(heap::DEFAULT_INTERVAL_BYTES);

pub(super) struct Heap(pub(super) Shown);

impl Source for Heap {
    fn name(&self) -> &'static str {
        match self.0 {
            Shown::InUse => "heap",
            Shown::Allocated => "allocs",
        }
    }

    fn description(&self) -> &'static str {
        match self.0 {
            Shown::InUse => "A sampling of memory allocations of live objects.",
            Shown::Allocated => "A sampling of all past memory allocations",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Cumulative {
            growing: &["alloc_objects", "alloc_space"],
        }
    }

    fn state(&self) -> State {
        if !heap::is_installed() {
            return elsewhere::state(self.name());
        }
        match heap::interval_bytes() {
            0 => State::switched_off(self.name()),
            _ => State::On,
        }
    }

    /// Both types at once: they are one sampler.
    fn set_enabled(&self, on: bool) -> Result<(), String> {
        if !heap::is_installed() {
            return elsewhere::set_enabled(self.name(), on);
        }
        let now = heap::asked_interval_bytes();
        match (on, now) {
            (false, 0) => {}
            (false, _) => {
                INTERVAL_BYTES.store(now, Ordering::Relaxed);
                heap::set_interval_bytes(0);
            }
            (true, 0) => heap::set_interval_bytes(INTERVAL_BYTES.load(Ordering::Relaxed)),
            (true, _) => {}
        }
        if on { checked(self) } else { Ok(()) }
    }

    fn cost(&self) -> String {
        if !heap::is_installed() {
            return elsewhere::cost();
        }
        let (bytes, refused) = heap::table_usage();
        let mut text = format!(
            "about 1 ns an allocation, 0.3 µs one in {} KiB; {} looked at so far; stacks take {} KiB",
            heap::interval_bytes() >> 10,
            heap::samples(),
            bytes >> 10,
        );
        if refused + heap::untracked() > 0 {
            let untracked = heap::untracked();
            text += &format!("; {refused} stacks and {untracked} blocks found no room");
        }
        text
    }

    fn count(&self) -> usize {
        heap::samples() as usize
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        if !heap::is_installed() {
            return elsewhere::profile(self.0);
        }
        Ok(heap::profile(self.0))
    }
}

/// Without pilotlight's allocator: jemalloc's profile, or why there is none.
#[cfg(feature = "jemalloc")]
mod elsewhere {
    pub(super) use crate::heap::jemalloc::{cost, profile, state};

    pub(super) fn set_enabled(_name: &str, on: bool) -> Result<(), String> {
        crate::heap::jemalloc::set_enabled(on)
    }
}

/// Without pilotlight's allocator there is nothing.
#[cfg(not(feature = "jemalloc"))]
mod elsewhere {
    use super::{Profile, Shown, State};

    const WHY: &str = "the program's allocator is not pilotlight's";
    const HOW: &str = "#[global_allocator] static ALLOCATOR: pilotlight::Alloc = \
                       pilotlight::Alloc::system(); or the feature `jemalloc`";

    pub(super) fn state(_name: &str) -> State {
        State::Off {
            why: WHY.into(),
            how_to_switch_on: HOW.into(),
        }
    }

    pub(super) fn set_enabled(name: &str, on: bool) -> Result<(), String> {
        match on {
            true => Err(format!("{name} is off: {WHY}; to switch it on: {HOW}")),
            false => Ok(()),
        }
    }

    pub(super) fn cost() -> String {
        "nothing".into()
    }

    pub(super) fn profile(_shown: Shown) -> Result<Profile, String> {
        Err(WHY.into())
    }
}
