//! What can be set.

use std::time::Duration;

use crate::Config;
use crate::config::{Error, setting, variable};

/// Looks a second.
const HERTZ: u32 = 97;
/// Threads looked at in one tick.
const THREADS_PER_TICK: usize = 64;

/// How to sample.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) frequency_hz: u32,
    pub(crate) threads_per_tick: usize,
    /// Only threads whose name contains this.
    pub(crate) names: Option<String>,
    /// Only what threads do under this label.
    pub(crate) label: Option<(String, String)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            frequency_hz: HERTZ,
            threads_per_tick: THREADS_PER_TICK,
            names: None,
            label: None,
        }
    }
}

impl Config {
    /// Looks at threads per second for `wall` and `offcpu`, 1 to 1,000 (default 97).
    #[must_use]
    pub fn wall_frequency_hz(mut self, frequency_hz: u32) -> Config {
        self.wall.frequency_hz = frequency_hz;
        self
    }

    /// Threads looked at in one tick for `wall` and `offcpu`, 1 to 65,536 (default 64). Where there
    /// are more, they take turns; each look counts the time since the last one at the same thread.
    #[must_use]
    pub fn wall_threads_per_tick(mut self, threads: usize) -> Config {
        self.wall.threads_per_tick = threads;
        self
    }

    /// `wall` and `offcpu` look at threads only whose name contains this. Names are read when a
    /// thread is found.
    #[must_use]
    pub fn wall_thread_names(mut self, part: &str) -> Config {
        self.wall.names = Some(part.to_string());
        self
    }

    /// `wall` and `offcpu` count only what threads do under this label ([`crate::labels`]).
    #[must_use]
    pub fn wall_label(mut self, key: &str, value: &str) -> Config {
        self.wall.label = Some((key.to_string(), value.to_string()));
        self
    }
}

impl Settings {
    pub(crate) fn period(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(self.frequency_hz))
    }

    /// What the environment says instead.
    pub(crate) fn overridden(mut self) -> Result<Settings, Error> {
        let name = "PILOTLIGHT_WALL_FREQUENCY_HZ";
        if let Some(text) = variable(name) {
            let wrong = |_| Error::variable(name, &text, "1 to 1000");
            self.frequency_hz = text.parse().map_err(wrong)?;
        }
        let name = "PILOTLIGHT_WALL_THREADS_PER_TICK";
        if let Some(text) = variable(name) {
            let wrong = |_| Error::variable(name, &text, "1 to 65536");
            self.threads_per_tick = text.parse().map_err(wrong)?;
        }
        self.names = variable("PILOTLIGHT_WALL_THREAD_NAMES").or(self.names);
        let name = "PILOTLIGHT_WALL_LABEL";
        if let Some(text) = variable(name) {
            let Some((key, value)) = text.split_once('=') else {
                return Err(Error::variable(name, &text, "key=value"));
            };
            self.label = Some((key.to_string(), value.to_string()));
        }
        Ok(self)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=1000).contains(&self.frequency_hz) {
            let value = self.frequency_hz.to_string();
            return setting("wall_frequency_hz", value, "1 to 1000");
        }
        if !(1..=65_536).contains(&self.threads_per_tick) {
            let value = self.threads_per_tick.to_string();
            return setting("wall_threads_per_tick", value, "1 to 65536");
        }
        Ok(())
    }
}
