//! What can go wrong on the wire, with URL and cause.

use http::StatusCode;
use std::time::Duration;

/// How far a request had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing came back yet.
    Answer,
    /// The body was coming in.
    Body {
        /// Bytes that had arrived.
        received: u64,
    },
}

/// A failed request. Every text names the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has no TLS.
    #[error(
        "{url}: this program was built without TLS; use http:// or a local TLS proxy, or build it with the feature client-tls"
    )]
    NoTls {
        /// As written.
        url: String,
    },
    /// Certificates or keys for TLS cannot be used.
    #[error("{url}: {reason}")]
    Tls {
        /// What was asked for.
        url: String,
        /// Which file, and why.
        reason: String,
    },
    /// Not a URL that we can call.
    #[error("{url:?} is not a usable URL: {reason}; write it as http://host:port/path")]
    BadUrl {
        /// As written.
        url: String,
        /// Why not.
        reason: String,
    },
    /// What the client should show cannot be had.
    #[error("{url}: {reason}")]
    Credentials {
        /// What was asked for.
        url: String,
        /// Why not.
        reason: String,
    },
    /// No connection, or it broke before an answer.
    #[error("{url}: {reason}; is something listening there? try: curl -sv '{url}' -o /dev/null")]
    Connect {
        /// What was asked for.
        url: String,
        /// The chain of causes.
        reason: String,
    },
    /// The client may not connect there.
    #[error("{url}: {addresses} is not to be connected to (see the client's guard)")]
    Refused {
        /// What was asked for.
        url: String,
        /// What the host's name leads to.
        addresses: String,
    },
    /// The deadline passed.
    #[error("{url}: no {} within {after:?}", match .stage {
        Stage::Answer => "answer".to_owned(),
        Stage::Body { received } => format!("end of the body (after {received} bytes)"),
    })]
    Timeout {
        /// What was asked for.
        url: String,
        /// The whole time allowed.
        after: Duration,
        /// How far it had come.
        stage: Stage,
    },
    /// The body reached its limit; reading stopped there.
    #[error("{url}: the body is larger than the limit of {limit} bytes (body_size_limit)")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// In bytes.
        limit: u64,
    },
    /// The body ended early.
    #[error("{url}: the body broke off after {received} bytes: {reason}")]
    Broken {
        /// What was asked for.
        url: String,
        /// Bytes that had arrived.
        received: u64,
        /// The chain of causes.
        reason: String,
    },
    /// Another status than 200.
    #[error("{url}: status {status}: {text}")]
    Status {
        /// What was asked for.
        url: String,
        /// As answered.
        status: StatusCode,
        /// The profiler's own words where `X-Go-Pprof` marks them, else the first bytes.
        text: String,
    },
    /// Status 200, but not what was asked for.
    #[error("{url}: the answer is not a profile: {reason}; it begins with {first}")]
    NotAProfile {
        /// What was asked for.
        url: String,
        /// Which check failed.
        reason: String,
        /// From [`first_bytes`].
        first: String,
    },
}

/// The beginning of a body, quoted and escaped, for messages; at most 64 bytes are shown.
pub fn first_bytes(body: &[u8]) -> String {
    const SHOWN: usize = 64;
    let head = body.get(..SHOWN).unwrap_or(body);
    let more = if body.len() > SHOWN { "…" } else { "" };
    if head.is_empty() {
        return "nothing (empty body)".to_owned();
    }
    format!("\"{}\"{more}", head.escape_ascii())
}

/// An error with its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
