//! `POST /api/v1/push`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use pilotlight_profile::{DecodeError, Mode, Report, decode};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::params::Params;
use super::{ApiError, App};
use crate::hash::Identity;
use crate::ingest::policy::{self, Refusal, SAMPLED_LABEL};
use crate::ingest::series::{self, Series, SeriesError};
use crate::ingest::writer::{Ticket, WriteFailed};
use crate::metrics::Metrics;
use crate::segment::{Kept, Pushed};

/// A sender that is slower than this holds memory that others need.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// How long a push waits for its turn before it is told to come back.
const TURN_DEADLINE: Duration = Duration::from_secs(5);
/// Memory of a decoded profile, in multiples of its body (measured 3 to 8).
const DECODED_RATIO: u32 = 6;

struct Request {
    series: Series,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
    request_id: Option<Vec<u8>>,
    received_ns: i64,
}

/// Takes a profile; answers when it is durable.
pub async fn push(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    params: Params,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let result = accept(&app, &headers, &params, body).await;
    if let Err(error) = &result {
        app.engine
            .metrics
            .reason("refused", refusal(error.status), 1);
    }
    result
}

fn refusal(status: StatusCode) -> &'static str {
    match status.as_u16() {
        413 => "too_large",
        422 => "invalid",
        429 => "busy",
        408 => "slow_body",
        415 => "format",
        503 => "not_ready",
        507 => "disk_full",
        500 => "write_error",
        _ => "bad_request",
    }
}

async fn accept(
    app: &Arc<App>,
    headers: &HeaderMap,
    params: &Params,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    if !app.progress.done.load(Relaxed) {
        let message = format!(
            "the server is reading what is on disk: {}",
            app.progress.line()
        );
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).retry(1));
    }
    let request = request(app, headers, params)?;
    let (body, mut budget) = read_body(app, headers, body).await?;
    app.engine
        .metrics
        .received_bytes
        .fetch_add(body.len() as u64, Relaxed);
    app.policy
        .admit(body.len() as u64, app.env.now_ns())
        .map_err(|refusal| not_now(app, &refusal))?;
    let more = (body.len() as u32 / 1024 + 1) * (DECODED_RATIO - 1);
    let more = more.min(app.budget_kib / 2);
    budget.merge(turn(&app.budget, more).await?);
    let decoder = turn(&app.decoders, 1).await?;
    let at = app.clone();
    let taken = tokio::task::spawn_blocking(move || {
        let _decoder = decoder;
        take(&at, &request, &body)
    });
    let (mut ticket, report) = taken.await.map_err(|error| {
        let message = format!("the profile broke the server ({error}); please report it");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })??;
    ticket
        .durable()
        .await
        .map_err(|failed| not_written(&failed))?;
    drop(budget);
    Ok(Json(answer(&app.engine.metrics, &ticket, &report)))
}

fn request(app: &App, headers: &HeaderMap, params: &Params) -> Result<Request, ApiError> {
    let form = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if form.is_some_and(|form| form.starts_with("multipart/")) {
        let message = "the body must be the pprof file itself, not a form: use --data-binary";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let series = params.get("series").ok_or_else(|| {
        ApiError::bad("parameter series is missing, such as series={service_name=\"checkout\"}")
    })?;
    let series = series::parse(series, params.get("name"), app.policy.labels());
    let series = series.map_err(|error| match error {
        SeriesError::Syntax(message) => ApiError::bad(message),
        SeriesError::Limit(message) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message),
    })?;
    let received_ns = app.env.now_ns();
    let time = |name| match params.get(name) {
        Some(_) => params.time(name, received_ns, 0).map(Some),
        None => Ok(None),
    };
    let (from_ns, until_ns) = (time("from")?, time("until")?);
    if let (Some(from), Some(until)) = (from_ns, until_ns)
        && from > until
    {
        return Err(ApiError::bad("from is after until"));
    }
    let request_id = headers
        .get("x-pilotlight-request-id")
        .map(|value| value.as_bytes().to_vec());
    let request_id = request_id.filter(|id| !id.is_empty());
    Ok(Request {
        series,
        from_ns,
        until_ns,
        request_id,
        received_ns,
    })
}

async fn turn(semaphore: &Arc<Semaphore>, n: u32) -> Result<OwnedSemaphorePermit, ApiError> {
    let acquired = semaphore.clone().acquire_many_owned(n);
    match tokio::time::timeout(TURN_DEADLINE, acquired).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => {
            let message = "more is being pushed than this server takes; \
                           nothing of this push is stored, send it again later";
            Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).retry(2))
        }
    }
}

fn too_large(app: &App) -> ApiError {
    let limit = app.limits.wire_bytes;
    let message = format!("the body is longer than the limit of {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

async fn read_body(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), ApiError> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let announced = announced
        .and_then(|text| text.parse::<u64>().ok())
        .unwrap_or(0);
    if announced > app.limits.wire_bytes {
        return Err(too_large(app));
    }
    let mut budget = turn(&app.budget, (announced / 1024) as u32 + 1).await?;
    let reading = async {
        let mut bytes = Vec::with_capacity(announced as usize);
        let mut stream = body.into_data_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| {
                ApiError::bad(format!("the body ended early ({error}); nothing is stored"))
            })?;
            if (bytes.len() + chunk.len()) as u64 > app.limits.wire_bytes {
                return Err(too_large(app));
            }
            bytes.extend_from_slice(&chunk);
            let needed = bytes.len() / 1024 + 1;
            if needed > budget.num_permits() {
                let more = (needed - budget.num_permits()).max(64) as u32;
                budget.merge(turn(&app.budget, more).await?);
            }
        }
        Ok(bytes)
    };
    match tokio::time::timeout(BODY_DEADLINE, reading).await {
        Ok(read) => Ok((read?, budget)),
        Err(_) => {
            let message = "the body did not arrive within 30 s; nothing is stored";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

/// What was done to the profile besides what the decoder reports.
#[derive(Default)]
struct Notes {
    decoded: Report,
    missing_time: bool,
    future_time: bool,
    /// Only totals are kept: the rule, and the samples left out.
    thinned: Option<(&'static str, u64)>,
    service_added: bool,
}

fn take(app: &App, request: &Request, body: &[u8]) -> Result<(Ticket, Notes), ApiError> {
    let labels = series_bytes(&request.series);
    if let Some(given) = &request.request_id {
        let id = Identity::of(&[b"request", given, &labels]);
        if let Some(ticket) = app.writer.known(id) {
            return Ok((ticket, Notes::default()));
        }
    }
    let series_id = Identity::of(&[b"series", &labels]);
    app.policy
        .series(series_id, request.received_ns)
        .map_err(|refusal| not_now(app, &refusal))?;
    let decoded = decode(body, Mode::Tolerant, &app.limits).map_err(|error| refused(&error))?;
    let mut profile = decoded.profile;
    let missing_time = profile.time_ns <= 0;
    let (time_ns, timed) = match request.from_ns {
        _ if !missing_time => (profile.time_ns, true),
        Some(from) => (from, true),
        None => (request.received_ns, false),
    };
    let asked = request
        .until_ns
        .zip(request.from_ns)
        .map(|(until, from)| until - from);
    let duration_ns = match profile.duration_ns {
        known if known > 0 => known,
        _ => asked.unwrap_or(0),
    };
    let id = match &request.request_id {
        Some(given) => Identity::of(&[b"request", given, &labels]),
        // Without any time, two equal bodies may well be two profiles.
        None if !timed => 0,
        None => Identity::of(&[b"content", body, &labels, &time_ns.to_le_bytes()]),
    };
    let (stored_ns, future_time) = app
        .policy
        .time(time_ns, request.received_ns)
        .map_err(|refusal| not_now(app, &refusal))?;
    let mut labels = request.series.labels.clone();
    let rule = app
        .policy
        .thinned(&labels, series_id, request.received_ns, app.env.random());
    let thinned = rule.map(|rule| (rule, profile.samples.len() as u64));
    if thinned.is_some() {
        profile = policy::totals(&profile);
        labels.push((SAMPLED_LABEL.to_owned(), "true".to_owned()));
        labels.sort();
    }
    let pushed = Pushed {
        labels,
        name: request.series.name.clone(),
        time_ns: stored_ns,
        duration_ns,
        id,
    };
    let ticket = app.writer.add(&profile, &pushed);
    let service_added = request.series.service_added;
    Ok((
        ticket,
        Notes {
            decoded: decoded.report,
            missing_time,
            future_time,
            thinned,
            service_added,
        },
    ))
}

fn not_now(app: &App, refusal: &Refusal) -> ApiError {
    match *refusal {
        Refusal::Rate {
            what,
            per_second,
            retry_s,
        } => {
            app.engine.metrics.reason("limited", what, 1);
            let message = format!(
                "more than {per_second} {what} a second, the limit of this server \
                 ({what}_per_second); nothing of this push is stored, send it again in {retry_s} s"
            );
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).retry(retry_s)
        }
        Refusal::Series { limit } => {
            app.engine.metrics.reason("limited", "series", 1);
            let message = format!(
                "a new series, and {limit} pushed within the last hour already, which is the limit \
                 of this server (series_limit); use fewer label values, or raise it"
            );
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
        }
        Refusal::TooOld { age_s, limit_s } => {
            app.engine.metrics.reason("limited", "too_old", 1);
            let message = format!(
                "the profile is {age_s} s old and this server keeps {limit_s} s: it would be \
                 deleted at once; check the clock of its sender, or raise the retention"
            );
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
        }
    }
}

fn series_bytes(series: &Series) -> Vec<u8> {
    let mut bytes = series.name.clone().into_bytes();
    for (name, value) in &series.labels {
        for text in [name, value] {
            bytes.push(0xff);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

fn refused(error: &DecodeError) -> ApiError {
    let status = match error {
        DecodeError::Limit { .. } | DecodeError::InflationRatio { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        DecodeError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        DecodeError::NotBuiltIn { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        _ => StatusCode::BAD_REQUEST,
    };
    ApiError::new(
        status,
        format!("the body is not a profile this server takes: {error}"),
    )
}

fn not_written(failed: &WriteFailed) -> ApiError {
    let reason = &failed.reason;
    if failed.full {
        let message = format!(
            "the disk of the server is full ({reason}); nothing of this push is stored, \
             free space or lower the retention, then send it again"
        );
        return ApiError::new(StatusCode::INSUFFICIENT_STORAGE, message).retry(10);
    }
    let message = format!(
        "the server cannot write its data folder ({reason}); nothing of this push is stored, \
         send it again when that is mended"
    );
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).retry(10)
}

fn answer(metrics: &Metrics, ticket: &Ticket, notes: &Notes) -> Value {
    if ticket.duplicate {
        metrics.duplicates.fetch_add(1, Relaxed);
        return json!({
            "accepted_samples": 0, "repaired": {}, "dropped": {}, "duplicate": true,
        });
    }
    let Kept {
        samples,
        negative,
        zero,
    } = ticket.kept;
    metrics.profiles.fetch_add(1, Relaxed);
    metrics.samples.fetch_add(samples, Relaxed);
    let mut repaired = Counts {
        metrics,
        kind: "repaired",
        map: Map::new(),
    };
    let mut dropped = Counts {
        metrics,
        kind: "dropped",
        map: Map::new(),
    };
    notes
        .decoded
        .repaired()
        .for_each(|(reason, count)| repaired.add(reason, count));
    notes
        .decoded
        .dropped()
        .for_each(|(reason, count)| dropped.add(reason, count));
    repaired.add("missing_time", notes.missing_time.into());
    repaired.add("future_time", notes.future_time.into());
    repaired.add("missing_service_name", notes.service_added.into());
    dropped.add("negative_value", negative);
    dropped.add("zero_value", zero);
    if let Some((rule, left_out)) = notes.thinned {
        metrics.reason("thinned", rule, 1);
        dropped.add("sampling_rule", left_out);
    }
    json!({
        "accepted_samples": samples,
        "repaired": repaired.map,
        "dropped": dropped.map,
        "duplicate": false,
    })
}

/// Counts by reason, for the answer and for the metrics.
struct Counts<'a> {
    metrics: &'a Metrics,
    kind: &'static str,
    map: Map<String, Value>,
}

impl Counts<'_> {
    fn add(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            self.metrics.reason(self.kind, reason, count);
            self.map.insert(reason.to_owned(), count.into());
        }
    }
}
