//! Which path and method means what. Statuses, headers and texts are those of Go 1.26
//! (`net/http/pprof/pprof.go`), with one difference: `symbol` takes POST, which `go tool pprof` sends
//! and Go's own mux now refuses (golang/go#65791).

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::index::{self, Entry};
use super::stream::{self, CaptureStream};
use super::{Body, Request, Response, query, symbol};
use crate::{capture, engine};

const PREFIX: &str = "/debug/pprof/";

/// Longer captures are cut to this; memory grows with the number of different stacks.
const MAX_SECONDS: u64 = 3600;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers one request. May block while names are resolved, so do not call it on an async worker.
///
/// A CPU profile comes as [`Body::Stream`]: sampling starts before this returns, and each call of
/// [`CaptureStream::next_chunk`] waits for the next bytes.
pub fn respond(request: &Request<'_>) -> Response {
    let Some(path) = query::decode(request.path, false) else {
        return Response::error(400, "Bad Request");
    };
    let path = String::from_utf8_lossy(&path);
    match path.strip_prefix(PREFIX) {
        Some("symbol") if request.method == "POST" => symbol(request.body),
        Some(name) if matches!(request.method, "GET" | "HEAD") => named(name, request),
        None if !is_known_outside_prefix(&path) => not_found(),
        None if matches!(request.method, "GET" | "HEAD") => to_index(request.query),
        Some("symbol") => method_not_allowed("GET, HEAD, POST"),
        _ => method_not_allowed("GET, HEAD"),
    }
}

fn named(name: &str, request: &Request<'_>) -> Response {
    match name {
        "" => Response::new(
            200,
            "text/html; charset=utf-8",
            index::page(&entries()).into_bytes(),
        ),
        "cmdline" => Response::new(200, TEXT, cmdline()),
        "profile" => profile(request),
        "symbol" => symbol(request.query.as_bytes()),
        _ => pprof_error(404, "Unknown profile"),
    }
}

fn profile(request: &Request<'_>) -> Response {
    let seconds = query::seconds(request.query).min(MAX_SECONDS);
    let body = if request.method == "HEAD" {
        Ok(Body::Full(Vec::new()))
    } else {
        CaptureStream::start(Duration::from_secs(seconds)).map(Body::Stream)
    };
    match body {
        Ok(body) => {
            let mut response = Response::new(200, "application/octet-stream", Vec::new());
            response.headers.push((
                "Content-Disposition",
                "attachment; filename=\"profile\"".into(),
            ));
            Response { body, ..response }
        }
        Err(why) => pprof_error(500, &format!("Could not enable CPU profiling: {why}")),
    }
}

fn symbol(input: &[u8]) -> Response {
    Response::new(200, TEXT, symbol::reply(input, capture::resolve_symbol))
}

/// Arguments joined by NUL, without a last one.
fn cmdline() -> Vec<u8> {
    let arguments: Vec<_> = std::env::args_os().collect();
    arguments
        .iter()
        .map(|argument| argument.as_bytes())
        .collect::<Vec<_>>()
        .join(&0)
}

fn entries() -> Vec<Entry> {
    let on = |name, description| Entry {
        name,
        description,
        running: 0,
        off: None,
    };
    let profile = on(
        "profile",
        "CPU profile. You can specify the duration in the seconds GET parameter. After you get the \
         profile file, use the go tool pprof command to investigate the profile.",
    );
    vec![
        on(
            "cmdline",
            "The command line invocation of the current program",
        ),
        Entry {
            running: stream::running(),
            off: engine::current().err().map(|error| error.to_string()),
            ..profile
        },
        on(
            "symbol",
            "Maps given program counters to function names. Counters can be specified in a GET raw \
             query or POST body, multiple counters are separated by '+'.",
        ),
    ]
}

/// `/` is ours alone, so it leads to the index too.
fn is_known_outside_prefix(path: &str) -> bool {
    matches!(path, "/" | "/debug/pprof")
}

fn to_index(query: &str) -> Response {
    let mut location = String::from(PREFIX);
    if !query.is_empty() {
        location.push('?');
        // The query came through a transport, but a header must not hold a line break in any case.
        location.extend(query.chars().filter(char::is_ascii_graphic));
    }
    let text = format!(
        "<a href=\"{}\">Temporary Redirect</a>.\n\n",
        index::escape(&location)
    );
    let content_type = ("Content-Type", "text/html; charset=utf-8".to_string());
    let headers = vec![content_type, ("Location", location)];
    Response {
        status: 307,
        headers,
        body: Body::Full(text.into_bytes()),
    }
}

fn not_found() -> Response {
    Response::error(404, "404 page not found")
}

fn method_not_allowed(allow: &str) -> Response {
    let mut response = Response::error(405, "Method Not Allowed");
    response.headers.push(("Allow", allow.into()));
    response
}

/// An error whose text `go tool pprof` shows: it looks for the marker header.
fn pprof_error(status: u16, text: &str) -> Response {
    let mut response = Response::error(status, text);
    response.headers.push(("X-Go-Pprof", "1".into()));
    response
}

impl Response {
    pub(super) fn new(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        let headers = vec![
            ("Content-Type", content_type.to_string()),
            ("X-Content-Type-Options", "nosniff".to_string()),
        ];
        Response {
            status,
            headers,
            body: Body::Full(body),
        }
    }

    /// Plain text and a line end, as Go's `http.Error`.
    pub(super) fn error(status: u16, text: &str) -> Self {
        Response::new(status, TEXT, format!("{text}\n").into_bytes())
    }
}
