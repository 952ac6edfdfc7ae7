//! What the server says about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{ApiError, App};
use crate::debuginfo::Source;
use crate::metrics::{Text, counters};
use crate::store::catalog::Segment;

/// `GET /ready` and `/readyz`: 200 once earlier data is readable and pushes are taken.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    if app.progress.done.load(Relaxed) {
        return Json(json!({ "ready": true })).into_response();
    }
    let body = json!({ "ready": false, "recovery": app.progress.line() });
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, "1")],
        Json(body),
    )
        .into_response()
}

/// `GET /healthz`: 200 as long as the process answers.
pub async fn healthy() -> Json<Value> {
    Json(json!({ "healthy": true }))
}

/// `GET /api/v1/targets`.
pub async fn targets(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let body = match &app.targets {
        Some(provider) => provider(),
        None => {
            r#"{"status":"success","data":{"activeTargets":[],"droppedTargets":[]}}"#.to_owned()
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// `GET /api/v1/status`.
pub async fn status(State(app): State<Arc<App>>) -> Json<Value> {
    let load = |counter: &AtomicU64| counter.load(Relaxed);
    let (metrics, progress) = (&app.engine.metrics, &app.progress);
    let (segments, bytes) = app.engine.catalog.size();
    let (remembered, head_bytes) = app.writer.stats();
    let (cache_bytes, hits, misses) = app.engine.cache.stats();
    let mut by_kind: Map<String, Value> = Map::new();
    for ((kind, reason), count) in metrics.reasons() {
        let of_kind = by_kind.entry(kind).or_insert_with(|| json!({}));
        of_kind[reason] = count.into();
    }
    let coverage = app.engine.gaps(i64::MIN, i64::MAX);
    let count = |wanted: &dyn Fn(Option<i64>) -> bool| {
        let step_ns = |segment: &Segment| segment.block.as_ref().map(|files| files.step_ns);
        app.engine
            .catalog
            .select(|segment| wanted(step_ns(segment)))
            .len()
    };
    let note = progress
        .index_note
        .lock()
        .ok()
        .and_then(|note| note.clone());
    Json(json!({
        "ready": load_done(&app),
        "recovery": {
            "segments_found": load(&progress.found),
            "segments_read": load(&progress.read),
            "from_index": load(&progress.from_index),
            "index_note": note,
            "identity_files_read": load(&progress.identity_files_read),
            "identity_files_spared": load(&progress.identity_files_spared),
        },
        "segments": segments,
        "blocks": count(&|step_ns| step_ns == Some(0)),
        "roll_ups": count(&|step_ns| step_ns > Some(0)),
        "segment_bytes": bytes,
        "accepted": { "profiles": load(&metrics.profiles), "samples": load(&metrics.samples) },
        "received_bytes": load(&metrics.received_bytes),
        "duplicates": load(&metrics.duplicates),
        "reasons": by_kind,
        "write_errors": load(&metrics.write_errors),
        "merges": load(&metrics.merges),
        "merging_elsewhere": metrics.merging_elsewhere.load(Relaxed),
        "remembered_pushes": remembered,
        "active_series": app.policy.active_series(),
        "head_bytes": head_bytes,
        "cache": { "bytes": cache_bytes, "hits": hits, "misses": misses },
        "partial": coverage.partial,
        "problems": coverage.problems,
    }))
}

fn load_done(app: &App) -> bool {
    app.progress.done.load(Relaxed)
}

/// `GET /metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    prometheus(metrics_of(&app))
}

/// Prometheus' text as an answer.
pub fn prometheus(body: String) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// The metrics of one store.
pub fn metrics_of(app: &App) -> String {
    let mut text = Text::default();
    counters(&mut text, &app.engine.metrics);
    let (segments, bytes) = app.engine.catalog.size();
    let (remembered, head_bytes) = app.writer.stats();
    let (cache_bytes, hits, misses) = app.engine.cache.stats();
    let damaged = app.engine.catalog.damaged().len();
    for (kind, name, help, value) in [
        (
            "gauge",
            "pilotlight_segments",
            "Segments on disk.",
            segments as f64,
        ),
        (
            "gauge",
            "pilotlight_stored_bytes",
            "Bytes of them.",
            bytes as f64,
        ),
        (
            "gauge",
            "pilotlight_segments_quarantined",
            "Segments left out of answers.",
            damaged as f64,
        ),
        (
            "gauge",
            "pilotlight_head_bytes",
            "Bytes of the open segment.",
            head_bytes as f64,
        ),
        (
            "gauge",
            "pilotlight_remembered_pushes",
            "Identities remembered.",
            remembered as f64,
        ),
        (
            "gauge",
            "pilotlight_active_series",
            "Series that pushed lately, where they are limited.",
            app.policy.active_series() as f64,
        ),
        (
            "gauge",
            "pilotlight_cache_bytes",
            "Bytes of decoded segments held.",
            cache_bytes as f64,
        ),
        (
            "counter",
            "pilotlight_cache_hits_total",
            "Parts found decoded.",
            hits as f64,
        ),
        (
            "counter",
            "pilotlight_cache_misses_total",
            "Parts decoded.",
            misses as f64,
        ),
        (
            "gauge",
            "pilotlight_ready",
            "1 once recovery is done.",
            f64::from(u8::from(load_done(app))),
        ),
    ] {
        text.value(kind, name, help, value);
    }
    let files = app.engine.debuginfo.counts();
    let read =
        "Readings of files of debug information, by where: in_process only without a parser.";
    let unread = "Files of debug information that could not be read, by why.";
    text.labelled(
        "pilotlight_debuginfo_read_total",
        read,
        "where",
        &files.read(),
    );
    text.labelled(
        "pilotlight_debuginfo_unread_total",
        unread,
        "reason",
        &files.failed(),
    );
    let (_, asking) = app.engine.debuginfo.sources_and_queue();
    for (name, source, help) in [
        (
            "pilotlight_debuginfo_debuginfod_total",
            Source::Debuginfod,
            "Build ids asked of debuginfod servers, by what came of it.",
        ),
        (
            "pilotlight_debuginfo_folders_total",
            Source::Folder,
            "Build ids looked for in folders of this machine, by what came of it.",
        ),
    ] {
        text.labelled(name, help, "outcome", &asking.counts().of(source));
    }
    let mut body = text.finish();
    if let Some(extra) = &app.extra_metrics {
        body.push_str(&extra());
    }
    body
}
