//! What the agent says of itself over HTTP: `/metrics` and, on loopback alone, `/debug/pprof/` by our SDK.

use crate::fail::Failure;
use pilotlight_host_agent::Agent;
use pilotlight_wire::serve::{Edge, Incoming, serve, service_fn};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Weak;
use tokio::net::TcpListener;

type Request = axum::http::Request<Incoming>;
type Response = axum::http::Response<axum::body::Body>;

/// Prometheus' scrapers are few.
const MAX_CONNECTIONS: usize = 64;

/// Where it listens; `/debug/pprof/` shows the code that runs, so other machines do not get it.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    profiled: Option<pilotlight::Guard>,
}

impl Listener {
    /// Takes the address, and starts the SDK where that is asked for.
    pub async fn bind(address: SocketAddr) -> Result<Listener, Failure> {
        let failed = |error: std::io::Error| {
            let text = format!("the agent cannot listen on {address}: {error}");
            Failure::new(text, "pilotlight agent --listen 127.0.0.1:0")
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let config = pilotlight::Config::new("pilotlight-agent").no_listener();
        let profiled = match address.ip().is_loopback() {
            true => config.start().ok(),
            false => None,
        };
        Ok(Listener {
            listener,
            address,
            profiled,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers for as long as the agent is there.
    pub async fn run(self, agent: Weak<Agent>) {
        let profiled = self.profiled.is_some();
        let service = service_fn(move |request| answer(request, agent.clone(), profiled));
        let mut edge = Edge::default();
        edge.max_connections = MAX_CONNECTIONS;
        serve(self.listener, edge, service, std::future::pending()).await;
        // Not dropped before: the captures end with it.
        drop(self.profiled);
    }
}

async fn answer(
    request: Request,
    agent: Weak<Agent>,
    profiled: bool,
) -> Result<Response, Infallible> {
    let path = request.uri().path();
    if profiled && (path == "/debug/pprof" || path.starts_with("/debug/pprof/")) {
        let answer = pilotlight::hyper::handle(request).await?;
        return Ok(answer.map(axum::body::Body::new));
    }
    let (status, text) = match (path, agent.upgrade()) {
        ("/metrics", Some(agent)) => (200, agent.metrics_text()),
        ("/metrics", None) => (503, "the agent ends\n".to_owned()),
        _ => (
            404,
            "here are /metrics and, on loopback, /debug/pprof/\n".to_owned(),
        ),
    };
    let mut response = Response::new(text.into());
    *response.status_mut() = status.try_into().unwrap_or_default();
    let kind = axum::http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}
