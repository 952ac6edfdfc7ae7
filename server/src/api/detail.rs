//! What sums alone do not say: a function over time, sizes, spans, and what has no name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::params::Params;
use super::read::unit;
use super::run::run;
use super::{ApiError, App};
use crate::query::engine::{Coverage, Selection};
use crate::query::heatmap::Of;
use crate::query::over_time::Wanted;

/// What every answer here says of its selection.
fn about(selection: &Selection, coverage: &Coverage) -> Value {
    json!({
        "type": selection.type_id,
        "unit": unit(&selection.type_id),
        "from_ms": selection.from_ns / 1_000_000,
        "until_ms": selection.until_ns / 1_000_000,
        "profiles": coverage.profiles,
        "samples": coverage.samples,
        "superseded": coverage.superseded,
        "partial": coverage.partial,
        "problems": coverage.problems,
    })
}

/// A regex may take so much when it is compiled; as of selectors.
const REGEX_BYTES: usize = 1 << 20;

fn wanted(params: &Params) -> Result<Wanted, ApiError> {
    match (params.get("function"), params.get("matching")) {
        (Some(name), None) => Ok(Wanted::Name(name.as_bytes().to_vec())),
        (None, Some(pattern)) => regex::bytes::RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES)
            .build()
            .map(Wanted::Matching)
            .map_err(|error| ApiError::bad(format!("parameter matching: {error}"))),
        _ => Err(ApiError::bad(
            "which function is missing: give one of function (a whole name, as in \
             /api/v1/top) and matching (a regex found anywhere in the name)",
        )),
    }
}

/// `GET /api/v1/function`.
pub async fn function(
    State(app): State<Arc<App>>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = params.selection(app)?;
        let step_ns = params.step_ns(selection.until_ns - selection.from_ns)?;
        let engine = &app.engine;
        let wanted = wanted(&params)?;
        let (points, coverage) = engine.function_over_time(&selection, &wanted, step_ns, cancel)?;
        let mut answer = about(&selection, &coverage);
        answer["step_ms"] = (step_ns / 1_000_000).into();
        answer["points"] = json!(points);
        Ok(Json(answer))
    })
    .await
}

/// `GET /api/v1/heatmap`.
pub async fn heatmap(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = params.selection(app)?;
        let step_ns = params.step_ns(selection.until_ns - selection.from_ns)?;
        let of = match params.get("of") {
            None | Some("samples") => Of::Samples,
            Some("profiles") => Of::Profiles,
            Some(other) => {
                let message = format!("parameter of: {other} is neither samples nor profiles");
                return Err(ApiError::bad(message));
            }
        };
        if of == Of::Profiles && selection.sample_labels.is_some() {
            return Err(ApiError::bad(
                "of=profiles counts whole profiles, which labels of samples cannot cut; \
                 leave labels out, or ask of=samples",
            ));
        }
        let (fields, coverage) = app.engine.heatmap(&selection, of, step_ns, cancel)?;
        let mut answer = about(&selection, &coverage);
        answer["step_ms"] = (step_ns / 1_000_000).into();
        answer["fields"] = json!(fields);
        Ok(Json(answer))
    })
    .await
}

/// `GET /api/v1/exemplars`.
pub async fn exemplars(
    State(app): State<Arc<App>>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let limit = params.number("limit", 1, 10_000, 100)?;
        let selection = params.selection(app)?;
        let (exemplars, coverage) = app.engine.exemplars(&selection, limit, cancel)?;
        let mut answer = about(&selection, &coverage);
        answer["exemplars"] = json!(exemplars);
        Ok(Json(answer))
    })
    .await
}
