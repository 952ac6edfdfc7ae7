//! `POST /api/v1/push`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::intake::{self, Offer};
use super::params::Params;
use super::{ApiError, App};
use crate::ingest::series;

/// Takes a profile; answers when it is durable.
pub async fn push(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    params: Params,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let result = accept(&app, &headers, &params, body).await;
    result.inspect_err(|error| intake::count_refusal(&app, error))
}

async fn accept(
    app: &Arc<App>,
    headers: &HeaderMap,
    params: &Params,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let offer = request(app, headers, params)?;
    let (bytes, budget) = intake::body(app, headers, body).await?;
    let take = move |app: &App| intake::take_pprof(app, &offer, &bytes);
    let (mut ticket, notes) = intake::decoding(app, take).await?;
    intake::durable(&mut ticket).await?;
    drop(budget);
    Ok(Json(intake::answer(&app.engine.metrics, &ticket, &notes)))
}

fn request(app: &App, headers: &HeaderMap, params: &Params) -> Result<Offer, ApiError> {
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
    let series = series.map_err(|error| intake::bad_series(&error))?;
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
    Ok(Offer {
        series,
        from_ns,
        until_ns,
        request_id,
        received_ns,
    })
}
