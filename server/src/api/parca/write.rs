//! `ProfileStoreService/WriteRaw`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use pilotlight_profile::{Mode, decode};

use super::super::intake::{self, Notes};
use super::super::pyroscope::{connect, proto as pyroscope, push};
use super::super::{ApiError, App};
use super::proto::{Empty, RawSeries, WriteRawRequest};
use crate::ingest::writer::Ticket;

/// Takes all profiles of a request; answers when they are durable.
pub async fn write_raw(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::ingest(app, request, |app, request: WriteRawRequest| async move {
        let result = store(&app, request).await;
        result.inspect_err(|error| intake::count_refusal(&app, error))
    })
    .await
}

async fn store(app: &Arc<App>, request: WriteRawRequest) -> Result<Empty, ApiError> {
    let work = move |app: &App| {
        let mut results = Vec::new();
        for series in &request.series {
            for sample in &series.samples {
                results.push(take(app, series, &sample.raw_profile, request.normalized));
            }
        }
        results
    };
    let (stored, fault) = intake::several(app, work).await?;
    match fault {
        None if stored == 0 => Err(ApiError::bad("there is no profile in this write")),
        None => Ok(Empty {}),
        Some(error) => {
            let message = format!("{} ({stored} others are stored)", error.message);
            Err(ApiError { message, ..error })
        }
    }
}

fn take(
    app: &App,
    series: &RawSeries,
    body: &[u8],
    normalized: bool,
) -> Result<(Ticket, Notes), ApiError> {
    let labels = series.labels.clone().unwrap_or_default().labels;
    let samples = Vec::new();
    let offer = push::offer(app, &pyroscope::RawSeries { labels, samples }, "")?;
    if !normalized {
        return intake::take_pprof(app, &offer, body);
    }
    intake::admit_series(app, &offer)?;
    let decoded = decode(body, Mode::Tolerant, &app.limits);
    let mut decoded = decoded.map_err(|error| intake::refused(&error))?;
    for mapping in &mut decoded.profile.mappings {
        // The load address is subtracted: these ranges are not where the addresses are.
        (mapping.start, mapping.limit, mapping.offset) = (0, 0, 0);
    }
    intake::store(app, &offer, decoded.profile, decoded.report, body)
}
