//! `wall` and `offcpu`: what threads do, whether they run or wait, by looking at them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Ask, Kind, Running, Source, State, checked};
use crate::capture::Capture;
use crate::engine;
use crate::kind::Sampled;

/// All time of all threads.
pub(super) static WALL: Wall = Wall {
    name: "wall",
    description: "Wall-clock profile: where threads spend time, whether they run or wait. You can \
                  specify the duration in the seconds GET parameter.",
    sampled: Sampled::Wall,
    allowed: AtomicBool::new(true),
};

/// Time that threads wait.
pub(super) static OFF_CPU: Wall = Wall {
    name: "offcpu",
    description: "Off-CPU profile: where threads wait, and for how long. You can specify the \
                  duration in the seconds GET parameter.",
    sampled: Sampled::OffCpu,
    allowed: AtomicBool::new(true),
};

pub(super) struct Wall {
    name: &'static str,
    description: &'static str,
    sampled: Sampled,
    allowed: AtomicBool,
}

impl Source for Wall {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn kind(&self) -> Kind {
        Kind::Window
    }

    fn state(&self) -> State {
        if !self.allowed.load(Ordering::Relaxed) {
            return State::switched_off(self.name);
        }
        if !crate::wall::SEES_THREADS {
            return State::off_elsewhere();
        }
        if self.sampled == Sampled::OffCpu && !crate::wall::READS_STACKS {
            return State::Off {
                why: "stacks of waiting threads are not read on this processor yet".into(),
                how_to_switch_on: "run on x86-64, or take wall".into(),
            };
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
        self.allowed.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn cost(&self) -> String {
        let Ok(engine) = engine::current() else {
            return "nothing".into();
        };
        let hertz = 1_000_000_000 / engine.wall.period().as_nanos().max(1);
        let threads = engine.wall.threads_per_tick;
        let while_sampled = format!(
            "one thread that looks at up to {threads} threads {hertz} times per second, for at most \
             1 % of a CPU"
        );
        match crate::http::running(self.name) {
            0 => format!("nothing; {while_sampled} while sampled"),
            captures => format!("{while_sampled}, shared by {captures} captures"),
        }
    }

    fn begin(&self, _ask: &Ask<'_>) -> Result<Box<dyn Running>, String> {
        checked(self)?;
        let capture = Capture::of(self.sampled).map_err(|error| error.to_string())?;
        Ok(Box::new(capture))
    }
}
