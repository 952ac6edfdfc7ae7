//! Server-sent events for pages that follow the clock: told when there is something new to draw.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;

use super::App;

/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);
/// After so many looks without news a comment keeps proxies from closing the connection.
const QUIET: u32 = 30;

struct Listener {
    app: Arc<App>,
    /// Profiles that the last event told of.
    told: Option<u64>,
}

/// `GET /api/v1/live`: an event `profiles` at once, and whenever profiles were taken since the last.
pub async fn live(State(app): State<Arc<App>>) -> Response {
    let listener = Listener { app, told: None };
    let events = stream::unfold(listener, |mut listener| async move {
        let text = listener.next().await?;
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(text)),
            listener,
        ))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

impl Listener {
    async fn next(&mut self) -> Option<String> {
        for _ in 0..QUIET {
            if self.app.stopping.load(Relaxed) {
                return None;
            }
            let metrics = &self.app.engine.metrics;
            let taken = metrics.profiles.load(Relaxed);
            if self.told != Some(taken) {
                self.told = Some(taken);
                let data = json!({
                    "profiles": taken,
                    "now_ms": self.app.env.now_ns() / 1_000_000,
                });
                return Some(format!("event: profiles\ndata: {data}\n\n"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Some(": nothing new\n\n".to_owned())
    }
}
