//! Request line and headers of HTTP/1.x, parsed strictly: what two readers could understand
//! differently is refused.

/// What the server needs of a request's head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    /// HTTP/1.1 (else 1.0, which knows no chunks).
    pub(super) http11: bool,
    /// Whether the client wants the connection to stay.
    pub(super) keep_alive: bool,
    pub(super) content_length: usize,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
}

/// Status and text of a refusal; the connection closes after it.
pub(super) type Refusal = (u16, &'static str);

const BAD: Refusal = (400, "400 Bad Request");

/// Where the head ends (just behind the empty line), if it is whole.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// Parses a whole head, its empty line included.
pub(super) fn parse(bytes: &[u8]) -> Result<Head, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| BAD)?;
    let mut lines = text.split("\r\n");
    let mut head = request_line(lines.next().unwrap_or_default())?;
    let mut lengths = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        if !is_token(name) || !value.bytes().all(is_field_byte) {
            return Err(BAD);
        }
        header(
            &mut head,
            &mut lengths,
            &name.to_ascii_lowercase(),
            value.trim(),
        )?;
    }
    if head.http11 && head.host.is_none() {
        return Err((400, "400 Bad Request: missing required Host header"));
    }
    Ok(head)
}

fn request_line(line: &str) -> Result<Head, Refusal> {
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(BAD);
    };
    let http11 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ if version.starts_with("HTTP/") => {
            return Err((
                505,
                "505 HTTP Version Not Supported: unsupported protocol version",
            ));
        }
        _ => return Err(BAD),
    };
    if !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BAD);
    }
    let target = origin_form(target)?;
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Head {
        method: method.to_string(),
        path: path.to_string(),
        query: query.to_string(),
        http11,
        keep_alive: http11,
        content_length: 0,
        expects_continue: false,
        host: None,
        origin: None,
    })
}

/// Proxies send the whole address; its path is what counts.
fn origin_form(target: &str) -> Result<&str, Refusal> {
    if target.starts_with('/') {
        return Ok(target);
    }
    let rest = target.strip_prefix("http://").ok_or(BAD)?;
    Ok(rest.find('/').map_or("/", |at| &rest[at..]))
}

fn header(
    head: &mut Head,
    length: &mut Option<usize>,
    name: &str,
    value: &str,
) -> Result<(), Refusal> {
    match name {
        "content-length" => {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let parsed: usize = value.parse().ok().filter(|_| digits).ok_or(BAD)?;
            if length.is_some_and(|earlier| earlier != parsed) {
                return Err(BAD);
            }
            *length = Some(parsed);
            head.content_length = parsed;
        }
        "transfer-encoding" => {
            return Err((
                411,
                "411 Length Required: send Content-Length instead of chunks",
            ));
        }
        "connection" => {
            for option in value
                .split(',')
                .map(|option| option.trim().to_ascii_lowercase())
            {
                match option.as_str() {
                    "close" => head.keep_alive = false,
                    "keep-alive" if !head.http11 => head.keep_alive = true,
                    _ => {}
                }
            }
        }
        "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
        "host" if head.host.is_some() => return Err(BAD),
        "host" => head.host = Some(value.to_string()),
        "origin" => head.origin = Some(value.to_string()),
        _ => {}
    }
    Ok(())
}

fn is_token(text: &str) -> bool {
    let special = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || special(byte))
}

fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether `host` names this machine by address or as localhost. A web page can make a browser send
/// requests to a loopback listener under a name of its own (DNS rebinding) and read the answer.
pub(super) fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.is_empty()
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, Refusal> {
        parse(text.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn reads_line_and_headers() {
        let parsed = head(
            "POST /a%20b?x=1?y HTTP/1.1\nHost: h:1\ncontent-LENGTH: 12\nExpect: 100-continue\n\n",
        );
        assert_eq!(
            parsed.unwrap(),
            Head {
                method: "POST".into(),
                path: "/a%20b".into(),
                query: "x=1?y".into(),
                http11: true,
                keep_alive: true,
                content_length: 12,
                expects_continue: true,
                host: Some("h:1".into()),
                origin: None,
            }
        );
    }

    #[test]
    fn connection_header_decides_over_the_version() {
        assert!(
            !head("GET / HTTP/1.1\nHost: h\nConnection: foo, Close\n\n")
                .unwrap()
                .keep_alive
        );
        assert!(!head("GET / HTTP/1.0\n\n").unwrap().keep_alive);
        assert!(
            head("GET / HTTP/1.0\nConnection: Keep-Alive\n\n")
                .unwrap()
                .keep_alive
        );
    }

    #[test]
    fn proxies_may_send_the_whole_address() {
        let parsed = head("GET http://h:1/a?b HTTP/1.1\nHost: h\n\n").unwrap();
        assert_eq!((parsed.path.as_str(), parsed.query.as_str()), ("/a", "b"));
        assert_eq!(
            head("GET http://h HTTP/1.1\nHost: h\n\n").unwrap().path,
            "/"
        );
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for text in [
            "GET /\n\n",
            "GET  / HTTP/1.1\nHost: h\n\n",
            "G(T / HTTP/1.1\nHost: h\n\n",
            "GET x HTTP/1.1\nHost: h\n\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\nHost: a\nHost: b\n\n",
            "GET / HTTP/1.1\nHost: h\n folded\n\n",
            "GET / HTTP/1.1\nHost: h\nA : b\n\n",
            "GET / HTTP/1.1\nHost: h\nContent-Length: +1\n\n",
            "GET / HTTP/1.1\nHost: h\nContent-Length: 1\nContent-Length: 2\n\n",
            "GET / HTTP/1.1\nHost: h\nContent-Length: 99999999999999999999999\n\n",
            "GET / HTTP/1.1\nHost: h\u{7f}\n\n",
        ] {
            assert_eq!(head(text).unwrap_err().0, 400, "{text}");
        }
        assert_eq!(head("GET / HTTP/2.0\nHost: h\n\n").unwrap_err().0, 505);
        assert_eq!(
            head("GET / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n")
                .unwrap_err()
                .0,
            411
        );
    }

    #[test]
    fn only_addresses_and_localhost_are_local_names() {
        for host in [
            "127.0.0.1:6060",
            "[::1]:6060",
            "localhost",
            "LOCALHOST:1",
            "a.localhost",
            "",
        ] {
            assert!(is_local_name(host), "{host}");
        }
        for host in [
            "evil.example:6060",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
        ] {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
