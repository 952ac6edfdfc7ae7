//! Captures that several clients share. A stand-in until the sampler lands: a profile that holds
//! the true times and no sample.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use pilotlight_profile::{Profile, ProfileBuilder};

pub(crate) static STARTED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Subscription {
    wall: SystemTime,
    start: Instant,
}

#[derive(Debug)]
pub(crate) struct CaptureError;

impl std::fmt::Display for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pilotlight is not started: call pilotlight::start and keep its guard")
    }
}

pub(crate) fn subscribe() -> Result<Subscription, CaptureError> {
    let started = STARTED.load(Ordering::Relaxed);
    let subscription = Subscription {
        wall: SystemTime::now(),
        start: Instant::now(),
    };
    started.then_some(subscription).ok_or(CaptureError)
}

impl Subscription {
    pub(crate) fn finish(self) -> Profile {
        let mut builder = ProfileBuilder::new();
        builder.sample_type("samples", "count");
        builder.sample_type("cpu", "nanoseconds");
        builder.period("cpu", "nanoseconds", 1_000_000_000 / 97);
        let since_epoch = self.wall.duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = |time: std::time::Duration| time.as_nanos() as i64;
        builder.time(
            nanoseconds(since_epoch.unwrap_or_default()),
            nanoseconds(self.start.elapsed()),
        );
        builder.finish()
    }
}

pub(crate) fn resolve_symbol(_pc: u64) -> Option<String> {
    None
}
