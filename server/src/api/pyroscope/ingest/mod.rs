//! `POST /ingest?name=app{k=v}&from=…&until=…&format=…`: Pyroscope's older push.

pub mod any;
mod folded;
mod form;
mod jfr;
mod kind;
mod speedscope;
mod stacks;
mod trees;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use pilotlight_profile::{Mode, Profile, Report, decode, inflate};

use super::super::intake::{self, Notes, Offer};
use super::super::params::Params;
use super::super::{ApiError, App};
use crate::ingest::series::{self, Series};
use crate::ingest::writer::Ticket;
use form::{Format, Parts};
use kind::Kind;
use stacks::{Numbers, PERIOD_NS};

/// Takes a profile; answers when it is durable.
pub async fn ingest(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    params: Params,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let result = accept(&app, &headers, params, body).await;
    result.inspect_err(|error| intake::count_refusal(&app, error))?;
    Ok(StatusCode::OK)
}

async fn accept(
    app: &Arc<App>,
    headers: &HeaderMap,
    params: Params,
    body: Body,
) -> Result<(), ApiError> {
    let content = headers.get(header::CONTENT_TYPE);
    let content = content.and_then(|value| value.to_str().ok()).unwrap_or("");
    let asked = params.get("format").unwrap_or("");
    let format = Format::of(asked, content)?;
    let content = content.to_owned();
    let (bytes, budget) = intake::body(app, headers, body).await?;
    let parts = Parts::read(format, &content, Bytes::from(bytes)).await?;
    let (_, fault) = intake::several(app, move |app| take(app, &params, &parts)).await?;
    drop(budget);
    fault.map_or(Ok(()), Err)
}

/// A profile and what its numbers are, where the format does not say it.
struct Read {
    kind: Option<Kind>,
    profile: Profile,
    report: Report,
}

fn take(app: &App, params: &Params, parts: &Parts) -> Vec<Result<(Ticket, Notes), ApiError>> {
    let taken =
        read(app, params, parts).and_then(|(service, all)| Ok((service, all, times(app, params)?)));
    let (service, all, times) = match taken {
        Ok(taken) => taken,
        Err(error) => return vec![Err(error)],
    };
    let store = |read: Read| {
        let profile_name = read
            .kind
            .map_or(name_of(&read.profile), |kind| kind.profile);
        let offer = Offer {
            series: series(app, params, &service, profile_name)?,
            from_ns: times.0,
            until_ns: times.1,
            request_id: None,
            received_ns: app.env.now_ns(),
        };
        intake::admit_series(app, &offer)?;
        // A recording holds several profiles of one series: bytes and time do not tell them apart.
        let value = read.kind.map_or("", |kind| kind.value.0).as_bytes();
        let content = [value, &parts.profile].concat();
        intake::store(app, &offer, read.profile, read.report, &content)
    };
    all.into_iter().map(store).collect()
}

/// The service without a suffix that says the kind, and the profiles.
fn read(app: &App, params: &Params, parts: &Parts) -> Result<(String, Vec<Read>), ApiError> {
    let name = params.get("name").ok_or_else(|| {
        ApiError::bad("parameter name is missing, such as name=checkout{env=prod}")
    })?;
    let service = name
        .split_once('{')
        .map_or(name, |(service, _)| service)
        .trim();
    if parts.format == Format::Pprof {
        let decoded = decode(&parts.profile, Mode::Tolerant, &app.limits);
        let decoded = decoded.map_err(|error| intake::refused(&error))?;
        let read = Read {
            kind: None,
            profile: decoded.profile,
            report: decoded.report,
        };
        return Ok((service.to_owned(), vec![read]));
    }
    let bytes = inflate(&parts.profile, &app.limits).map_err(|error| intake::refused(&error))?;
    let told = kind::of_suffix(service);
    let units = params.get("units").unwrap_or("samples");
    let rate = match params.get("sampleRate") {
        Some(_) => Some(params.number("sampleRate", 1, 1_000_000, 100)? as i64),
        None => None,
    };
    let numbers = Numbers {
        kind: match told {
            Some((_, kind)) => kind,
            None => kind::of_units(units).ok_or_else(|| unknown_units(units))?,
        },
        period_ns: rate.map_or(PERIOD_NS, |rate| 1_000_000_000 / rate),
        limits: &app.limits,
    };
    let kind = numbers.kind;
    let one = |read: Result<Profile, String>| read.map(|profile| vec![(kind, profile)]);
    let all = match parts.format {
        Format::Tree => one(trees::tree(&bytes, &numbers)),
        Format::Trie => one(trees::trie(&bytes, &numbers)),
        Format::Lines => one(folded::profile(&bytes, false, &numbers)),
        Format::Groups | Format::Pprof => one(folded::profile(&bytes, true, &numbers)),
        Format::Speedscope => {
            let told = (told.is_some() || params.get("units").is_some()).then_some(kind);
            speedscope::profile(&bytes, told, numbers).map(|read| vec![read])
        }
        Format::Jfr => jfr::profiles(&bytes, rate, &parts.labels, &app.limits),
    };
    let all = all.map_err(|reason| {
        let message = format!("the body is not {}: {reason}", parts.format.named());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    })?;
    let service = told.map_or(service, |(service, _)| service);
    let reads = all.into_iter().map(|(kind, profile)| Read {
        kind: Some(kind),
        profile,
        report: Report::default(),
    });
    Ok((service.to_owned(), reads.collect()))
}

fn unknown_units(units: &str) -> ApiError {
    ApiError::bad(format!(
        "parameter units: {units:?} is none of samples, objects, bytes, goroutines, lock_samples and \
         lock_nanoseconds"
    ))
}

/// `from` and `until`.
fn times(app: &App, params: &Params) -> Result<(Option<i64>, Option<i64>), ApiError> {
    let now_ns = app.env.now_ns();
    let time = |name| match params.get(name) {
        Some(_) => params.time(name, now_ns, 0).map(Some),
        None => Ok(None),
    };
    let (from_ns, until_ns) = (time("from")?, time("until")?);
    if from_ns
        .zip(until_ns)
        .is_some_and(|(from, until)| from > until)
    {
        return Err(ApiError::bad("from is after until"));
    }
    Ok((from_ns, until_ns))
}

/// `app{k=v,k2=v2}`.
fn series(app: &App, params: &Params, service: &str, profile: &str) -> Result<Series, ApiError> {
    let text = params.get("name").unwrap_or("");
    let (_, rest) = text.split_once('{').unwrap_or((text, "}"));
    let inside = rest
        .strip_suffix('}')
        .ok_or_else(|| ApiError::bad(format!("parameter name: {text:?} ends without a brace")))?;
    let mut labels = Vec::new();
    for pair in inside
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| ApiError::bad(format!("parameter name: {pair:?} is not k=v")))?;
        let value = value.trim().trim_matches('"');
        if !matches!(name.trim(), "__session_id__" | "__name__") {
            labels.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    let mut default = |name: &str, value: &str| {
        if !value.is_empty() && !labels.iter().any(|(known, _)| known == name) {
            labels.push((name.to_owned(), value.to_owned()));
        }
    };
    default("service_name", service);
    default("pyroscope_spy", params.get("spyName").unwrap_or(""));
    labels.sort();
    labels.dedup_by(|next, kept| next.0 == kept.0);
    series::checked(labels, profile.to_owned(), app.policy.labels())
        .map_err(|error| intake::bad_series(&error))
}

/// What Pyroscope calls a pprof of these types.
fn name_of(profile: &Profile) -> &'static str {
    let has = |wanted: &[&str]| {
        profile.sample_types.iter().any(|of| {
            let name = profile.strings.get(of.ty);
            wanted.iter().any(|wanted| wanted.as_bytes() == name)
        })
    };
    let period = profile.strings.get(profile.period_type.ty);
    if has(&[
        "inuse_space",
        "inuse_objects",
        "alloc_space",
        "alloc_objects",
    ]) {
        "memory"
    } else if has(&["contentions", "delay"]) {
        if period == b"mutex" { "mutex" } else { "block" }
    } else if has(&["goroutine", "goroutines"]) {
        "goroutines"
    } else {
        "process_cpu"
    }
}
