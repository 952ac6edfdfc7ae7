//! Continuous profiling of a Rust service: one dependency, one line, /debug/pprof.

#[cfg(feature = "axum")]
pub mod axum;
mod capture;
pub mod http;
#[cfg(feature = "hyper")]
pub mod hyper;

use std::net::TcpListener;
use std::sync::atomic::Ordering;

/// Keeps the sampler and the listener; dropping it ends both.
#[derive(Debug)]
#[must_use = "dropping the guard stops everything at once"]
pub struct Guard {
    _server: Option<http::ServerHandle>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        capture::STARTED.store(false, Ordering::Relaxed);
    }
}

/// How to start.
#[derive(Debug, Clone)]
pub struct Config {
    listen: Option<String>,
}

impl Config {
    /// Listens on `PILOTLIGHT_LISTEN`, by default 127.0.0.1:6060.
    pub fn new(_name: &str) -> Self {
        let listen = std::env::var("PILOTLIGHT_LISTEN");
        Config {
            listen: Some(listen.unwrap_or_else(|_| "127.0.0.1:6060".into())),
        }
    }

    /// Opens no port: the service mounts the routes itself.
    pub fn no_listener(self) -> Self {
        Config { listen: None }
    }

    /// Starts sampling and serving.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(self) -> std::io::Result<Guard> {
        let server = self.listen.map(|address| {
            let listener = TcpListener::bind(address)?;
            println!("pilotlight: http://{}/debug/pprof/", listener.local_addr()?);
            http::serve(listener)
        });
        capture::STARTED.store(true, Ordering::Relaxed);
        Ok(Guard {
            _server: server.transpose()?,
        })
    }
}

/// Starts with the defaults; see [`Config`].
///
/// # Errors
/// As [`Config::start`].
pub fn start(name: &str) -> std::io::Result<Guard> {
    Config::new(name).start()
}
