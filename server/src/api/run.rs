//! Runs queries: in their turn, on threads that may block, within a budget, for a client that waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use pilotlight_wire::serve::Peer;

use super::fair::Caller;
use super::{ApiError, App};
use crate::access::Tenant;
use crate::query::engine::Cancel;

tokio::task_local! {
    /// Who sent the request that this task answers.
    static CALLER: Caller;
}

/// Notes who asks, for [`run`].
pub async fn caller(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    let tenant = request.extensions().get::<Tenant>();
    let caller = Caller {
        tenant: tenant.map_or(String::new(), |tenant| tenant.0.clone()),
        client: peer.map_or(String::new(), |peer| peer.address.ip().to_string()),
    };
    CALLER.scope(caller, next.run(request)).await
}

/// Tells the query when the client has gone: axum drops the handler then.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs a query on a thread where it may block, when its turn has come.
///
/// # Errors
/// What `work` answers; 429 when too many queries of the client wait.
pub async fn run<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App, &Cancel) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let cancel = CancelOnDrop(Cancel::new(app.query_limits.clone()));
    let flag = cancel.0.clone();
    let caller = CALLER.try_with(Caller::clone).unwrap_or_default();
    let turn = app.queries.turn(caller).await.map_err(|_| {
        let most = app.query_limits.waiting;
        let message = format!(
            "{most} queries of this client wait already; ask again when some of them are answered"
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).retry(1)
    })?;
    let app = app.clone();
    let joined = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let metrics = &app.engine.metrics;
        metrics.running_queries.fetch_add(1, Relaxed);
        let started = Instant::now();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&app, &flag)));
        metrics.running_queries.fetch_sub(1, Relaxed);
        metrics.queries.fetch_add(1, Relaxed);
        metrics
            .query_micros
            .fetch_add(started.elapsed().as_micros() as u64, Relaxed);
        result
    });
    let result = joined.await;
    drop(cancel);
    match result {
        Ok(Ok(result)) => result,
        _ => Err(ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the query failed inside the server; please report it",
        )),
    }
}
