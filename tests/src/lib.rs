//! What the tests that cross components share: starting programs as a user would, talking HTTP to
//! them, and reading `go tool pprof`.
//!
//! Map: [`process`] starts and ends programs, [`http`] is a client of a few lines, [`tee`] records
//! what passes between a scraper and its target, [`pprof`] runs the reference tool, [`server`] starts
//! a server alone.

pub mod http;
pub mod pprof;
pub mod process;
pub mod server;
pub mod tee;

use std::time::{Duration, Instant};

/// A loopback port that was free a moment ago.
///
/// # Panics
/// When the machine has no free port.
#[must_use]
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap_or_else(|error| panic!("no free port: {error}"));
    listener.local_addr().map_or(0, |address| address.port())
}

/// Asks `probe` until it answers, at most `limit` long.
///
/// # Panics
/// When it never answers; the message carries `what` and the last reason.
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(reason) if Instant::now() > deadline => {
                panic!("{what}: not within {limit:?}: {reason}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Four standard errors of a share `p` estimated from `samples` samples: a right share is outside by
/// chance once in 16,000.
#[must_use]
pub fn four_sigma(p: f64, samples: f64) -> f64 {
    4.0 * (p * (1.0 - p) / samples.max(1.0)).sqrt()
}
