//! Which path and method means what. Statuses, headers and texts are those of Go 1.26
//! (`net/http/pprof/pprof.go`), with two differences: `symbol` takes POST, which `go tool pprof` sends
//! and Go's own mux now refuses (golang/go#65791), and `POST NAME?enable=1` switches.
//!
//! Which profiles there are, [`crate::types`] knows.

use std::time::Duration;

use super::{Body, CaptureStream, Request, Response, index, query, switch};
use crate::types::{self, Ask, Delta, Kind, Running, Source};

const PREFIX: &str = "/debug/pprof/";

/// Longer captures are cut to this; memory grows with the number of different stacks.
const MAX_SECONDS: u64 = 3600;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers one request. May block while names are resolved, so do not call it on an async worker.
///
/// What is sampled over a time comes as [`Body::Stream`]: sampling starts before this returns, and
/// each call of [`CaptureStream::next_chunk`] waits for the next bytes.
pub fn respond(request: &Request<'_>) -> Response {
    let Some(path) = query::decode(request.path, false) else {
        return Response::error(400, "Bad Request");
    };
    let path = String::from_utf8_lossy(&path);
    match path.strip_prefix(PREFIX) {
        Some("symbol") if request.method == "POST" => named("symbol", request, Some(request.body)),
        Some(name) if switch::is_asked(request) => switch::respond(name, request),
        Some(name) if matches!(request.method, "GET" | "HEAD") => named(name, request, None),
        None if !is_known_outside_prefix(&path) => not_found(),
        None if matches!(request.method, "GET" | "HEAD") => to_index(request.query),
        Some("symbol") => method_not_allowed("GET, HEAD, POST"),
        _ => method_not_allowed("GET, HEAD"),
    }
}

fn named(name: &str, request: &Request<'_>, body: Option<&[u8]>) -> Response {
    if name.is_empty() {
        let page = index::page(&types::profile_types(), switch::is_allowed());
        return Response::new(200, "text/html; charset=utf-8", page.into_bytes());
    }
    let Some(source) = types::find(name) else {
        return pprof_error(404, "Unknown profile");
    };
    let ask = Ask {
        query: request.query,
        body,
    };
    let head = request.method == "HEAD";
    match source.kind() {
        Kind::Text => text(source, &ask),
        Kind::Window => window(source, &ask, head),
        kind => match ask.value("seconds") {
            seconds if seconds.is_empty() => snapshot(source, &ask),
            seconds => delta(source, kind, &ask, &seconds, head),
        },
    }
}

/// Sampled from now on.
fn window(source: &'static dyn Source, ask: &Ask<'_>, head: bool) -> Response {
    let seconds = query::seconds(ask.query).min(MAX_SECONDS);
    let begin = || source.begin(ask);
    let stream = stream(source.name(), seconds, begin, head);
    let refused = |why| match source.name() {
        "profile" => format!("Could not enable CPU profiling: {why}"),
        _ => why,
    };
    match stream {
        Ok(body) => download(source.name(), body),
        Err(why) => pprof_error(500, &refused(why)),
    }
}

/// What was added over a time, by Go's rules.
fn delta(
    source: &'static dyn Source,
    kind: Kind,
    ask: &Ask<'_>,
    seconds: &str,
    head: bool,
) -> Response {
    let Some(seconds) = seconds.parse::<i64>().ok().filter(|&seconds| seconds > 0) else {
        let text = "invalid value for \"seconds\" - must be a positive integer";
        return pprof_error(400, text);
    };
    if !matches!(kind, Kind::Cumulative { .. }) {
        let text = "\"seconds\" parameter is not supported for this profile type";
        return pprof_error(400, text);
    }
    if ask.number("debug") != 0 {
        return pprof_error(400, "seconds and debug params are incompatible");
    }
    let seconds = seconds.unsigned_abs().min(MAX_SECONDS);
    let begin = || Delta::begin(source, ask);
    match stream(source.name(), seconds, begin, head) {
        Ok(body) => download(&format!("{}-delta", source.name()), body),
        Err(why) => pprof_error(500, &format!("failed to collect profile: {why}")),
    }
}

fn stream(
    name: &'static str,
    seconds: u64,
    begin: impl FnOnce() -> Result<Box<dyn Running>, String>,
    head: bool,
) -> Result<Body, String> {
    if head {
        return Ok(Body::Full(Vec::new()));
    }
    CaptureStream::start(name, Duration::from_secs(seconds), begin).map(Body::Stream)
}

/// What there is now, as a profile or as text.
fn snapshot(source: &'static dyn Source, ask: &Ask<'_>) -> Response {
    let debug = ask.number("debug");
    if let Some(text) = (debug != 0).then(|| source.text(ask)).flatten() {
        return plain(text);
    }
    let profile = types::checked(source).and_then(|()| source.take(ask));
    match profile {
        Ok(profile) if debug != 0 => plain(Ok(types::text::render(source.name(), &profile))),
        Ok(profile) => download(source.name(), Body::Full(profile.to_pprof_gz())),
        Err(why) => pprof_error(500, &why),
    }
}

fn text(source: &'static dyn Source, ask: &Ask<'_>) -> Response {
    plain(source.text(ask).unwrap_or_else(|| Ok(Vec::new())))
}

fn plain(text: Result<Vec<u8>, String>) -> Response {
    match text {
        Ok(bytes) => Response::new(200, TEXT, bytes),
        Err(why) => pprof_error(500, &why),
    }
}

fn download(name: &str, body: Body) -> Response {
    let mut response = Response::new(200, "application/octet-stream", Vec::new());
    let disposition = format!("attachment; filename=\"{name}\"");
    response.headers.push(("Content-Disposition", disposition));
    let engine = crate::engine::current().ok();
    if let Some(version) = engine.and_then(|engine| engine.version.clone()) {
        response.headers.push((VERSION, version));
    }
    Response { body, ..response }
}

/// Header that tells scrapers which version of the service a profile is of.
const VERSION: &str = "Pilotlight-Version";

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
pub(super) fn pprof_error(status: u16, text: &str) -> Response {
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
