//! Two selections beside each other, and the depths of one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::params::Params;
use super::read::unit;
use super::run::run;
use super::tree::{self, DEFAULT_NODES, MOST_NODES, merged};
use super::{ApiError, App};
use crate::query::diff::{Diff, Events};
use crate::query::engine::{Cancel, Coverage, QueryError, Selection};

/// Both sides of a request.
struct Sides {
    current: Selection,
    base: Selection,
    diff: Diff,
    coverage: [Coverage; 2],
}

/// The base is the selection with what `base_q`, `base_from` and `base_until` say instead.
fn sides(app: &App, params: &Params, cancel: &Cancel) -> Result<Sides, ApiError> {
    let current = params.selection(app)?;
    let base = params.base(app, &current)?;
    let (tree, coverage) = merged(app, &current, cancel)?;
    let (base_tree, base_coverage) = merged(app, &base, cancel)?;
    Ok(Sides {
        diff: Diff::new(tree, &base_tree),
        current,
        base,
        coverage: [coverage, base_coverage],
    })
}

impl Sides {
    fn meta(&self) -> Value {
        let (total, base_total) = self.diff.totals();
        let [coverage, base_coverage] = &self.coverage;
        let problems: Vec<_> = coverage
            .problems
            .iter()
            .chain(&base_coverage.problems)
            .collect();
        json!({
            "type": self.current.type_id,
            "unit": unit(&self.current.type_id),
            "from_ms": self.current.from_ns / 1_000_000,
            "until_ms": self.current.until_ns / 1_000_000,
            "base_from_ms": self.base.from_ns / 1_000_000,
            "base_until_ms": self.base.until_ns / 1_000_000,
            "total": total,
            "base_total": base_total,
            "profiles": coverage.profiles,
            "base_profiles": base_coverage.profiles,
            "samples": coverage.samples,
            "base_samples": base_coverage.samples,
            "partial": coverage.partial || base_coverage.partial,
            "problems": problems,
        })
    }

    fn events(&self, app: &App, cancel: &Cancel) -> Result<Events, QueryError> {
        Ok(Events {
            current: events(app, &self.current, &self.coverage[0], cancel)?,
            base: events(app, &self.base, &self.coverage[1], cancel)?,
        })
    }

    fn tree(
        &self,
        app: &App,
        params: &Params,
        cancel: &Cancel,
    ) -> Result<(Value, crate::query::tree::Tree), ApiError> {
        let max_nodes = params.number("max_nodes", 1, MOST_NODES, DEFAULT_NODES)?;
        let tree = self.diff.finish(max_nodes);
        let mut meta = self.meta();
        let events = self.events(app, cancel)?;
        meta["events"] = events.current.into();
        meta["base_events"] = events.base.into();
        meta["cut_nodes"] = tree.cut_nodes.into();
        meta["cut_value"] = tree.cut_value.into();
        Ok((meta, tree))
    }
}

/// `GET /api/v1/diff`.
pub async fn binary(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    let gzip = tree::accepts_gzip(&headers);
    run(&app, move |app, cancel| {
        let (meta, tree) = sides(app, &params, cancel)?.tree(app, &params, cancel)?;
        Ok(tree::bytes_response(tree, &meta, gzip))
    })
    .await
}

/// `GET /api/v1/diff.json`.
pub async fn json(State(app): State<Arc<App>>, params: Params) -> Result<Response, ApiError> {
    run(&app, move |app, cancel| {
        let (meta, tree) = sides(app, &params, cancel)?.tree(app, &params, cancel)?;
        Ok(tree::json_response(meta, tree))
    })
    .await
}

/// `GET /api/v1/diff/top`.
pub async fn top(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let limit = params.number("limit", 1, usize::MAX, usize::MAX)?;
        let sides = sides(app, &params, cancel)?;
        let events = sides.events(app, cancel)?;
        let mut rows = sides.diff.top(events);
        let mut answer = sides.meta();
        answer["events"] = events.current.into();
        answer["base_events"] = events.base.into();
        answer["functions"] = rows.len().into();
        rows.truncate(limit);
        answer["rows"] = serde_json::to_value(rows).unwrap_or_default();
        Ok(Json(answer))
    })
    .await
}

/// How many events the sender counted: the values themselves when they are counts, the column
/// `samples` that stands beside them when there is one, and otherwise the stored samples, which are
/// fewer, so that chance is rather over- than underrated.
fn events(
    app: &App,
    selection: &Selection,
    coverage: &Coverage,
    cancel: &Cancel,
) -> Result<u64, QueryError> {
    let engine = &app.engine;
    let fields: Vec<&str> = selection.type_id.split(':').collect();
    let [name, _, unit, period_type, period_unit] = fields[..] else {
        return Ok(coverage.samples);
    };
    let counted = if unit == "count" {
        Some(selection.type_id.clone())
    } else {
        let types = engine.types(&selection.selector, selection.from_ns, selection.until_ns);
        let id = format!("{name}:samples:count:{period_type}:{period_unit}");
        types.into_iter().any(|info| info.id == id).then_some(id)
    };
    let Some(type_id) = counted else {
        return Ok(coverage.samples);
    };
    let selection = Selection {
        type_id,
        ..selection.clone()
    };
    if selection.sample_labels.is_some() {
        let window_ns = selection.until_ns.saturating_sub(selection.from_ns);
        let (lines, _) = engine.series(&selection, window_ns.max(1_000_000), None, cancel)?;
        let points = lines.iter().flat_map(|line| &line.points);
        return Ok(points
            .map(|(_, sum)| u64::try_from(*sum).unwrap_or(0))
            .sum());
    }
    let mut sum = 0_u64;
    engine.walk_totals(&selection, cancel, |_, _, total| {
        sum = sum.saturating_add(u64::try_from(total).unwrap_or(0));
    })?;
    Ok(sum)
}

/// `GET /api/v1/depth`.
pub async fn depth(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = params.selection(app)?;
        let (names, coverage) = merged(app, &selection, cancel)?;
        Ok(Json(json!({
            "type": selection.type_id,
            "unit": unit(&selection.type_id),
            "total": names.total(),
            "depths": names.by_depth(),
            "unknown": names.unknown,
            "truncated": names.truncated,
            "partial": coverage.partial,
            "problems": coverage.problems,
        })))
    })
    .await
}
