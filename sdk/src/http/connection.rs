//! One connection: read a request, answer it, until somebody closes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::date;
use super::head::{self, Head, Refusal};
use super::{Body, CaptureStream, Options, Request, Response, respond};

/// Serves `stream` until it ends. I/O errors end it silently: the client is gone.
pub(super) fn serve(stream: TcpStream, options: &Options) {
    let mut connection = Connection {
        stream,
        options,
        buffer: Vec::new(),
    };
    let _ = connection.run();
}

struct Connection<'a> {
    stream: TcpStream,
    options: &'a Options,
    /// Bytes received and not used yet.
    buffer: Vec<u8>,
}

/// Why no request came.
enum NoRequest {
    Refused(Refusal),
    Closed,
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        NoRequest::Closed
    }
}

impl Connection<'_> {
    fn run(&mut self) -> io::Result<()> {
        self.stream
            .set_write_timeout(Some(self.options.write_timeout))?;
        self.stream.set_nodelay(true)?;
        loop {
            match self.read_request() {
                Ok((head, body)) => {
                    let keep = self.answer(&head, &body)?;
                    if !keep {
                        return self.linger();
                    }
                }
                Err(NoRequest::Closed) => return Ok(()),
                Err(NoRequest::Refused((status, text))) => {
                    let refusal = Response::error(status, text);
                    self.send_head(&refusal, "Connection: close\r\n", content_length(&refusal))?;
                    self.send_full(&refusal)?;
                    return self.linger();
                }
            }
        }
    }

    fn read_request(&mut self) -> Result<(Head, Vec<u8>), NoRequest> {
        if self.buffer.is_empty() {
            self.fill(Instant::now() + self.options.idle_timeout)?;
        }
        let deadline = Instant::now() + self.options.read_timeout;
        let end = loop {
            let end = head::end_of_head(&self.buffer);
            if end.unwrap_or(self.buffer.len()) > self.options.max_head {
                let text = "431 Request Header Fields Too Large";
                return Err(NoRequest::Refused((431, text)));
            }
            if let Some(end) = end {
                break end;
            }
            self.fill(deadline)?;
        };
        let head = head::parse(&self.buffer[..end]).map_err(NoRequest::Refused)?;
        self.buffer.drain(..end);
        self.check(&head).map_err(NoRequest::Refused)?;
        if head.expects_continue && self.buffer.len() < head.content_length {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        while self.buffer.len() < head.content_length {
            self.fill(deadline)?;
        }
        let rest = self.buffer.split_off(head.content_length);
        Ok((head, std::mem::replace(&mut self.buffer, rest)))
    }

    fn check(&self, head: &Head) -> Result<(), Refusal> {
        let loopback = self
            .stream
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback());
        if loopback && !head.host.as_deref().is_none_or(head::is_local_name) {
            return Err((
                403,
                "403 Forbidden: use an address or localhost as host name",
            ));
        }
        if head.content_length > self.options.max_body {
            return Err((413, "413 Request Entity Too Large: split the addresses"));
        }
        Ok(())
    }

    /// Receives some bytes; an error at the deadline or when the client closed.
    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 4096];
        let count = self.stream.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    /// Whether the connection may go on.
    fn answer(&mut self, head: &Head, body: &[u8]) -> io::Result<bool> {
        let request = Request::new(&head.method, &head.path, &head.query)
            .with_origin(head.origin.as_deref(), head.host.as_deref())
            .with_body(body);
        let mut response = respond(&request);
        let streams = matches!(response.body, Body::Stream(_));
        // HTTP/1.0 has no chunks: there the end of the connection is the end of the body.
        let keep = head.keep_alive && (head.http11 || !streams);
        let framing = match (streams, head.http11) {
            (true, true) => "Transfer-Encoding: chunked\r\n".to_string(),
            (true, false) => String::new(),
            (false, _) => content_length(&response),
        };
        let connection = match (keep, head.http11) {
            (false, _) => "Connection: close\r\n",
            (true, false) => "Connection: keep-alive\r\n",
            (true, true) => "",
        };
        self.send_head(&response, connection, framing)?;
        if head.method != "HEAD" {
            match &mut response.body {
                Body::Full(_) => self.send_full(&response)?,
                Body::Stream(capture) => self.send_stream(capture, head.http11)?,
            }
        }
        Ok(keep)
    }

    fn send_head(&mut self, response: &Response, extra: &str, framing: String) -> io::Result<()> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\n",
            response.status,
            reason(response.status)
        );
        for (name, value) in &response.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Date: {}\r\n", date::now()));
        text.push_str(extra);
        text.push_str(&framing);
        text.push_str("\r\n");
        self.stream.write_all(text.as_bytes())
    }

    fn send_full(&mut self, response: &Response) -> io::Result<()> {
        match &response.body {
            Body::Full(bytes) => self.stream.write_all(bytes),
            Body::Stream(_) => Ok(()),
        }
    }

    fn send_stream(&mut self, capture: &mut CaptureStream, chunked: bool) -> io::Result<()> {
        capture.set_keep_alive(self.options.keep_alive);
        let descriptor = self.stream.as_raw_fd();
        let mut present = true;
        while let Some(chunk) = capture.next_chunk(|time| {
            present = !closes_within(descriptor, time);
            present
        }) {
            if !chunked {
                self.stream.write_all(&chunk)?;
                continue;
            }
            let size = format!("{:x}\r\n", chunk.len());
            self.stream
                .write_all(&[size.as_bytes(), &chunk, b"\r\n"].concat())?;
        }
        match (present && !capture.has_failed(), chunked) {
            (false, _) => Err(io::ErrorKind::ConnectionAborted.into()),
            (true, true) => self.stream.write_all(b"0\r\n\r\n"),
            (true, false) => Ok(()),
        }
    }

    /// Closing with unread bytes would reset the connection and could destroy the answer on its way.
    fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream
            .set_read_timeout(Some(Duration::from_millis(250)))?;
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut sink = [0; 4096];
        while Instant::now() < deadline && self.stream.read(&mut sink)? > 0 {}
        Ok(())
    }
}

fn content_length(response: &Response) -> String {
    match &response.body {
        Body::Full(bytes) => format!("Content-Length: {}\r\n", bytes.len()),
        Body::Stream(_) => String::new(),
    }
}

/// Where no event tells of a client that wrote its last, none is waited for but an error.
#[cfg(target_os = "linux")]
const CLOSED: libc::c_short = libc::POLLRDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED: libc::c_short = 0;

/// Sleeps for `time`, or until the client (or the server's stop) closes; true if it closed.
fn closes_within(descriptor: i32, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let mut poll = libc::pollfd {
            fd: descriptor,
            events: CLOSED,
            revents: 0,
        };
        let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: `poll` is one valid pollfd that outlives the call.
        let ready = unsafe { libc::poll(&mut poll, 1, milliseconds) };
        if ready > 0 {
            return true;
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Request Entity Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}
