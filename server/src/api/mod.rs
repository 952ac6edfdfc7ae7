//! The HTTP API: one file an endpoint, and what they share.

mod debuginfo;
mod debuginfod;
mod detail;
mod diff;
mod error;
pub mod fair;
mod gopprof;
mod grpc_web;
mod guard;
mod intake;
mod live;
mod openapi;
mod otlp;
mod params;
mod parca;
mod push;
mod pyroscope;
mod read;
mod run;
pub mod status;
mod stream;
mod tree;
mod ui;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use axum::routing::{get, post};
use pilotlight_profile::Limits;
use tokio::sync::Semaphore;

use crate::config::Provider;
use crate::env::Env;
use crate::ingest::policy::Policy;
use crate::ingest::writer::Writer;
use crate::query::engine::{Engine, QueryLimits};
use crate::store::recover::Progress;

pub use error::ApiError;
pub(crate) use parca::any as parca_any;
pub(crate) use pyroscope::ingest::any as ingest_any;

/// What the endpoints work on.
pub struct App {
    /// Reads.
    pub engine: Engine,
    /// Writes.
    pub writer: Arc<Writer>,
    /// What is taken and what is thinned out.
    pub policy: Policy,
    /// How far the start is.
    pub progress: Progress,
    /// Set when the server ends: answers without an end of their own end then.
    pub stopping: Arc<AtomicBool>,
    /// Time.
    pub env: Arc<dyn Env>,
    /// Of pushed profiles.
    pub limits: Limits,
    /// KiB that pushes may hold together.
    pub budget: Arc<Semaphore>,
    /// All of them.
    pub budget_kib: u32,
    /// Profiles decoded at a time.
    pub decoders: Arc<Semaphore>,
    /// Queries run at a time.
    pub queries: Arc<fair::Fair>,
    /// What each of them may take.
    pub query_limits: Arc<QueryLimits>,
    /// See `Config`.
    pub targets: Option<Provider>,
    /// See `Config`.
    pub extra_metrics: Option<Provider>,
    /// Whether requests must name a loopback host.
    pub guard_host: bool,
}

/// All routes.
pub fn router(app: Arc<App>, extra: Option<Router>) -> Router {
    let api = Router::new()
        .route("/api/v1/push", post(push::push))
        .route("/v1development/profiles", post(otlp::http))
        .route(
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
            post(otlp::grpc),
        )
        .route("/api/v1/types", get(read::types))
        .route("/api/v1/labels", get(read::label_names))
        .route("/api/v1/labels/{name}/values", get(read::label_values))
        .route("/api/v1/tree", get(tree::binary))
        .route("/api/v1/tree.json", get(tree::json))
        .route("/api/v1/top", get(tree::top))
        .route("/api/v1/diff", get(diff::binary))
        .route("/api/v1/diff.json", get(diff::json))
        .route("/api/v1/diff/top", get(diff::top))
        .route("/api/v1/function", get(detail::function))
        .route("/api/v1/heatmap", get(detail::heatmap))
        .route("/api/v1/exemplars", get(detail::exemplars))
        .route("/api/v1/depth", get(diff::depth))
        .route("/api/v1/series", get(read::series))
        .route("/api/v1/pprof", get(read::pprof))
        .route("/api/v1/live", get(live::live))
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .route("/api/v1/targets", get(status::targets))
        .route("/api/v1/status", get(status::status))
        .route(
            "/api/{*path}",
            get(error::no_such_endpoint).post(error::no_such_endpoint),
        )
        .merge(debuginfo::router())
        .merge(debuginfod::router())
        .merge(parca::router())
        .merge(pyroscope::router())
        .route("/symbol", get(gopprof::symbol).post(gopprof::symbol))
        .route("/pprof/symbol", get(gopprof::symbol).post(gopprof::symbol))
        .route("/metrics", get(status::metrics))
        .route("/ready", get(status::ready))
        .route("/readyz", get(status::ready))
        .route("/healthz", get(status::healthy))
        .fallback(ui::asset)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app.clone());
    let all = match extra {
        Some(extra) => api.merge(extra),
        None => api.route(
            "/debug/pprof/symbol",
            get(gopprof::symbol).post(gopprof::symbol),
        ),
    };
    let select = axum::middleware::from_fn_with_state(app.clone(), gopprof::select);
    all.layer(select)
        .layer(axum::middleware::from_fn(run::caller))
        .layer(axum::middleware::from_fn_with_state(app, guard::check))
}
