//! Pages of other hosts that may ask, as their browsers want to hear it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a page may send along: gRPC-Web's headers, and who asks.
const ALLOWED: &str =
    "authorization, content-type, grpc-timeout, x-grpc-web, x-user-agent, x-scope-orgid";
/// What it may read besides the body.
const EXPOSED: &str = "grpc-status, grpc-message, grpc-encoding, retry-after";
/// How long a browser need not ask again.
const MAX_AGE_S: &str = "600";

/// The origins: `https://page.example`, or `*` for all.
#[derive(Clone, Debug, Default)]
pub struct Cors(pub Vec<String>);

impl Cors {
    /// The origin of a request that may read the answer; none when it is from nowhere else.
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        let known = |of: &String| of == "*" || of.eq_ignore_ascii_case(text);
        self.0.iter().any(known).then(|| origin.clone())
    }
}

/// Whether a browser asks if it may ask.
pub fn is_question(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// It may.
pub fn yes() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Lets the page of `origin` read an answer. Cookies and passwords that a browser adds by itself stay out.
pub fn mark(answer: &mut Response, origin: HeaderValue) {
    let exposed = HeaderValue::from_static(EXPOSED);
    let vary = HeaderValue::from_static("origin");
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed),
        (header::VARY, vary),
    ];
    for (name, value) in headers {
        answer.headers_mut().append(name, value);
    }
}
