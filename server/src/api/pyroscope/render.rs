//! `/pyroscope/render` and what stands beside it: Flamebearer JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::params::Params;
use super::super::run::run;
use super::super::tree::{MOST_NODES, merged};
use super::super::{ApiError, App};
use super::{flame, querier, select};
use crate::query::engine::Selection;
use crate::query::series::default_step;

const DEFAULT_NODES: usize = 8192;

fn nodes(params: &Params) -> Result<usize, ApiError> {
    let name = ["maxNodes", "max-nodes"]
        .into_iter()
        .find(|name| params.get(name).is_some());
    params.number(name.unwrap_or("maxNodes"), 1, MOST_NODES, DEFAULT_NODES)
}

fn selection(
    app: &App,
    params: &Params,
    [query, from, until]: [&str; 3],
) -> Result<Selection, ApiError> {
    const HOUR: i64 = 3_600_000_000_000;
    let text = params
        .get(query)
        .ok_or_else(|| ApiError::bad(format!("parameter {query} is missing")))?;
    let (type_id, selector) = select::query(text)?;
    let now_ns = app.env.now_ns();
    let until_ns = params.time(until, now_ns, now_ns)?;
    let from_ns = params.time(from, now_ns, until_ns.saturating_sub(HOUR))?;
    if from_ns > until_ns {
        return Err(ApiError::bad(format!("{from} is after {until}")));
    }
    let spans = params.get("spanSelector").unwrap_or("");
    let spans: Vec<&str> = spans.split(',').filter(|span| !span.is_empty()).collect();
    Ok(Selection {
        type_id,
        selector,
        from_ns,
        until_ns: until_ns.saturating_add(1),
        sample_labels: select::spans(&spans)?,
    })
}

/// What readers make of the numbers.
fn metadata(type_id: &str, format: &str) -> Value {
    let mut fields = type_id.split(':').skip(1);
    let (name, unit) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
    let (units, rate) = match unit {
        "nanoseconds" => ("samples", 1_000_000_000),
        "bytes" => ("bytes", 0),
        _ => ("objects", 0),
    };
    json!({
        "format": format, "spyName": "", "sampleRate": rate, "units": units, "name": name,
    })
}

/// One selection with its timeline.
pub async fn render(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = selection(app, &params, ["query", "from", "until"])?;
        let (names, coverage) = merged(app, &selection, cancel)?;
        let graph = flame::single(&names.finish(nodes(&params)?));
        let window_ns = selection.until_ns.saturating_sub(selection.from_ns);
        let step_ns = default_step(window_ns);
        let (lines, _) = app.engine.series(&selection, step_ns, None, cancel)?;
        let start = selection.from_ns.div_euclid(step_ns) * step_ns;
        let count = ((selection.until_ns - start) / step_ns).clamp(0, 11_000) as usize;
        let mut samples = vec![0_i64; count];
        for (at_ms, value) in lines.iter().flat_map(|line| &line.points) {
            let at = (at_ms * 1_000_000 - start).div_euclid(step_ns);
            if let Some(slot) = usize::try_from(at).ok().and_then(|at| samples.get_mut(at)) {
                *slot = *value;
            }
        }
        let levels: Vec<_> = graph.levels.iter().map(|level| &level.values).collect();
        Ok(Json(json!({
            "version": 1,
            "flamebearer": {
                "names": graph.names, "levels": levels,
                "numTicks": graph.total, "maxSelf": graph.max_self,
            },
            "metadata": metadata(&selection.type_id, "single"),
            "timeline": {
                "startTime": start / 1_000_000_000, "samples": samples,
                "durationDelta": step_ns / 1_000_000_000, "watermarks": null,
            },
            "groups": null,
            "heatmap": null,
            "partial": coverage.partial,
        })))
    })
    .await
}

/// Two selections.
pub async fn render_diff(
    State(app): State<Arc<App>>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let left = selection(app, &params, ["leftQuery", "leftFrom", "leftUntil"])?;
        let right = selection(app, &params, ["rightQuery", "rightFrom", "rightUntil"])?;
        if left.type_id != right.type_id {
            return Err(ApiError::bad(
                "leftQuery and rightQuery must be of one profile type",
            ));
        }
        let tree = querier::difference(app, cancel, &left, &right, nodes(&params)?)?;
        let graph = flame::double(&tree);
        let levels: Vec<_> = graph.levels.iter().map(|level| &level.values).collect();
        Ok(Json(json!({
            "version": 1,
            "flamebearer": {
                "names": graph.names, "levels": levels,
                "numTicks": graph.total, "maxSelf": graph.max_self,
            },
            "metadata": metadata(&left.type_id, "double"),
            "timeline": null,
            "groups": null,
            "heatmap": null,
            "leftTicks": graph.left_ticks,
            "rightTicks": graph.right_ticks,
        })))
    })
    .await
}

/// Values of a label, as a list.
pub async fn label_values(
    State(app): State<Arc<App>>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, _| {
        let label = params
            .get("label")
            .ok_or_else(|| ApiError::bad("parameter label is missing"))?;
        let values = querier::values(app, label, &[], (i64::MIN, i64::MAX))?;
        Ok(Json(json!(values)))
    })
    .await
}
