//! What every protocol that brings profiles shares: memory, limits, and the way into the segment.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use pilotlight_profile::{DecodeError, Mode, Profile, Report, decode};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ApiError, App};
use crate::hash::Identity;
use crate::ingest::policy::{self, Refusal, SAMPLED_LABEL};
use crate::ingest::series::{Series, SeriesError};
use crate::ingest::writer::{Ticket, WriteFailed};
use crate::metrics::Metrics;
use crate::segment::{Kept, Pushed};

/// A sender that is slower than this holds memory that others need.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// How long a push waits for its turn before it is told to come back.
const TURN_DEADLINE: Duration = Duration::from_secs(5);
/// Memory of a decoded profile, in multiples of its body (measured 3 to 8).
const DECODED_RATIO: u32 = 6;

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

/// One profile on its way in, whatever protocol brought it.
pub struct Offer {
    /// Whose it is.
    pub series: Series,
    /// For a profile without a time of its own.
    pub from_ns: Option<i64>,
    /// With `from_ns`, the length of one that does not say.
    pub until_ns: Option<i64>,
    /// Same id, same profile.
    pub request_id: Option<Vec<u8>>,
    /// Now.
    pub received_ns: i64,
}

/// What was done to the profile besides what the decoder reports.
#[derive(Default)]
pub struct Notes {
    decoded: Report,
    missing_time: bool,
    future_time: bool,
    /// Only totals are kept: the rule, and the samples left out.
    thinned: Option<(&'static str, u64)>,
    service_added: bool,
}

/// A body within the limits, and the memory that it and its decoded form may take.
pub async fn body(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), ApiError> {
    ready(app)?;
    let (body, mut budget) = read_body(app, headers, body).await?;
    budget.merge(admit(app, body.len() as u64).await?);
    Ok((body, budget))
}

/// The same for a body that something else has read.
pub async fn reserve(app: &Arc<App>, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
    ready(app)?;
    admit(app, bytes).await
}

async fn admit(app: &Arc<App>, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
    app.engine.metrics.received_bytes.fetch_add(bytes, Relaxed);
    app.policy
        .admit(bytes, app.env.now_ns())
        .map_err(|refusal| not_now(app, &refusal))?;
    let kib = (bytes / 1024 + 1).saturating_mul(u64::from(DECODED_RATIO - 1));
    let kib = u32::try_from(kib).unwrap_or(u32::MAX);
    turn(&app.budget, kib.min(app.budget_kib / 2)).await
}

fn ready(app: &App) -> Result<(), ApiError> {
    if !app.progress.done.load(Relaxed) {
        let message = format!(
            "the server is reading what is on disk: {}",
            app.progress.line()
        );
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).retry(1));
    }
    Ok(())
}

/// Runs `work` where it may take a core for a while; a few at a time.
pub async fn decoding<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let decoder = turn(&app.decoders, 1).await?;
    let at = app.clone();
    let done = tokio::task::spawn_blocking(move || {
        let _decoder = decoder;
        work(&at)
    });
    done.await.map_err(|error| {
        let message = format!("the profile broke the server ({error}); please report it");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?
}

/// Waits until the profile is durable.
pub async fn durable(ticket: &mut Ticket) -> Result<(), ApiError> {
    ticket
        .durable()
        .await
        .map_err(|failed| not_written(&failed))
}

/// Takes several profiles of one request: `work` decodes them and keeps the first fault, which is what
/// the sender hears of. What was good is stored all the same, and durable when this returns how many
/// that were; a retry of the whole does not count it again.
pub async fn several(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Vec<Result<(Ticket, Notes), ApiError>> + Send + 'static,
) -> Result<(usize, Option<ApiError>), ApiError> {
    let work = move |app: &App| {
        let (mut taken, mut fault) = (Vec::new(), None);
        for result in work(app) {
            match result {
                Ok(done) => taken.push(done),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        Ok((taken, fault))
    };
    let (mut taken, fault) = decoding(app, work).await?;
    for (ticket, notes) in &mut taken {
        durable(ticket).await?;
        answer(&app.engine.metrics, ticket, notes);
    }
    Ok((taken.len(), fault))
}

/// Counts a refused request by its reason.
pub fn count_refusal(app: &App, error: &ApiError) {
    let reason = refusal(error.status);
    app.engine.metrics.reason("refused", reason, 1);
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

/// Decodes a pprof and puts it into the open segment.
pub fn take_pprof(app: &App, offer: &Offer, body: &[u8]) -> Result<(Ticket, Notes), ApiError> {
    if let Some(ticket) = known(app, offer) {
        return Ok((ticket, Notes::default()));
    }
    admit_series(app, offer)?;
    let decoded = decode(body, Mode::Tolerant, &app.limits).map_err(|error| refused(&error))?;
    store(app, offer, decoded.profile, decoded.report, body)
}

/// The ticket of a request that came before.
pub fn known(app: &App, offer: &Offer) -> Option<Ticket> {
    let given = offer.request_id.as_ref()?;
    let labels = series_bytes(&offer.series);
    app.writer
        .known(Identity::of(&[b"request", given, &labels]))
}

/// Notes the series as active; a new one may be one too many.
pub fn admit_series(app: &App, offer: &Offer) -> Result<(), ApiError> {
    app.policy
        .series(series_id(&offer.series), offer.received_ns)
        .map_err(|refusal| not_now(app, &refusal))
}

/// Puts a decoded profile into the open segment; `content` is what makes it the same as another one
/// of the same series and time.
pub fn store(
    app: &App,
    offer: &Offer,
    mut profile: Profile,
    decoded: Report,
    content: &[u8],
) -> Result<(Ticket, Notes), ApiError> {
    let series = series_bytes(&offer.series);
    let missing_time = profile.time_ns <= 0;
    let (time_ns, timed) = match offer.from_ns {
        _ if !missing_time => (profile.time_ns, true),
        Some(from) => (from, true),
        None => (offer.received_ns, false),
    };
    let asked = offer.until_ns.zip(offer.from_ns);
    let duration_ns = match profile.duration_ns {
        known if known > 0 => known,
        _ => asked.map_or(0, |(until, from)| until - from),
    };
    let id = match &offer.request_id {
        Some(given) => Identity::of(&[b"request", given, &series]),
        // Without any time, two equal bodies may well be two profiles.
        None if !timed => 0,
        None => Identity::of(&[b"content", content, &series, &time_ns.to_le_bytes()]),
    };
    let (stored_ns, future_time) = app
        .policy
        .time(time_ns, offer.received_ns)
        .map_err(|refusal| not_now(app, &refusal))?;
    let mut labels = offer.series.labels.clone();
    let (now_ns, random) = (offer.received_ns, app.env.random());
    let rule = app
        .policy
        .thinned(&labels, series_id(&offer.series), now_ns, random);
    let thinned = rule.map(|rule| (rule, profile.samples.len() as u64));
    if thinned.is_some() {
        profile = policy::totals(&profile);
        labels.push((SAMPLED_LABEL.to_owned(), "true".to_owned()));
        labels.sort();
    }
    let pushed = Pushed {
        labels,
        name: offer.series.name.clone(),
        time_ns: stored_ns,
        duration_ns,
        id,
    };
    let ticket = app.writer.add(&profile, &pushed);
    let notes = Notes {
        decoded,
        missing_time,
        future_time,
        thinned,
        service_added: offer.series.service_added,
    };
    Ok((ticket, notes))
}

fn series_id(series: &Series) -> u128 {
    Identity::of(&[b"series", &series_bytes(series)])
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

/// gRPC's word for an HTTP status.
pub fn grpc_code(status: StatusCode) -> tonic::Code {
    match status.as_u16() {
        429 | 503 | 507 => tonic::Code::Unavailable,
        413 => tonic::Code::ResourceExhausted,
        400 | 415 | 422 => tonic::Code::InvalidArgument,
        404 => tonic::Code::NotFound,
        408 => tonic::Code::DeadlineExceeded,
        409 => tonic::Code::AlreadyExists,
        501 => tonic::Code::Unimplemented,
        _ => tonic::Code::Internal,
    }
}

/// An error as gRPC answers it.
pub fn status(error: &ApiError) -> tonic::Status {
    tonic::Status::new(grpc_code(error.status), error.message.as_str())
}

/// A series that cannot be taken, as an answer.
pub fn bad_series(error: &SeriesError) -> ApiError {
    match error {
        SeriesError::Syntax(message) => ApiError::bad(message.as_str()),
        SeriesError::Limit(message) => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message.as_str())
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

/// A body that is no profile, as an answer.
pub fn refused(error: &DecodeError) -> ApiError {
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

/// What is told to the sender, and counted.
pub fn answer(metrics: &Metrics, ticket: &Ticket, notes: &Notes) -> Value {
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
