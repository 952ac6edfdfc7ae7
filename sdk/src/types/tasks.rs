//! `await` and `tasks`: logical stacks of futures.

use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_profile::Profile;

use super::{Ask, Kind, Source, State, checked};
use crate::spans;

pub(super) struct Await;

impl Source for Await {
    fn name(&self) -> &'static str {
        "await"
    }

    fn description(&self) -> &'static str {
        "Time between polls of spanned futures, by logical stack: where tasks wait. Spans are made \
         by pilotlight::SpanExt::span and #[pilotlight::span]."
    }

    fn kind(&self) -> Kind {
        Kind::Cumulative {
            growing: &["waits", "wait"],
        }
    }

    fn state(&self) -> State {
        match spans::is_await_enabled() {
            true => State::On,
            false => State::switched_off(self.name()),
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        spans::set_await_enabled(on);
        Ok(())
    }

    fn cost(&self) -> String {
        match spans::is_await_enabled() {
            true => "up to 100 ns a poll of a spanned future",
            false => "up to 30 ns a poll of a spanned future",
        }
        .into()
    }

    fn count(&self) -> usize {
        spans::await_profile().samples.len()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        Ok(spans::await_profile())
    }
}

pub(super) struct Tasks;

static SHOWN: AtomicBool = AtomicBool::new(true);

impl Source for Tasks {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn description(&self) -> &'static str {
        "Live spanned futures with logical stack and age. debug=1 groups them by stack, debug=2 lists \
         each with state and labels."
    }

    fn kind(&self) -> Kind {
        Kind::Level
    }

    fn state(&self) -> State {
        match SHOWN.load(Ordering::Relaxed) {
            true => State::On,
            false => State::switched_off(self.name()),
        }
    }

    /// Whether they are shown: keeping the list cannot be switched, since tasks outlive the switch.
    fn set_enabled(&self, on: bool) -> Result<(), String> {
        SHOWN.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn cost(&self) -> String {
        "a lock without waiters at the begin and at the end of a spanned future".into()
    }

    fn count(&self) -> usize {
        spans::tasks().len()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        Ok(spans::tasks_profile())
    }

    fn text(&self, ask: &Ask<'_>) -> Option<Result<Vec<u8>, String>> {
        let text = || spans::tasks_text(ask.number("debug") >= 2).into_bytes();
        Some(checked(self).map(|()| text()))
    }
}
