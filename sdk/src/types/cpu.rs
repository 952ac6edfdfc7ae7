//! `profile`: CPU time.

use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_profile::Profile;

use super::{Ask, Kind, Running, Source, State, checked};
use crate::capture::Capture;
use crate::engine;

static ALLOWED: AtomicBool = AtomicBool::new(true);

pub(super) struct Cpu;

impl Source for Cpu {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn description(&self) -> &'static str {
        "CPU profile. You can specify the duration in the seconds GET parameter. After you get the \
         profile file, use the go tool pprof command to investigate the profile."
    }

    fn kind(&self) -> Kind {
        Kind::Window
    }

    fn state(&self) -> State {
        if !ALLOWED.load(Ordering::Relaxed) {
            return State::switched_off(self.name());
        }
        match engine::current() {
            Ok(_) => State::On,
            Err(error) => State::Off {
                why: error.to_string(),
                how_to_switch_on: "pilotlight::start(\"name\")".into(),
            },
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        ALLOWED.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn cost(&self) -> String {
        let Ok(engine) = engine::current() else {
            return "nothing".into();
        };
        let captures = crate::http::running(self.name());
        let hertz = 1_000_000_000 / engine.period.as_nanos().max(1);
        match captures {
            0 => format!("nothing; {hertz} signals per second of CPU time while sampled"),
            _ => format!("{hertz} signals per second of CPU time, shared by {captures} captures"),
        }
    }

    fn begin(&self, _ask: &Ask<'_>) -> Result<Box<dyn Running>, String> {
        checked(self)?;
        Ok(Box::new(
            Capture::begin().map_err(|error| error.to_string())?,
        ))
    }
}

impl Running for Capture {
    fn finish(self: Box<Self>) -> Result<Profile, String> {
        Ok(Capture::finish(*self))
    }
}
