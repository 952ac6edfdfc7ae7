//! `/debug/pprof/`: the HTTP contract of Go's `net/http/pprof`, so that everything that reads a Go
//! service (`go tool pprof`, scrapers, browsers) reads a Rust service too.
//!
//! [`respond`] is a pure function from request to response and knows no transport. Three transports
//! stand on it: the small server of this crate ([`serve_with`]), and the features `hyper` and `axum`.
//! To mount it elsewhere, call [`respond`] on a thread that may block, and drain the [`Body`].
//!
//! ```no_run
//! use pilotlight::http::{Body, Request, respond};
//! let response = respond(&Request::get("/debug/pprof/cmdline", ""));
//! assert_eq!(response.status, 200);
//! if let Body::Full(bytes) = response.body {
//!     println!("{}", String::from_utf8_lossy(&bytes));
//! }
//! ```
//!
//! | module | job |
//! |---|---|
//! | `routes` | which path and method means what, statuses and texts |
//! | `switch` | switching a type on and off |
//! | `index` | the HTML page |
//! | `symbol` | addresses to names |
//! | `stream` | a running capture as a stream of chunks, with gzip keep-alive |
//! | `query` | Go's rules for query strings and numbers |
//! | `server`, `connection`, `head`, `date` | HTTP/1.1 on plain threads |

mod connection;
mod date;
mod head;
mod index;
mod query;
mod routes;
mod server;
pub(crate) mod stream;
mod switch;
mod symbol;

use std::time::Duration;

pub(crate) use query::form_value;
pub use routes::respond;
pub(crate) use server::serve;
pub use server::{ServerHandle, serve_with};
pub use stream::CaptureStream;
pub(crate) use stream::running;
pub(crate) use switch::allow as allow_switch;
pub(crate) use symbol::reply as symbol_reply;

/// One request, borrowed from its transport.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// `GET`, `HEAD`, `POST` …, upper case.
    pub method: &'a str,
    /// Path as on the wire, still percent-encoded.
    pub path: &'a str,
    /// Query as on the wire, without the question mark.
    pub query: &'a str,
    /// The whole body.
    pub body: &'a [u8],
    /// A browser sends it for a page of another site: nothing is switched for such a one.
    pub from_other_site: bool,
}

impl<'a> Request<'a> {
    /// A request without a body; see [`Request::with_body`].
    pub fn new(method: &'a str, path: &'a str, query: &'a str) -> Self {
        Request {
            method,
            path,
            query,
            body: &[],
            from_other_site: false,
        }
    }

    /// A `GET` request.
    pub fn get(path: &'a str, query: &'a str) -> Self {
        Request::new("GET", path, query)
    }

    /// The same request with what its headers `Origin` and `Host` say.
    pub fn with_origin(self, origin: Option<&str>, host: Option<&str>) -> Self {
        let same = |origin: &str| origin.split_once("://").map(|(_, site)| site) == host;
        Request {
            from_other_site: origin.is_some_and(|origin| !same(origin)),
            ..self
        }
    }

    /// The same request with a body.
    pub fn with_body(self, body: &'a [u8]) -> Self {
        Request { body, ..self }
    }
}

/// What to answer. The transport adds `Content-Length` or chunking.
#[derive(Debug)]
#[non_exhaustive]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Header names and values; values hold no line breaks.
    pub headers: Vec<(&'static str, String)>,
    /// Body; not to be sent for `HEAD`.
    pub body: Body,
}

/// The body of a [`Response`].
#[derive(Debug)]
pub enum Body {
    /// Known at once.
    Full(Vec<u8>),
    /// Comes while the capture runs.
    Stream(CaptureStream),
}

/// Limits of the server. The defaults suit a loopback listener inside a service.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Options {
    /// Time between two keep-alive chunks of a running capture.
    pub keep_alive: Duration,
    /// Connections at once, one thread each; more are answered 503.
    pub max_connections: usize,
    /// Bytes of request line and headers.
    pub max_head: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Time for a request to arrive whole, from its first byte.
    pub read_timeout: Duration,
    /// Time that a connection may rest between requests.
    pub idle_timeout: Duration,
    /// Time for one write to be taken by the client.
    pub write_timeout: Duration,
}

/// Bytes of a body that any transport accepts: about 200,000 addresses for `symbol`.
pub(crate) const MAX_BODY: usize = 4 << 20;

impl Default for Options {
    fn default() -> Self {
        Options {
            keep_alive: stream::KEEP_ALIVE,
            max_connections: 64,
            max_head: 16 << 10,
            max_body: MAX_BODY,
            read_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
        }
    }
}
