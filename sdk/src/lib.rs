//! Continuous profiling of a Rust service: one dependency, one line, /debug/pprof.

#[cfg(feature = "axum")]
pub mod axum;
mod capture;
pub mod http;
#[cfg(feature = "hyper")]
pub mod hyper;

/// Keeps the listener open; dropping it closes it.
#[derive(Debug)]
#[must_use = "dropping the guard stops everything at once"]
pub struct Guard {
    _server: http::ServerHandle,
}

/// Serves `/debug/pprof/` on `PILOTLIGHT_LISTEN`, by default 127.0.0.1:6060.
///
/// # Errors
/// When the address cannot be listened on.
pub fn start(_name: &str) -> std::io::Result<Guard> {
    let address = std::env::var("PILOTLIGHT_LISTEN").unwrap_or_else(|_| "127.0.0.1:6060".into());
    let listener = std::net::TcpListener::bind(address)?;
    println!("pilotlight: http://{}/debug/pprof/", listener.local_addr()?);
    Ok(Guard {
        _server: http::serve(listener)?,
    })
}
