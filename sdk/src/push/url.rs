//! `http://host:port/path`, and what may stand in a query.

/// Where to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// As the `Host` header has it, and as it is resolved.
    pub(super) authority: String,
    pub(super) path: String,
}

impl Url {
    /// `None` for anything but plain HTTP; `path` stands in for none.
    pub(super) fn parse(text: &str, path: &str) -> Option<Url> {
        let rest = text.strip_prefix("http://")?;
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, given) = rest.split_at(at);
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '#' | '?');
        if authority.is_empty() || !rest.chars().all(plain) {
            return None;
        }
        let has_port = match authority.rsplit_once(':') {
            Some((host, port)) => !host.is_empty() && !port.ends_with(']'),
            None => false,
        };
        let port = if has_port { "" } else { ":80" };
        let given = given.trim_end_matches('/');
        Some(Url {
            authority: format!("{authority}{port}"),
            path: if given.is_empty() { path } else { given }.to_string(),
        })
    }
}

/// Percent-encoding of everything but letters, digits and `-._~`.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into());
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
