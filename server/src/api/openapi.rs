//! The OpenAPI document of `/api/v1`, from one table; a test holds the table against the routes
//! and parameters in the sources, so that neither is without the other.

use axum::Json;
use serde_json::{Map, Value, json};

/// One operation.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Names in [`PARAMETERS`].
    parameters: &'static [&'static str],
    /// Content type of 200.
    answer: &'static str,
}

const JSON: &str = "application/json";
const TREE: &str = "application/vnd.pilotlight.tree";

/// What selects series and time.
const WINDOW: [&str; 3] = ["q", "from", "until"];
const SELECTION: [&str; 5] = ["type", "q", "labels", "from", "until"];
const BASE: [&str; 3] = ["base_q", "base_from", "base_until"];

/// (name, JSON type, what it means).
const PARAMETERS: &[(&str, &str, &str)] = &[
    (
        "type",
        "string",
        "Profile type id, or a sample type that only one id has",
    ),
    (
        "q",
        "string",
        "Series selector: {service_name=\"checkout\",pod=~\"a.*\"}",
    ),
    (
        "labels",
        "string",
        "Selector on the samples' own labels: {span_id=\"…\"}",
    ),
    (
        "from",
        "string",
        "now-15m, Unix seconds to nanoseconds, or RFC 3339; default now-1h",
    ),
    ("until", "string", "As from; default now"),
    (
        "base_q",
        "string",
        "The base's q; default that of the selection",
    ),
    (
        "base_from",
        "string",
        "The base's from; default that of the selection",
    ),
    (
        "base_until",
        "string",
        "The base's until; default that of the selection",
    ),
    (
        "max_nodes",
        "integer",
        "Most nodes of a tree; what is cut is counted",
    ),
    ("limit", "integer", "Most rows of the answer"),
    ("step", "string", "Length of a step: 10s, 1m30s"),
    ("by", "string", "Label that splits the lines"),
    ("function", "string", "A function's whole name"),
    (
        "matching",
        "string",
        "Regex found anywhere in a function's name",
    ),
    (
        "of",
        "string",
        "What is sorted by size: samples or profiles",
    ),
    (
        "series",
        "string",
        "Labels of the pushed series: {service_name=\"checkout\"}",
    ),
    ("name", "string", "First field of the profile type"),
    ("offset", "integer", "Bytes of the file that stand already"),
];

/// Parameters of a path that are part of it.
const IN_PATH: &[(&str, &str)] = &[
    ("name", "Name of a label"),
    ("id", "Id of an upload, as its start answered"),
];

const fn get(
    path: &'static str,
    parameters: &'static [&'static str],
    answer: &'static str,
    summary: &'static str,
) -> Operation {
    Operation {
        method: "get",
        path,
        summary,
        parameters,
        answer,
    }
}

const fn post(
    path: &'static str,
    parameters: &'static [&'static str],
    summary: &'static str,
) -> Operation {
    Operation {
        method: "post",
        path,
        summary,
        parameters,
        answer: JSON,
    }
}

const OPERATIONS: &[Operation] = &[
    post(
        "/api/v1/push",
        &["series", "name"],
        "Takes a pprof profile; 200 only when it is durable",
    ),
    get("/api/v1/types", &WINDOW, JSON, "Profile types with data"),
    get(
        "/api/v1/labels",
        &["type", "q", "from", "until"],
        JSON,
        "Names of labels",
    ),
    get(
        "/api/v1/labels/{name}/values",
        &["type", "q", "from", "until"],
        JSON,
        "Values of a label",
    ),
    get(
        "/api/v1/tree",
        &[],
        TREE,
        "The merged flame graph as columns",
    ),
    get("/api/v1/tree.json", &[], JSON, "The same as JSON"),
    get("/api/v1/top", &[], JSON, "Functions by own value"),
    get(
        "/api/v1/diff",
        &[],
        TREE,
        "The selection beside a base on one tree",
    ),
    get("/api/v1/diff.json", &[], JSON, "The same as JSON"),
    get(
        "/api/v1/diff/top",
        &[],
        JSON,
        "Functions by change of share, and whether it is more than chance",
    ),
    get("/api/v1/depth", &SELECTION, JSON, "Value by depth of stack"),
    get("/api/v1/function", &[], JSON, "A function over time"),
    get("/api/v1/heatmap", &[], JSON, "Time by size"),
    get(
        "/api/v1/exemplars",
        &[],
        JSON,
        "The largest samples with a span",
    ),
    get("/api/v1/series", &[], JSON, "Sums over time"),
    get(
        "/api/v1/pprof",
        &SELECTION,
        "application/octet-stream",
        "The selection as gzipped pprof",
    ),
    get(
        "/api/v1/debuginfo",
        &SELECTION,
        JSON,
        "Binaries without names, and why",
    ),
    get(
        "/api/v1/debuginfo/files",
        &[],
        JSON,
        "Stored debug information",
    ),
    post(
        "/api/v1/debuginfo/wanted",
        &[],
        "Which of these files the server wants",
    ),
    post("/api/v1/debuginfo/uploads", &[], "Starts an upload"),
    post(
        "/api/v1/debuginfo/uploads/{id}",
        &["offset"],
        "Bytes of an upload",
    ),
    post(
        "/api/v1/debuginfo/uploads/{id}/finish",
        &[],
        "Ends an upload",
    ),
    get(
        "/api/v1/live",
        &[],
        "text/event-stream",
        "An event profiles whenever profiles were taken",
    ),
    get(
        "/api/v1/targets",
        &[],
        JSON,
        "The scraper's targets in Prometheus' JSON",
    ),
    get("/api/v1/status", &[], JSON, "Counters, recovery, problems"),
    get("/api/v1/openapi.json", &[], JSON, "This document"),
];

/// Parameters beside those in the table: what several operations share.
fn more(path: &str) -> Vec<&'static str> {
    let (selection, base) = (SELECTION.iter(), BASE.iter());
    match path {
        "/api/v1/tree" | "/api/v1/tree.json" => selection.chain(&["max_nodes"]).copied().collect(),
        "/api/v1/top" | "/api/v1/exemplars" => selection.chain(&["limit"]).copied().collect(),
        "/api/v1/diff" | "/api/v1/diff.json" => selection
            .chain(base)
            .chain(&["max_nodes"])
            .copied()
            .collect(),
        "/api/v1/diff/top" => selection.chain(base).chain(&["limit"]).copied().collect(),
        "/api/v1/function" => {
            let more = ["step", "function", "matching"];
            selection.copied().chain(more).collect()
        }
        "/api/v1/heatmap" => selection.chain(&["step", "of"]).copied().collect(),
        "/api/v1/series" => selection.chain(&["step", "by"]).copied().collect(),
        _ => Vec::new(),
    }
}

fn parameter(name: &str) -> Value {
    let known = PARAMETERS.iter().find(|(known, ..)| *known == name);
    let (kind, text) = known.map_or(("string", ""), |(_, kind, text)| (*kind, *text));
    json!({ "name": name, "in": "query", "description": text, "schema": { "type": kind } })
}

fn operation(of: &Operation) -> Value {
    let in_path = IN_PATH
        .iter()
        .filter(|(name, _)| of.path.contains(&format!("{{{name}}}")))
        .map(|(name, text)| {
            json!({
                "name": name, "in": "path", "required": true,
                "description": text, "schema": { "type": "string" },
            })
        });
    let query = of.parameters.iter().copied().chain(more(of.path));
    let parameters: Vec<Value> = in_path.chain(query.map(parameter)).collect();
    let error = json!({ "description": "What, where, and what to do next",
        "content": { JSON: { "schema": { "$ref": "#/components/schemas/Error" } } } });
    let answer = json!({ "description": of.summary, "content": { of.answer: {} } });
    let mut about = json!({
        "summary": of.summary,
        "parameters": parameters,
        "responses": { "200": answer, "4XX": error, "5XX": error },
    });
    if of.method == "post" {
        about["requestBody"] = json!({ "content": { "application/octet-stream": {} } });
    }
    about
}

/// The document.
fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for of in OPERATIONS {
        let path = paths.entry(of.path).or_insert_with(|| json!({}));
        path[of.method] = operation(of);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "pilotlight",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Continuous profiling: queries of the store. In words: docs/api.md",
        },
        "paths": paths,
        "components": { "schemas": { "Error": {
            "type": "object",
            "required": ["error"],
            "properties": { "error": { "type": "string" } },
        } } },
    })
}

/// `GET /api/v1/openapi.json`.
pub async fn openapi() -> Json<Value> {
    Json(document())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use regex::Regex;

    use super::*;

    fn sources() -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let rust = files.filter(|path| path.is_file() && !path.ends_with("openapi.rs"));
        rust.map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }

    #[test]
    fn every_route_has_an_entry_and_every_entry_a_route() {
        let route = Regex::new(r#"\.route\(\s*"(/api/v1/[^"]*)""#).unwrap();
        let sources = sources();
        let routed: BTreeSet<&str> = route
            .captures_iter(&sources)
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        let listed: BTreeSet<&str> = OPERATIONS.iter().map(|of| of.path).collect();
        assert_eq!(
            routed, listed,
            "routes on the left, openapi.rs on the right"
        );
    }

    #[test]
    fn every_parameter_that_is_read_is_described_and_used() {
        let read =
            Regex::new(r#"(?:params|self)\s*\.(?:get|number|time|selector_named)\(\s*"([a-z_]+)""#)
                .unwrap();
        let sources = sources();
        let mut names: BTreeSet<&str> = read
            .captures_iter(&sources)
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        // Of `/debug/pprof/…`, which is go tool pprof's contract and no part of this one.
        names.remove("query");
        names.remove("seconds");
        let described: BTreeSet<&str> = PARAMETERS.iter().map(|(name, ..)| *name).collect();
        let used: BTreeSet<&str> = OPERATIONS
            .iter()
            .flat_map(|of| of.parameters.iter().copied().chain(more(of.path)))
            .collect();
        assert_eq!(used, described);
        let missing: Vec<_> = names.difference(&described).collect();
        assert!(missing.is_empty(), "not in openapi.rs: {missing:?}");
    }
}
