//! `mutex` and `block`: where threads wait for each other.

use pilotlight_profile::Profile;

use super::{Ask, Kind, Source, State, checked};
use crate::locks::{self, Waits};

/// One of the two: they show parts of the same counts, and each has a switch of its own.
pub(super) struct Blocked(pub(super) Waits);

impl Source for Blocked {
    fn name(&self) -> &'static str {
        match self.0 {
            Waits::Locks => "mutex",
            Waits::All => "block",
        }
    }

    fn description(&self) -> &'static str {
        match self.0 {
            Waits::Locks => {
                "Stack traces of waits for locks that other threads held (of the thread that waited)"
            }
            Waits::All => {
                "Stack traces of all waits of threads for each other: locks, condition variables, \
                 parks, channels, joins"
            }
        }
    }

    fn kind(&self) -> Kind {
        Kind::Cumulative {
            growing: &["contentions", "delay"],
        }
    }

    fn state(&self) -> State {
        if let Some(why) = locks::replaced() {
            return State::Off {
                why: why.into(),
                how_to_switch_on: "leave that definition out of the program".into(),
            };
        }
        match locks::is_enabled(self.0) {
            true => State::On,
            false => State::Off {
                how_to_switch_on: format!(
                    "pilotlight::set_enabled(\"{}\", true), Config::lock_rate_ns, or \
                     PILOTLIGHT_LOCK_RATE_NS=100000",
                    self.name()
                ),
                why: "nobody switched it on".into(),
            },
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        locks::set_enabled(self.0, on);
        Ok(())
    }

    fn cost(&self) -> String {
        match locks::rate_ns() {
            0 => "nothing".into(),
            rate => format!(
                "up to 0.1 us a wait, and 1 us more a wait of {rate} ns or longer; locks that are \
                 free cost nothing"
            ),
        }
    }

    fn count(&self) -> usize {
        locks::profile(self.0).samples.len()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        Ok(locks::profile(self.0))
    }
}
