//! Flame graph and table of functions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::params::Params;
use super::read::unit;
use super::run::run;
use super::stream::{self, OfTree};
use super::{ApiError, App};
use crate::query::engine::{Cancel, Coverage, QueryError, Selection};
use crate::query::merge::NameTree;
use crate::query::read::Want;
use crate::query::tree::Tree;

/// Nodes of a tree where the request does not say; a browser draws so many.
pub(super) const DEFAULT_NODES: usize = 1_000_000;
pub(super) const MOST_NODES: usize = 4_000_000;

pub(super) fn merged(
    app: &App,
    selection: &Selection,
    cancel: &Cancel,
) -> Result<(NameTree, Coverage), QueryError> {
    app.engine
        .gather(selection, Want::Stacks, cancel, NameTree::default)
}

fn build(app: &App, params: &Params, cancel: &Cancel) -> Result<(Value, Tree), ApiError> {
    let max_nodes = params.number("max_nodes", 1, MOST_NODES, DEFAULT_NODES)?;
    let selection = params.selection(app)?;
    let (names, coverage) = merged(app, &selection, cancel)?;
    let tree = names.finish(max_nodes);
    let meta = json!({
        "type": selection.type_id,
        "unit": unit(&selection.type_id),
        "from_ms": selection.from_ns / 1_000_000,
        "until_ms": selection.until_ns / 1_000_000,
        "total": tree.total,
        "profiles": coverage.profiles,
        "samples": coverage.samples,
        "partial": coverage.partial,
        "problems": coverage.problems,
        "superseded": coverage.superseded,
        "unknown": names.unknown,
        "truncated": names.truncated,
        "cut_nodes": tree.cut_nodes,
        "cut_value": tree.cut_value,
    });
    Ok((meta, tree))
}

/// `GET /api/v1/tree`.
pub async fn binary(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    let gzip = accepts_gzip(&headers);
    run(&app, move |app, cancel| {
        let (meta, tree) = build(app, &params, cancel)?;
        Ok(bytes_response(tree, &meta, gzip))
    })
    .await
}

/// The tree as `application/vnd.pilotlight.tree`.
pub(super) fn bytes_response(tree: Tree, meta: &Value, gzip: bool) -> Response {
    let source = OfTree::new(tree, meta.to_string().into_bytes());
    let mut response = Response::new(stream::body(source, gzip));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/vnd.pilotlight.tree"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Written straight from the columns: as `Value`s a large tree would take ten times its size.
#[derive(Serialize)]
struct TreeJson {
    meta: Value,
    names: Vec<String>,
    depth: Vec<u32>,
    name: Vec<u32>,
    #[serde(rename = "self")]
    self_value: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    base_self: Vec<i64>,
}

/// The tree as JSON.
pub(super) fn json_response(meta: Value, tree: Tree) -> Response {
    let Tree {
        names,
        depth,
        name,
        self_value,
        base_self,
        ..
    } = tree;
    Json(TreeJson {
        meta,
        names,
        depth,
        name,
        self_value,
        base_self,
    })
    .into_response()
}

/// `GET /api/v1/tree.json`.
pub async fn json(State(app): State<Arc<App>>, params: Params) -> Result<Response, ApiError> {
    run(&app, move |app, cancel| {
        let (meta, tree) = build(app, &params, cancel)?;
        Ok(json_response(meta, tree))
    })
    .await
}

/// `GET /api/v1/top`.
pub async fn top(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let limit = params.number("limit", 1, usize::MAX, usize::MAX)?;
        let selection = params.selection(app)?;
        let (names, coverage) = merged(app, &selection, cancel)?;
        let mut rows = names.top();
        let functions = rows.len();
        rows.truncate(limit);
        Ok(Json(json!({
            "type": selection.type_id,
            "total": names.total(),
            "unit": unit(&selection.type_id),
            "functions": functions,
            "rows": rows,
            "profiles": coverage.profiles,
            "samples": coverage.samples,
            "superseded": coverage.superseded,
            "unknown": names.unknown,
            "truncated": names.truncated,
            "partial": coverage.partial,
            "problems": coverage.problems,
        })))
    })
    .await
}

/// Whether the client takes gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| v.split(','));
    codings.any(|coding| {
        let mut words = coding.split(';').map(str::trim);
        let name = words.next().unwrap_or_default();
        let refused = words.any(|word| word == "q=0" || word == "q=0.0");
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !refused
    })
}
