//! One POST over HTTP/1.1, on a connection of its own: profiles go every few seconds, and a
//! connection that is kept could be gone by then.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::queue::Parcel;
use super::url::Url;

/// Bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 << 10;

/// What of an answer matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The other side's wish.
    pub(super) retry_after: Option<Duration>,
}

/// Sends a parcel; all of it takes no longer than `limit`, but for a name that is looked up.
///
/// # Errors
/// When nobody answers in time, or what answers is no HTTP.
pub(super) fn post(
    url: &Url,
    headers: &[(String, String)],
    parcel: &Parcel,
    limit: Duration,
) -> io::Result<Answer> {
    let deadline = Instant::now() + limit;
    let mut stream = connect(url, deadline)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(head(url, headers, parcel).as_bytes())?;
    let mut rest = parcel.body.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let count = stream.write(rest)?;
        rest = &rest[count..];
    }
    answer(&mut stream, deadline)
}

fn connect(url: &Url, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in url.authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn head(url: &Url, headers: &[(String, String)], parcel: &Parcel) -> String {
    let mark = if parcel.query.is_empty() { "" } else { "?" };
    let mut head = format!(
        "POST {}{mark}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: pilotlight/{}\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        url.path,
        parcel.query,
        url.authority,
        env!("CARGO_PKG_VERSION"),
        parcel.body.len(),
    );
    for (name, value) in &parcel.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

/// Reads until the head is whole, then what else is there: a connection that is closed with
/// unread bytes is reset.
fn answer(stream: &mut TcpStream, deadline: Instant) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while (bytes.len() as u64) < MAX_ANSWER {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            // Some servers reset after their answer.
            Err(_) if parse(&bytes).is_some() => break,
            Err(error) => return Err(error),
        }
        if is_whole(&bytes) {
            break;
        }
    }
    parse(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Head and announced body are there.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let length = header(&bytes[..end], "content-length").and_then(|text| text.parse().ok());
    length.is_some_and(|length: usize| bytes.len() - end - 4 >= length)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = &bytes[..end];
    let line = std::str::from_utf8(head.split(|&b| b == b'\r').next()?).ok()?;
    let status = line
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    let seconds = header(head, "retry-after").and_then(|text| text.parse().ok());
    Some(Answer {
        status,
        retry_after: seconds.map(Duration::from_secs),
    })
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim().to_string())
    })
}
