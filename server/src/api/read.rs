//! Types, labels, lines over time, pprof.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::Response;
use pilotlight_profile::Profile;
use serde_json::{Value, json};

use super::params::Params;
use super::run::run;
use super::stream::{self, OfBytes};
use super::{ApiError, App};
use crate::query::engine::Coverage;

/// `GET /api/v1/types`.
pub async fn types(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    let (from, until) = params.window(app.env.now_ns())?;
    let selector = params.selector()?;
    run(&app, move |app, _| {
        let coverage = app.engine.gaps(from, until);
        let types = app.engine.types(&selector, from, until);
        Ok(Json(json!({
            "types": types, "partial": coverage.partial, "problems": coverage.problems,
        })))
    })
    .await
}

/// `GET /api/v1/labels`.
pub async fn label_names(
    State(app): State<Arc<App>>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let (window, selector) = (params.window(app.env.now_ns())?, params.selector()?);
    run(&app, move |app, _| {
        let type_id = optional_type(app, &params, &selector, window)?;
        let names = app
            .engine
            .label_names(type_id.as_deref(), &selector, window);
        Ok(Json(with_gaps(app, window, "names", names)))
    })
    .await
}

/// `GET /api/v1/labels/{name}/values`.
pub async fn label_values(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let (window, selector) = (params.window(app.env.now_ns())?, params.selector()?);
    run(&app, move |app, _| {
        let type_id = optional_type(app, &params, &selector, window)?;
        let values = app
            .engine
            .label_values(&name, type_id.as_deref(), &selector, window);
        Ok(Json(with_gaps(app, window, "values", values)))
    })
    .await
}

/// A list, and whether something of the window could not be read.
fn with_gaps(app: &App, window: (i64, i64), key: &str, list: Vec<String>) -> Value {
    let coverage = app.engine.gaps(window.0, window.1);
    json!({ key: list, "partial": coverage.partial, "problems": coverage.problems })
}

fn optional_type(
    app: &App,
    params: &Params,
    selector: &crate::query::selector::Selector,
    window: (i64, i64),
) -> Result<Option<String>, ApiError> {
    let text = params.get("type");
    let resolve = |text| app.engine.resolve_type(text, selector, window.0, window.1);
    Ok(text.map(resolve).transpose()?)
}

/// `GET /api/v1/series`.
pub async fn series(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = params.selection(app)?;
        let step_ns = params.step_ns(selection.until_ns - selection.from_ns)?;
        let (lines, coverage) = app
            .engine
            .series(&selection, step_ns, params.get("by"), cancel)?;
        Ok(Json(json!({
            "type": selection.type_id,
            "unit": unit(&selection.type_id),
            "step_ms": step_ns / 1_000_000,
            "series": lines,
            "superseded": coverage.superseded,
            "partial": coverage.partial,
            "problems": coverage.problems,
        })))
    })
    .await
}

/// Third field of a profile type id.
pub fn unit(type_id: &str) -> &str {
    type_id.split(':').nth(2).unwrap_or_default()
}

/// `GET /api/v1/pprof`.
pub async fn pprof(State(app): State<Arc<App>>, params: Params) -> Result<Response, ApiError> {
    run(&app, move |app, cancel| {
        let selection = params.selection(app)?;
        let (profile, coverage) = app.engine.pprof(&selection, cancel)?;
        Ok(pprof_response(profile, &coverage))
    })
    .await
}

/// A profile as gzipped pprof.
pub(super) fn pprof_response(profile: Profile, coverage: &Coverage) -> Response {
    let bytes = OfBytes(profile.to_pprof().into());
    // Before anything is zipped.
    drop(profile);
    let mut response = Response::new(stream::body(bytes, true));
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"pilotlight.pb.gz\"",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, axum::http::HeaderValue::from_static(value));
    }
    // pprof has no field for it besides comments; a script reads the header.
    headers.insert("x-pilotlight-partial", i32::from(coverage.partial).into());
    response
}
