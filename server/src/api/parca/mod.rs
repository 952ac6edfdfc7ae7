//! Parca's API, so that its agent pushes here unchanged, `profilestore` (`WriteRaw`) and `debuginfo`, and so
//! that its clients ask: `query`.

pub mod any;
mod debuginfo;
mod proto;
mod query;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;

use super::App;

/// Routes of this protocol.
pub fn router() -> Router<Arc<App>> {
    let file = |method: &str| format!("/parca.debuginfo.v1alpha1.DebuginfoService/{method}");
    let upload = post(debuginfo::upload).layer(DefaultBodyLimit::disable());
    Router::new()
        .route(
            "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
            post(write::write_raw),
        )
        .route("/api/profiles/writeraw", post(write::write_raw))
        .route(&file("ShouldInitiateUpload"), post(debuginfo::should))
        .route(&file("InitiateUpload"), post(debuginfo::initiate))
        .route(&file("Upload"), upload)
        .route(&file("MarkUploadFinished"), post(debuginfo::finished))
        .merge(query::router())
}
