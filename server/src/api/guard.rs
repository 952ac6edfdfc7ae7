//! A page from elsewhere must not reach a loopback server through the visitor's browser.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{ApiError, App};

/// Refuses foreign `Host` names (DNS rebinding) and foreign origins (cross-site requests).
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.guard_host
        && let Some(reason) = foreign(request.headers())
    {
        return ApiError::new(StatusCode::FORBIDDEN, reason).into_response();
    }
    next.run(request).await
}

fn foreign(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    if !host.is_empty() && !is_loopback(host) {
        return Some(format!(
            "Host {host} is not this machine; ask for 127.0.0.1 or localhost, \
             or start the server with allow_public"
        ));
    }
    let origin = text(header::ORIGIN)?;
    let of = origin.split_once("://").map_or(origin, |(_, host)| host);
    (!is_loopback(of)).then(|| format!("requests from pages of {origin} are refused"))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        for host in [
            "localhost:4040",
            "127.0.0.1",
            "127.0.0.2:1",
            "[::1]:4040",
            "a.localhost",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "example.com",
            "localhost.example.com",
            "10.0.0.1:4040",
            "null",
            "",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
