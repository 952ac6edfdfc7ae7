//! `/debug/pprof/` as an axum router, behind the feature `axum`.
//!
//! ```no_run
//! let app: axum::Router = axum::Router::new().merge(pilotlight::axum::router());
//! ```

use ::axum::Router;
use ::axum::body::Body;
use ::axum::extract::Request;
use ::axum::response::Response;
use ::axum::routing::any;

/// All of `/debug/pprof/`, for [`Router::merge`].
///
/// The routes check methods themselves. Put them behind the service's own access control when it
/// listens on more than loopback: they show the command line and the code that runs.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/debug/pprof", any(handle))
        .route("/debug/pprof/", any(handle))
        .route("/debug/pprof/{*name}", any(handle))
}

async fn handle(request: Request) -> Response {
    match crate::hyper::handle(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}
