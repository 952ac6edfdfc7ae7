//! What every network edge of pilotlight shares: an HTTP client with limits, retry, the way into a server.
//!
//! ```no_run
//! use pilotlight_wire::{Call, Client, Url};
//! use std::time::Duration;
//! # async fn example() -> Result<(), pilotlight_wire::Error> {
//! let url = Url::parse("http://127.0.0.1:6060/debug/pprof/profile?seconds=5")?;
//! let call = Call::get(url).timeout(Duration::from_secs(15)).max_body(64 << 20);
//! let body = Client::new().send(call).await?.success()?.body;
//! # Ok(()) }
//! ```
//!
//! Responsibilities:
//! - [`Client`]: one request, one deadline over connect, headers and body, a byte limit while the body streams in.
//! - [`Guard`]: which addresses a client may connect to, asked after names were resolved.
//! - [`Error`]: every failure names the URL, the cause, and what the other side said (Go's `X-Go-Pprof` texts too).
//! - [`Retry`]: exponential backoff with jitter; [`Clock`] and [`Rng`] are passed in, never global.
//! - `serve` (feature): the way into a server, within limits, with TLS (feature `tls`).
//! - [`Url`]: `http`, and `https` with the feature `client-tls`; without it `https` is refused where the URL is read,
//!   not when it is first used.
//!
//! Not here: what a profile is, and which answers are worth another try (the caller knows).

mod authorization;
#[cfg(any(feature = "tls", feature = "client-tls"))]
mod changes;
mod client;
mod clock;
mod error;
mod guard;
mod retry;
mod rng;
#[cfg(feature = "client-tls")]
mod secure;
#[cfg(feature = "serve")]
pub mod serve;
mod url;

pub use authorization::Authorization;
pub use bytes::Bytes;
pub use client::{Answer, Call, Client, Opened};
pub use clock::{Clock, Sleep, SystemClock};
pub use error::{Error, Stage, first_bytes};
pub use guard::Guard;
pub use http::{HeaderMap, HeaderValue, StatusCode};
pub use retry::{Attempt, Retry};
pub use rng::{Rng, SplitMix};
#[cfg(feature = "client-tls")]
pub use secure::TlsClient;
pub use url::{Url, encode_query};
