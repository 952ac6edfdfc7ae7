//! What a request needs to be allowed.

use std::fmt;

use axum::http::Method;

/// A right of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Send profiles, by any protocol.
    Ingest,
    /// Ask for profiles, names, labels and the page.
    Read,
    /// Upload debuginfo.
    Debuginfo,
    /// Metrics and the server's own profile.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 4] = [Scope::Ingest, Scope::Read, Scope::Debuginfo, Scope::Admin];

    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Ingest => "ingest",
            Scope::Read => "read",
            Scope::Debuginfo => "debuginfo",
            Scope::Admin => "admin",
        }
    }

    /// The scope of that word.
    pub fn of_word(word: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Answered to everybody: says no more than that there is a server.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/ready"];

/// Beginnings of paths that change or send something; all else only reads.
const BEGINNINGS: [(&str, Scope); 10] = [
    ("/api/v1/push", Scope::Ingest),
    ("/ingest", Scope::Ingest),
    ("/push.v1.", Scope::Ingest),
    ("/v1development/profiles", Scope::Ingest),
    ("/opentelemetry.proto.collector.", Scope::Ingest),
    ("/parca.profilestore.", Scope::Ingest),
    ("/api/profiles/write", Scope::Ingest),
    ("/parca.debuginfo.", Scope::Debuginfo),
    ("/metrics", Scope::Admin),
    ("/debug/pprof/cmdline", Scope::Admin),
];

/// `None`: nothing. What nobody thought of needs [`Scope::Read`].
pub fn needed(method: &Method, path: &str) -> Option<Scope> {
    if OPEN.contains(&path) {
        return None;
    }
    let is_write = !matches!(*method, Method::GET | Method::HEAD);
    if is_write && path.starts_with("/api/v1/debuginfo") {
        return Some(Scope::Debuginfo);
    }
    let known = BEGINNINGS
        .iter()
        .find(|(beginning, _)| path.starts_with(beginning));
    Some(known.map_or(Scope::Read, |&(_, scope)| scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_needs_what_it_does() {
        let table = [
            ("GET", "/healthz", None),
            ("GET", "/healthz/x", Some(Scope::Read)),
            ("POST", "/api/v1/push", Some(Scope::Ingest)),
            ("POST", "/ingest", Some(Scope::Ingest)),
            ("POST", "/push.v1.PusherService/Push", Some(Scope::Ingest)),
            ("POST", "/api/profiles/writeraw", Some(Scope::Ingest)),
            (
                "POST",
                "/querier.v1.QuerierService/Series",
                Some(Scope::Read),
            ),
            ("GET", "/api/v1/tree", Some(Scope::Read)),
            ("GET", "/", Some(Scope::Read)),
            ("GET", "/metrics", Some(Scope::Admin)),
            ("GET", "/api/v1/debuginfo", Some(Scope::Read)),
            ("POST", "/api/v1/debuginfo/want", Some(Scope::Debuginfo)),
            ("PUT", "/api/v1/debuginfo/upload/1", Some(Scope::Debuginfo)),
            ("GET", "/buildid/00/debuginfo", Some(Scope::Read)),
            ("DELETE", "/anything", Some(Scope::Read)),
        ];
        for (method, path, scope) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(needed(&method, path), scope, "{method} {path}");
        }
    }
}
