//! A blocking HTTP/1.1 client over one kept connection: no TLS, no redirects, loopback only.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::child::Outcome;

/// One kept connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// Status and body of an answer.
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl Client {
    /// Connects to a local port.
    pub fn connect(port: u16) -> Outcome<Self> {
        Self::connect_to(&format!("http://127.0.0.1:{port}"))
    }

    /// Connects to `http://HOST:PORT`.
    pub fn connect_to(url: &str) -> Outcome<Self> {
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        let stream = TcpStream::connect(host).map_err(|error| format!("{host}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    /// Sends one request and reads its answer.
    pub fn request(&mut self, method: &str, target: &str, body: &[u8]) -> Outcome<Answer> {
        let length = body.len();
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request)?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).ok_or("no status")?.parse()?;
        let (mut length, mut chunked) = (0usize, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse()?,
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                Some(_) => {}
                None => break,
            }
        }
        let body = if chunked {
            self.chunks()?
        } else {
            self.bytes(length)?
        };
        Ok(Answer { status, body })
    }

    fn chunks(&mut self) -> Outcome<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16)?;
            body.extend(self.bytes(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn bytes(&mut self, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Percent-encodes everything but unreserved characters.
pub fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
