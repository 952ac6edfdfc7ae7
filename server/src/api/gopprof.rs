//! Selections where `go tool pprof` looks for profiles: `/debug/pprof/TYPE?query=SELECTOR`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::params::Params;
use super::read::pprof_response;
use super::run::run;
use super::{ApiError, App};
use crate::query::engine::{QueryError, Selection, TypeInfo};
use crate::query::selector::Selector;

const PREFIX: &str = "/debug/pprof/";

/// Takes the requests that name a selection; all others, such as for the server's own profile, pass.
pub async fn select(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let kind = request.uri().path().strip_prefix(PREFIX);
    let selects = request.uri().query().is_some_and(|query| {
        let mut pairs = query.split('&');
        pairs.any(|pair| pair.starts_with("query=") || pair.starts_with("q="))
    });
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let Some(kind) = kind.filter(|kind| selects && reads && *kind != "symbol") else {
        return next.run(request).await;
    };
    let kind = kind.replace("%3A", ":").replace("%3a", ":");
    let (mut parts, _) = request.into_parts();
    let answer = match Params::from_request_parts(&mut parts, &()).await {
        Ok(params) => profile(app, kind, params).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| shown(&error))
}

async fn profile(app: Arc<App>, kind: String, params: Params) -> Result<Response, ApiError> {
    run(&app, move |app, cancel| {
        let (from_ns, until_ns) = params.last_seconds(app.env.now_ns())?;
        let selector = match params.get("query") {
            Some(_) => params.selector_named("query", "{}")?,
            None => params.selector()?,
        };
        let types = app.engine.types(&selector, from_ns, until_ns);
        let (ids, default) = match columns(&types, &kind) {
            Some(found) => found,
            None => {
                let name = if kind == "profile" { "cpu" } else { &kind };
                let id = resolve(app, name, &selector, (from_ns, until_ns))?;
                (vec![id], String::new())
            }
        };
        let sample_labels = params.sample_labels()?;
        let of = |type_id| Selection {
            type_id,
            selector: selector.clone(),
            from_ns,
            until_ns,
            sample_labels: sample_labels.clone(),
        };
        let columns: Vec<Selection> = ids.into_iter().map(of).collect();
        let (profile, coverage) = app.engine.pprof_columns(&columns, &default, cancel)?;
        Ok(pprof_response(profile, &coverage))
    })
    .await
}

fn resolve(
    app: &App,
    name: &str,
    selector: &Selector,
    window: (i64, i64),
) -> Result<String, QueryError> {
    app.engine.resolve_type(name, selector, window.0, window.1)
}

/// The types that a path such as Go's `heap` means, and the one to show first: all columns of a
/// profile name, where only one profile in the window is called so.
fn columns(types: &[TypeInfo], kind: &str) -> Option<(Vec<String>, String)> {
    let (name, first) = match kind {
        "profile" => ("process_cpu", "cpu"),
        "heap" => ("memory", "inuse_space"),
        "allocs" => ("memory", "alloc_space"),
        other => (other, ""),
    };
    let fits: Vec<&TypeInfo> = types.iter().filter(|info| info.name == name).collect();
    let one = fits.first()?;
    let period = |info: &TypeInfo| (info.period_type.clone(), info.period_unit.clone());
    if fits.iter().any(|info| period(info) != period(one)) {
        return None;
    }
    // Counts stand beside the value that people look for.
    let shown = fits.iter().find(|info| info.sample_type == first);
    let shown = shown.or_else(|| fits.iter().find(|info| info.sample_unit != "count"));
    let default = shown.map_or(String::new(), |info| info.sample_type.clone());
    Some((fits.iter().map(|info| info.id.clone()).collect(), default))
}

/// `go tool pprof` prints an error's text only when it is plain and carries this header.
fn shown(error: &ApiError) -> Response {
    let body = format!("{}\n", error.message);
    let mut response = (error.status, body).into_response();
    let headers = response.headers_mut();
    headers.insert("x-go-pprof", HeaderValue::from_static("1"));
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// `/symbol`: names of addresses. A selection has lines on all its locations, so that nothing is
/// left to ask here; and an address alone does not say of which binary it is. The answer has the
/// protocol's form and names nothing, since the whole command fails without one.
pub async fn symbol() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (StatusCode::OK, kind, "num_symbols: 1\n").into_response()
}
