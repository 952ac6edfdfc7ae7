//! `push.v1.PusherService/Push`: several series with several profiles each.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::super::intake::{self, Offer};
use super::super::{ApiError, App};
use super::connect;
use super::proto::{Empty, PushRequest, RawSeries};
use crate::ingest::series;

/// Takes all profiles of a request; answers when they are durable.
pub async fn push(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::ingest(app, request, |app, request: PushRequest| async move {
        let result = store(&app, request).await;
        result.inspect_err(|error| intake::count_refusal(&app, error))
    })
    .await
}

async fn store(app: &Arc<App>, request: PushRequest) -> Result<Empty, ApiError> {
    if request
        .series
        .iter()
        .all(|series| series.samples.is_empty())
    {
        return Err(ApiError::bad("there is no profile in this push"));
    }
    let work = move |app: &App| {
        let mut results = Vec::new();
        for series in &request.series {
            for sample in &series.samples {
                let offer = offer(app, series, &sample.id);
                results.push(
                    offer.and_then(|offer| intake::take_pprof(app, &offer, &sample.raw_profile)),
                );
            }
        }
        results
    };
    let (stored, fault) = intake::several(app, work).await?;
    match fault {
        None => Ok(Empty {}),
        Some(error) => {
            let message = format!(
                "{} ({} other profiles of this push are stored)",
                error.message, stored
            );
            Err(ApiError { message, ..error })
        }
    }
}

/// Whose a profile is.
///
/// # Errors
/// When labels are missing or too many.
pub fn offer(app: &App, series: &RawSeries, id: &str) -> Result<Offer, ApiError> {
    let mut name = String::new();
    let mut labels = Vec::new();
    for pair in &series.labels {
        match pair.name.as_str() {
            "__name__" => name.clone_from(&pair.value),
            // Marks of Pyroscope's own: sessions differ at every start, the others say nothing here.
            "__session_id__" | "__delta__" | "__otel__" => {}
            label => labels.push((label.to_owned(), pair.value.clone())),
        }
    }
    if name.is_empty() {
        let message = "label __name__ is missing: the name of the profile, such as process_cpu";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
    }
    labels.sort();
    if let Some(twice) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(ApiError::bad(format!("label {} stands twice", twice[0].0)));
    }
    let series = series::checked(labels, name, app.policy.labels())
        .map_err(|error| intake::bad_series(&error))?;
    Ok(Offer {
        series,
        from_ns: None,
        until_ns: None,
        request_id: (!id.is_empty()).then(|| id.as_bytes().to_vec()),
        received_ns: app.env.now_ns(),
    })
}
