//! Parca's API, so that its agent pushes here unchanged, `profilestore` (pprof by `WriteRaw`, Arrow) and
//! `debuginfo`, and so that its clients ask: `query`.

pub mod any;
mod arrow;
mod debuginfo;
mod proto;
mod query;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;

use super::{App, grpc_web};

/// Routes of this protocol.
pub fn router() -> Router<Arc<App>> {
    let file = |method: &str| format!("/parca.debuginfo.v1alpha1.DebuginfoService/{method}");
    let profiles =
        |method: &str| format!("/parca.profilestore.v1alpha1.ProfileStoreService/{method}");
    let upload = post(debuginfo::upload).layer(DefaultBodyLimit::disable());
    Router::new()
        .route(&profiles("WriteRaw"), post(write::write_raw))
        .route("/api/profiles/writeraw", post(write::write_raw))
        .route(&profiles("WriteArrow"), post(arrow::write_arrow))
        .route("/api/profiles/writearrow", post(arrow::write_arrow))
        .route(
            &profiles("Write"),
            post(arrow::write).layer(DefaultBodyLimit::disable()),
        )
        .route(&file("ShouldInitiateUpload"), post(debuginfo::should))
        .route(&file("InitiateUpload"), post(debuginfo::initiate))
        .route(&file("Upload"), upload)
        .route(&file("MarkUploadFinished"), post(debuginfo::finished))
        .merge(query::router())
        .layer(axum::middleware::from_fn(grpc_web::translate))
}
