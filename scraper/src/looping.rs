//! One target's loop: at its phase, one scrape at a time, late ticks skipped.

use crate::captures::Captures;
use crate::check::{Checked, check};
use crate::config::ScrapeConfig;
use crate::phase;
use crate::push::{Parcel, Pusher};
use crate::report::{Cause, Failure, TargetState, elapsed};
use crate::target::Target;
use pilotlight_profile::Limits;
use pilotlight_wire::{Bytes, Call, Client, Clock, Error, HeaderMap, HeaderValue, first_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// What all loops share.
pub(crate) struct Shared {
    pub client: Client,
    /// Of jobs that say how their targets are to be checked, by name.
    pub clients: BTreeMap<String, Client>,
    pub clock: Arc<dyn Clock>,
    pub seed: u64,
    pub limits: Limits,
    pub captures: Captures,
    /// Profiles decoded at the same time: bounds memory and CPU over all targets.
    pub decoding: Semaphore,
    pub pusher: Pusher,
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Runs until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>, job: Arc<ScrapeConfig>, state: Arc<TargetState>) {
    let clock = Arc::clone(&shared.clock);
    let target = &state.target;
    let wait = phase::offset(
        target.identity,
        shared.seed,
        target.interval,
        clock.unix_ns(),
    );
    let mut tick = clock.monotonic() + wait;
    if let Some(length) = job.first_captures {
        scrape_until(tick, length, &shared, &job, &state).await;
    }
    clock.sleep(tick.saturating_sub(clock.monotonic())).await;
    loop {
        scrape(&shared, &job, &state, target).await;
        tick += target.interval;
        let late = clock.monotonic().saturating_sub(tick);
        if !late.is_zero() {
            let missed =
                u32::try_from(late.as_nanos() / target.interval.as_nanos()).unwrap_or(u32::MAX) + 1;
            state.missed(u64::from(missed));
            tick += target.interval.saturating_mul(missed);
        }
        clock.sleep(tick.saturating_sub(clock.monotonic())).await;
    }
}

/// Short captures that fit before the first tick, so that there is something to see before the phase comes round.
async fn scrape_until(
    tick: Duration,
    length: Duration,
    shared: &Shared,
    job: &ScrapeConfig,
    state: &TargetState,
) {
    /// Room for the answer.
    const SLACK: Duration = Duration::from_millis(250);
    let mut target = state.target.clone();
    if target.profile.seconds.is_none() {
        return;
    }
    let seconds = length.as_secs().max(1);
    target.profile.seconds = Some(seconds);
    let text = seconds.to_string();
    target.url = target
        .url
        .with_path_and_query(target.url.path(), [("seconds", text.as_str())]);
    while shared.clock.monotonic() + Duration::from_secs(seconds) + SLACK <= tick {
        let start = shared.clock.monotonic();
        scrape(shared, job, state, &target).await;
        if elapsed(&*shared.clock, start) < length {
            // it failed early: the regular scrapes will say whether that lasts
            return;
        }
    }
}

async fn scrape(shared: &Shared, job: &ScrapeConfig, state: &TargetState, target: &Target) {
    let (start_ns, start) = (shared.clock.unix_ns(), shared.clock.monotonic());
    let result = fetch_and_check(shared, job, target).await;
    let took = elapsed(&*shared.clock, start);
    let outcome = match result {
        Ok((Fetched { body, version }, checked)) => {
            let size = body.len() as u64;
            let end_ns = shared.clock.unix_ns();
            shared.pusher.push(Parcel {
                series: series(target, version.as_deref()),
                name: target.profile.name.clone(),
                body,
                // the payload's own time is trusted; ours is for payloads without one
                window: (checked.time_ns == 0).then_some((start_ns, end_ns)),
                id: shared.pusher.id(),
            });
            Ok((size, checked.samples))
        }
        Err(failure) => Err(failure),
    };
    let news = match &outcome {
        Ok(_) => format!("{}: answers again", target.url),
        Err(failure) => failure.text.clone(),
    };
    if state.record(start_ns, took, outcome) {
        (shared.log)(&news);
    }
}

async fn fetch_and_check(
    shared: &Shared,
    job: &ScrapeConfig,
    target: &Target,
) -> Result<(Fetched, Checked), Failure> {
    if let Some(reason) = &target.refused {
        return Err(failure(Cause::Limit, format!("{}: {reason}", target.url)));
    }
    let _capture = reserve(shared, target)?;
    let fetched = fetch(shared, job, target).await.map_err(|error| {
        let cause = if matches!(error, Error::TooLarge { .. }) {
            Cause::Limit
        } else {
            Cause::Wire
        };
        failure(cause, error.to_string())
    })?;
    let body = &fetched.body;
    let checked = checked(shared, job, body).await.map_err(|reason| {
        let error = Error::NotAProfile {
            url: target.url.to_string(),
            reason,
            first: first_bytes(body),
        };
        failure(Cause::NotAProfile, error.to_string())
    })?;
    if job.sample_limit > 0 && checked.samples > job.sample_limit {
        let text = format!(
            "{}: {} samples, sample_limit is {}",
            target.url, checked.samples, job.sample_limit
        );
        return Err(failure(Cause::Limit, text));
    }
    Ok((fetched, checked))
}

/// A Go process has one CPU profiler: the second capture would only get an error, so it is not sent.
fn reserve<'s>(
    shared: &'s Shared,
    target: &Target,
) -> Result<Option<crate::captures::Capture<'s>>, Failure> {
    if !target.profile.is_cpu() {
        return Ok(None);
    }
    let address = target.url.address();
    match shared.captures.begin(&address, &target.job) {
        Ok(capture) => Ok(Some(capture)),
        Err(holder) => Err(failure(
            Cause::Overlap,
            format!(
                "{}: job {holder:?} is capturing the CPU of {address} at this moment; \
                 name the address in one job only, or lower its seconds",
                target.url
            ),
        )),
    }
}

/// An answer, and the version of itself that the service told.
struct Fetched {
    body: Bytes,
    version: Option<String>,
}

/// Header of pilotlight's SDK.
const VERSION: &str = "pilotlight-version";
/// Longer ones are no versions.
const VERSION_BYTES: usize = 128;

/// The target's labels; its version where neither configuration nor rules gave one.
fn series(target: &Target, version: Option<&str>) -> String {
    let mut labels = target.labels.clone();
    if let Some(version) = version {
        labels.set_default("version", version);
    }
    labels.selector()
}

fn version_in(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(VERSION)?.to_str().ok()?;
    let is_version = (1..=VERSION_BYTES).contains(&text.len());
    is_version.then(|| text.to_owned())
}

async fn fetch(shared: &Shared, job: &ScrapeConfig, target: &Target) -> Result<Fetched, Error> {
    let seconds = Duration::from_secs(target.profile.seconds.unwrap_or(0));
    let timeout = seconds + target.timeout;
    let limit = match job.body_size_limit {
        0 => shared.limits.wire_bytes,
        limit => limit.min(shared.limits.wire_bytes),
    };
    let mut call = Call::get(target.url.clone())
        .timeout(timeout)
        .max_body(limit);
    if let Ok(value) = HeaderValue::from_str(&timeout.as_secs_f64().to_string()) {
        call = call.header("x-prometheus-scrape-timeout-seconds", value);
    }
    if let Some(authorization) = &job.authorization {
        call = call.authorized(authorization)?;
    }
    let client = shared.clients.get(&job.job_name);
    let client = client.unwrap_or(&shared.client);
    let answer = client.send(call).await?.success()?;
    let version = version_in(&answer.headers);
    let body = answer.body;
    Ok(Fetched { body, version })
}

async fn checked(shared: &Shared, job: &ScrapeConfig, body: &Bytes) -> Result<Checked, String> {
    let _turn = shared.decoding.acquire().await;
    let (body, limits, body_limit) = (body.clone(), shared.limits.clone(), job.body_size_limit);
    tokio::task::spawn_blocking(move || check(&body, &limits, body_limit))
        .await
        .unwrap_or_else(|error| Err(format!("the check failed: {error}")))
}

fn failure(cause: Cause, text: String) -> Failure {
    Failure { cause, text }
}
