//! `POST /ingest?name=app{k=v}&from=…&until=…&format=…`: Pyroscope's older push.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use pilotlight_profile::{Mode, Profile, Report, decode, inflate};

use super::super::intake::{self, Offer};
use super::super::params::Params;
use super::super::{ApiError, App};
use super::folded::{self, Numbers};
use crate::ingest::series::{self, Series};
use crate::ingest::writer::Ticket;

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
    let form = headers.get(header::CONTENT_TYPE);
    let form = form
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let (bytes, budget) = intake::body(app, headers, body).await?;
    let mut bytes = Bytes::from(bytes);
    let multipart = form.starts_with("multipart/form-data");
    if multipart {
        bytes = profile_field(&form, bytes).await?;
    }
    let format = params.get("format").unwrap_or("").to_owned();
    let is_pprof = multipart || format == "pprof";
    if let Some(other) = ["trie", "tree", "jfr", "speedscope"]
        .iter()
        .find(|other| format == **other || form.ends_with(&format!("+{other}")))
    {
        let message = format!("format {other} is not supported yet; send pprof or folded stacks");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let take = move |app: &App| take(app, &params, &format, is_pprof, &bytes);
    let (mut ticket, notes) = intake::decoding(app, take).await?;
    intake::durable(&mut ticket).await?;
    intake::answer(&app.engine.metrics, &ticket, &notes);
    drop(budget);
    Ok(())
}

/// The field `profile` of a form.
async fn profile_field(form: &str, bytes: Bytes) -> Result<Bytes, ApiError> {
    let bad = |error: multer::Error| ApiError::bad(format!("the form: {error}"));
    let boundary = multer::parse_boundary(form).map_err(bad)?;
    let whole = futures_util::stream::once(async { Ok::<_, std::io::Error>(bytes) });
    let mut fields = multer::Multipart::new(whole, boundary);
    while let Some(field) = fields.next_field().await.map_err(bad)? {
        if field.name() == Some("profile") {
            return field.bytes().await.map_err(bad);
        }
    }
    Err(ApiError::bad("the form has no field profile"))
}

fn take(
    app: &App,
    params: &Params,
    format: &str,
    is_pprof: bool,
    bytes: &[u8],
) -> Result<(Ticket, intake::Notes), ApiError> {
    let (profile, report) = if is_pprof {
        let decoded = decode(bytes, Mode::Tolerant, &app.limits);
        let decoded = decoded.map_err(|error| intake::refused(&error))?;
        (decoded.profile, decoded.report)
    } else {
        let text = inflate(bytes, &app.limits).map_err(|error| intake::refused(&error))?;
        let numbers = Numbers {
            units: params.get("units").unwrap_or("samples"),
            sample_rate: params.number("sampleRate", 1, 1_000_000, 100)? as i64,
        };
        let profile = folded::profile(&text, format != "lines", &numbers)
            .map_err(|error| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error))?;
        (profile, Report::default())
    };
    let received_ns = app.env.now_ns();
    let time = |name| match params.get(name) {
        Some(_) => params.time(name, received_ns, 0).map(Some),
        None => Ok(None),
    };
    let (from_ns, until_ns) = (time("from")?, time("until")?);
    if from_ns
        .zip(until_ns)
        .is_some_and(|(from, until)| from > until)
    {
        return Err(ApiError::bad("from is after until"));
    }
    let offer = Offer {
        series: series(app, params, &profile)?,
        from_ns,
        until_ns,
        request_id: None,
        received_ns,
    };
    intake::admit_series(app, &offer)?;
    intake::store(app, &offer, profile, report, bytes)
}

/// `app{k=v,k2=v2}`; the profile is called as Pyroscope calls its kind.
fn series(app: &App, params: &Params, profile: &Profile) -> Result<Series, ApiError> {
    let text = params.get("name").ok_or_else(|| {
        ApiError::bad("parameter name is missing, such as name=checkout{env=prod}")
    })?;
    let (service, rest) = text.split_once('{').unwrap_or((text, "}"));
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
    if !labels.iter().any(|(name, _)| name == "service_name") && !service.trim().is_empty() {
        labels.push(("service_name".to_owned(), service.trim().to_owned()));
    }
    labels.sort();
    labels.dedup_by(|next, kept| next.0 == kept.0);
    series::checked(labels, kind(profile).to_owned(), app.policy.labels())
        .map_err(|error| intake::bad_series(&error))
}

fn kind(profile: &Profile) -> &'static str {
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
