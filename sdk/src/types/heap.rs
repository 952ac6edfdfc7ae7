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
            return State::Off {
                why: "the program's allocator is not pilotlight's".into(),
                how_to_switch_on: "#[global_allocator] static ALLOCATOR: pilotlight::Alloc = \
                                   pilotlight::Alloc::system();"
                    .into(),
            };
        }
        match heap::interval_bytes() {
            0 => State::switched_off(self.name()),
            _ => State::On,
        }
    }

    /// Both types at once: they are one sampler.
    fn set_enabled(&self, on: bool) -> Result<(), String> {
        let now = heap::interval_bytes();
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
            return "nothing".into();
        }
        let (bytes, refused) = heap::table_usage();
        let mut text = format!(
            "about 1 ns an allocation, 1 µs one in {} KiB; {} looked at so far; stacks take {} KiB",
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
        Ok(heap::profile(self.0))
    }
}
