//! Pyroscope's API, so that its clients push here and Grafana's data source asks here: `/ingest`,
//! `push.v1`, `querier.v1`, `/pyroscope/render` and what belongs to it. Times of `querier.v1` are Unix
//! milliseconds, both ends inclusive.

pub mod connect;
mod flame;
mod heatmap;
pub mod ingest;
pub mod proto;
pub mod push;
mod querier;
mod render;
mod select;
mod spans;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::App;

/// Routes of this protocol.
pub fn router() -> Router<Arc<App>> {
    let querier = |method: &str| format!("/querier.v1.QuerierService/{method}");
    Router::new()
        .route("/ingest", post(ingest::ingest))
        .route("/pyroscope/ingest", post(ingest::ingest))
        .route("/push.v1.PusherService/Push", post(push::push))
        .route(&querier("ProfileTypes"), post(querier::profile_types))
        .route(&querier("LabelNames"), post(querier::label_names))
        .route(&querier("LabelValues"), post(querier::label_values))
        .route(&querier("Series"), post(querier::series))
        .route(&querier("SelectMergeStacktraces"), post(querier::merge))
        .route(&querier("SelectMergeProfile"), post(querier::profile))
        .route(&querier("SelectMergeSpanProfile"), post(spans::merge))
        .route(&querier("SelectHeatmap"), post(heatmap::heatmap))
        .route(&querier("SelectSeries"), post(querier::select_series))
        .route(&querier("Diff"), post(querier::diff))
        .route(&querier("GetProfileStats"), post(querier::stats))
        .route("/pyroscope/render", get(render::render))
        .route("/pyroscope/render-diff", get(render::render_diff))
        .route("/pyroscope/label-values", get(render::label_values))
}
