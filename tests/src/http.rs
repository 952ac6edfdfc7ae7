//! A blocking HTTP/1.0 client of a few lines: enough for loopback tests, nothing to misconfigure.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Status and body of an answer.
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The body, as sent.
    pub body: Vec<u8>,
}

/// GETs `http://127.0.0.1:port` + `path`; waits at most `limit` for each read.
///
/// # Errors
/// A sentence with the address and the cause.
pub fn get_within(port: u16, path: &str, limit: Duration) -> Result<Answer, String> {
    ask(port, "GET", path, b"", limit)
}

/// POSTs a body; waits at most `limit` for each read.
///
/// # Errors
/// A sentence with the address and the cause.
pub fn post_within(port: u16, path: &str, body: &[u8], limit: Duration) -> Result<Answer, String> {
    ask(port, "POST", path, body, limit)
}

fn ask(
    port: u16,
    method: &str,
    path: &str,
    body: &[u8],
    limit: Duration,
) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("{method} http://127.0.0.1:{port}{path}: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(limit)).map_err(failed)?;
    let length = match body.len() {
        0 => String::new(),
        len => format!("Content-Length: {len}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{length}\r\n");
    stream
        .write_all(&[head.as_bytes(), body].concat())
        .map_err(failed)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(failed)?;
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or("an answer without an end of headers")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| format!("no status in {head}"))?;
    Ok(Answer {
        status,
        body: bytes.split_off(end + 4),
    })
}

/// GETs JSON and insists on status 200.
///
/// # Errors
/// A sentence with the address and the cause.
pub fn json(port: u16, path: &str) -> Result<serde_json::Value, String> {
    let answer = get_within(port, path, Duration::from_secs(20))?;
    let text = String::from_utf8_lossy(&answer.body);
    if answer.status != 200 {
        return Err(format!("GET {path}: {} {text}", answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|error| format!("GET {path}: {error}: {text}"))
}

/// Percent-encodes everything but unreserved characters.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
