//! What the environment says over the program.

use super::{AfterFork, Config, Error};
use crate::{Engine, otel};

impl Config {
    /// `None` when the environment switches everything off.
    pub(super) fn overridden(mut self) -> Result<Option<Config>, Error> {
        if flag("PILOTLIGHT_ENABLED")? == Some(false) {
            return Ok(None);
        }
        self.override_push()?;
        if let Some(version) = variable("PILOTLIGHT_VERSION") {
            self.version = Some(version);
        }
        // What others say of the service is no reason not to start.
        let said = || otel::service_version().filter(|version| super::is_version(version));
        self.version = self.version.or_else(said);
        if let Some(allowed) = flag("PILOTLIGHT_HTTP_SWITCH")? {
            self.http_switch = allowed;
        }
        if let Some(published) = flag("PILOTLIGHT_OTEL_CONTEXT")? {
            self.otel_context = published;
        }
        if let Some(in_samples) = flag("PILOTLIGHT_TRACE_IDS")? {
            self.trace_ids = in_samples;
        }
        if let Some(on) = flag("PILOTLIGHT_AWAIT")? {
            self.await_profile = on;
        }
        if let Some(on) = flag("PILOTLIGHT_SYMBOLIZE")? {
            self.symbolize = on;
        }
        if let Some(text) = variable("PILOTLIGHT_SYMBOLIZE_BYTES") {
            let wrong = |_| Error::variable("PILOTLIGHT_SYMBOLIZE_BYTES", &text, "a number");
            self.symbolize_bytes = text.parse().map_err(wrong)?;
        }
        if let Some(text) = variable("PILOTLIGHT_FREQUENCY_HZ") {
            let wrong = |_| Error::variable("PILOTLIGHT_FREQUENCY_HZ", &text, "1 to 10000");
            self.frequency_hz = text.parse().map_err(wrong)?;
        }
        if let Some(text) = variable("PILOTLIGHT_LOCK_RATE_NS") {
            let wrong = |_| Error::variable("PILOTLIGHT_LOCK_RATE_NS", &text, "nanoseconds, or 0");
            self.lock_rate_ns = text.parse().map_err(wrong)?;
        }
        if let Some(text) = variable("PILOTLIGHT_HEAP_INTERVAL_BYTES") {
            let wrong = |_| Error::variable("PILOTLIGHT_HEAP_INTERVAL_BYTES", &text, "bytes, or 0");
            self.heap_interval_bytes = Some(text.parse().map_err(wrong)?);
        }
        self.wall = self.wall.overridden()?;
        if let Some(text) = variable("PILOTLIGHT_BUDGET_CPU_PERCENT") {
            let wrong = |_| Error::variable("PILOTLIGHT_BUDGET_CPU_PERCENT", &text, "0.01 to 100");
            self.budget_cpu_percent = text.parse().map_err(wrong)?;
        }
        if let Some(text) = variable("PILOTLIGHT_BUDGET_BYTES") {
            let wrong = |_| Error::variable("PILOTLIGHT_BUDGET_BYTES", &text, "bytes");
            self.budget_bytes = text.parse().map_err(wrong)?;
        }
        if let Some(text) = variable("PILOTLIGHT_ENGINE") {
            self.engine = match text.as_str() {
                "auto" => Engine::Auto,
                "perf" => Engine::Perf,
                "timer" => Engine::Timer,
                "process-timer" => Engine::ProcessTimer,
                _ => {
                    let expected = "auto, perf, timer or process-timer";
                    return Err(Error::variable("PILOTLIGHT_ENGINE", &text, expected));
                }
            };
        }
        if let Some(text) = variable("PILOTLIGHT_AFTER_FORK") {
            self.after_fork = match text.as_str() {
                "off" => AfterFork::Off,
                "restart" => AfterFork::Restart,
                _ => {
                    let expected = "off or restart";
                    return Err(Error::variable("PILOTLIGHT_AFTER_FORK", &text, expected));
                }
            };
        }
        if let Some(text) = variable("PILOTLIGHT_LISTEN") {
            self.listen = Some(text).filter(|address| address != "none");
        }
        Ok(Some(self))
    }

    #[cfg(feature = "push")]
    fn override_push(&mut self) -> Result<(), Error> {
        self.push = crate::push::Push::overridden(self.push.take(), variable)?;
        match &self.push {
            Some(push) => push.check().map(drop),
            None => Ok(()),
        }
    }

    /// Who wants profiles pushed must not wait for them in vain.
    #[cfg(not(feature = "push"))]
    fn override_push(&mut self) -> Result<(), Error> {
        match variable("PILOTLIGHT_PUSH_URL") {
            Some(url) => Err(Error::variable(
                "PILOTLIGHT_PUSH_URL",
                &url,
                "set where pilotlight is built with its feature `push`",
            )),
            None => Ok(()),
        }
    }
}

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A variable that is true or false, if it is set.
fn flag(name: &'static str) -> Result<Option<bool>, Error> {
    let Some(text) = variable(name) else {
        return Ok(None);
    };
    match text.as_str() {
        "true" | "1" | "on" | "yes" => Ok(Some(true)),
        "false" | "0" | "off" | "no" => Ok(Some(false)),
        _ => Err(Error::variable(name, &text, "true or false")),
    }
}
