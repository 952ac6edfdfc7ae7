//! The URLs we call: `http://host[:port]/path?query`, and `https` with the feature `client-tls`.

use crate::Error;
use std::fmt;

/// A checked URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Url {
    secure: bool,
    host: String,
    port: Option<u16>,
    path: String,
    query: String,
}

impl Url {
    /// Reads a URL; a missing path becomes `/`.
    ///
    /// # Errors
    /// [`Error::NoTls`] for `https` without the feature `client-tls`, [`Error::BadUrl`] for anything that is neither.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::BadUrl {
            url: text.to_owned(),
            reason: reason.to_owned(),
        };
        let uri: http::Uri = text
            .parse()
            .map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") if cfg!(feature = "client-tls") => true,
            Some("https") => {
                return Err(Error::NoTls {
                    url: text.to_owned(),
                });
            }
            Some(other) => {
                return Err(bad(&format!("scheme {other:?} is neither http nor https")));
            }
            None => return Err(bad("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("user and password in a URL are not supported yet"));
        }
        if authority.host().is_empty() {
            return Err(bad("it has no host"));
        }
        if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none() {
            return Err(bad("the port must be a number from 0 to 65535"));
        }
        Ok(Self {
            secure,
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        })
    }

    /// The same URL with another path and these parameters, encoded in the order given.
    #[must_use]
    pub fn with_path_and_query<'a>(
        &self,
        path: &str,
        query: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            query: encode_query(query),
            ..self.clone()
        }
    }

    /// Host without port, lower case; IPv6 in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the host is this machine by its very name: `localhost` or an address of the loopback.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.trim_start_matches('[').trim_end_matches(']');
        self.host == "localhost"
            || address
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }

    /// The port that is connected to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.secure { 443 } else { 80 })
    }

    /// Whether it is `https`.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The process behind the URL: host and port, `localhost` read as 127.0.0.1.
    ///
    /// Two URLs with equal addresses reach the same listener.
    pub fn address(&self) -> String {
        let host = if self.host == "localhost" {
            "127.0.0.1"
        } else {
            &self.host
        };
        format!("{host}:{}", self.port())
    }

    /// The path, beginning with `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The encoded query without `?`; empty when there is none.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The same URL at another host, port kept.
    #[must_use]
    pub fn at_host(&self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self.clone()
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        Ok(())
    }
}

/// Encodes parameters as `application/x-www-form-urlencoded`, as Go's `url.Values.Encode` does per pair.
pub fn encode_query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        encode_into(name, &mut out);
        out.push('=');
        encode_into(value, &mut out);
    }
    out
}

fn encode_into(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte))
            }
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_read_where_there_is_tls_and_refused_where_there_is_none() {
        let read = Url::parse("https://Example.com/x?y=1");
        assert_eq!(read.is_ok(), cfg!(feature = "client-tls"));
        match read {
            Ok(url) => {
                assert!(url.is_secure());
                assert_eq!(url.to_string(), "https://example.com/x?y=1");
                assert_eq!(url.address(), "example.com:443");
            }
            Err(error) => {
                assert!(matches!(error, Error::NoTls { .. }));
                assert!(error.to_string().contains("without TLS"), "{error}");
            }
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        let is = |text: &str| Url::parse(text).unwrap().is_loopback();
        let own = ["localhost:1", "127.0.0.1", "127.8.0.1:80", "[::1]:4040"];
        assert!(own.iter().all(|own| is(&format!("http://{own}/"))));
        let others = ["localhost.example.com", "10.0.0.1", "0.0.0.0", "[::2]"];
        assert!(others.iter().all(|other| !is(&format!("http://{other}/"))));
    }

    #[test]
    fn a_url_without_scheme_port_number_or_host_is_refused_with_its_text() {
        for text in [
            "127.0.0.1:80",
            "http://host:port/",
            "http://host:99999/",
            "ftp://host/",
            "http://u:p@host/",
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn localhost_and_loopback_are_one_process() {
        let a = Url::parse("http://LOCALHOST:6060/debug/pprof/heap").unwrap();
        let b = Url::parse("http://127.0.0.1:6060/debug/pprof/profile?seconds=1").unwrap();
        assert_eq!(a.address(), b.address());
        assert_eq!(
            b.to_string(),
            "http://127.0.0.1:6060/debug/pprof/profile?seconds=1"
        );
        assert_eq!(Url::parse("http://[::1]:7/").unwrap().address(), "[::1]:7");
        assert_eq!(Url::parse("http://host").unwrap().address(), "host:80");
    }

    #[test]
    fn query_values_are_encoded_as_go_does() {
        let url = Url::parse("http://h:1/").unwrap();
        let pairs = [("series", "{a=\"b c\"}"), ("é", "1&2")];
        assert_eq!(
            url.with_path_and_query("/p", pairs).to_string(),
            "http://h:1/p?series=%7Ba%3D%22b+c%22%7D&%C3%A9=1%262"
        );
    }
}
