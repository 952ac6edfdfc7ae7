//! For programs that use [pprof-rs](https://docs.rs/pprof): its profiles through our endpoints.
//! Feature `pprof`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! let guard = Arc::new(pprof::ProfilerGuardBuilder::default().frequency(97).build()?);
//! // GET /debug/pprof/pprof_rs, ?seconds=S for what S seconds added
//! pilotlight::pprof::serve("pprof_rs", guard)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Use one sampler at a time: pprof-rs sets SIGPROF's handler when a guard begins and ignores the
//! signal when it is dropped, so that a capture of ours that runs then ends early.
//! `docs/migration.md` has the rest of the way.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use ::pprof::{Frames, ProfilerGuard, Report};
use pilotlight_profile::{FunctionId, Label, LabelValue, LocationId, Profile, ProfileBuilder};

use crate::{Error, Kind, foreign};

/// Serves what `guard` has sampled since it began as `/debug/pprof/NAME`.
///
/// # Errors
/// When the name is none (`a-z`, `0-9`, `_`) or one of pilotlight's own.
pub fn serve(name: &'static str, guard: Arc<ProfilerGuard<'static>>) -> Result<(), Error> {
    let description = "CPU profile by pprof-rs, since its guard began. The seconds GET parameter gives \
                       what was added in that time.";
    let kind = Kind::Cumulative {
        growing: &["samples", "cpu"],
    };
    let take = move || {
        let report = guard.report().build();
        let report = report.map_err(|error| format!("pprof-rs: {error}"))?;
        Ok(profile(&report))
    };
    foreign::add_profiles(name, description, kind, take)
}

/// A report as a profile: samples/count and cpu/nanoseconds, with the label `thread`, as
/// `Report::pprof` has it; inlined calls stay with their frame.
#[must_use]
pub fn profile(report: &Report) -> Profile {
    let mut builder = ProfileBuilder::new();
    builder.sample_type("samples", "count");
    builder.sample_type("cpu", "nanoseconds");
    let period_ns = 1_000_000_000 / i64::from(report.timing.frequency.max(1));
    builder.period("cpu", "nanoseconds", period_ns);
    let began = report.timing.start_time.duration_since(UNIX_EPOCH);
    let began_ns = began.unwrap_or_default().as_nanos() as i64;
    builder.time(began_ns, report.timing.duration.as_nanos() as i64);
    let thread = builder.string(b"thread");
    for (frames, count) in &report.data {
        let stack = locations(&mut builder, frames);
        let stack = builder.stack(&stack);
        let name = builder.string(frames.thread_name_or_id().as_bytes());
        let labels = builder.label_set(&[Label {
            key: thread,
            value: LabelValue::Str(name),
        }]);
        let count = *count as i64;
        builder.sample(stack, labels, &[count, count * period_ns]);
    }
    builder.finish()
}

/// Leaf first, as both have it. Reports know where functions begin, not where they were: no
/// addresses.
fn locations(builder: &mut ProfileBuilder, frames: &Frames) -> Vec<LocationId> {
    let mut locations = Vec::with_capacity(frames.frames.len());
    for frame in &frames.frames {
        let lines: Vec<(FunctionId, i64)> = frame
            .iter()
            .map(|symbol| {
                let name = builder.string(symbol.name().as_bytes());
                let system_name = builder.string(symbol.sys_name().as_bytes());
                let file = builder.string(symbol.filename().as_bytes());
                let function = builder.function(name, system_name, file, 0);
                (function, symbol.lineno().into())
            })
            .collect();
        locations.push(builder.location(None, 0, &lines));
    }
    locations
}
