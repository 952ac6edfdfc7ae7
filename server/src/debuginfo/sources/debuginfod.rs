//! The client of debuginfod servers. One path is asked, of the servers that the operator names, at
//! addresses that are checked when they are connected to; a redirect leads to such a place or nowhere.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use pilotlight_wire::{Bytes, Call, Client as Http, Error, HeaderMap, Opened, StatusCode, Url};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::addresses::guard;
use super::{Outcome, Sources};
use crate::log;

/// Redirects of one question.
const MAX_REDIRECTS: usize = 3;

struct Server {
    url: Url,
    /// With a guard that knows what this server's URL names.
    http: Http,
}

impl Server {
    /// The only path that is ever asked.
    fn path(&self, build_id: &str) -> String {
        let base = self.url.path().trim_end_matches('/');
        format!("{base}/buildid/{build_id}/debuginfo")
    }

    fn question(&self, build_id: &str) -> Url {
        self.url.with_path_and_query(&self.path(build_id), [])
    }

    /// Whether a URL is this server's answer to the same question, perhaps by TLS.
    fn answers_at(&self, url: &Url, build_id: &str) -> bool {
        let upgraded = url.is_secure() && !self.url.is_secure() && url.port() == 443;
        let port = url.port() == self.url.port() && url.is_secure() >= self.url.is_secure();
        url.host() == self.url.host()
            && (port || upgraded)
            && url.path() == self.path(build_id)
            && url.query().is_empty()
    }
}

/// Why a server gave no file: what is counted, and the words for the log.
#[derive(Debug)]
pub struct NotGiven {
    /// What is counted.
    pub outcome: Outcome,
    /// For people.
    pub reason: String,
}

impl NotGiven {
    fn new(outcome: Outcome, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { outcome, reason }
    }
}

impl From<Error> for NotGiven {
    fn from(error: Error) -> Self {
        let outcome = match &error {
            Error::Refused { .. } => Outcome::Refused,
            Error::Timeout { .. } => Outcome::Late,
            Error::TooLarge { .. } => Outcome::TooLarge,
            _ => Outcome::Failed,
        };
        Self::new(outcome, error.to_string())
    }
}

/// The configured servers.
pub struct Client {
    servers: Vec<Server>,
    timeout: Duration,
    max_bytes: u64,
    /// Between two requests.
    pace: Duration,
    next: Mutex<Instant>,
}

impl Client {
    /// For the servers of `sources`; no file has more than `max_file_bytes`.
    pub fn new(sources: &Sources, max_file_bytes: u64) -> Self {
        let server = |url: &Url| Server {
            url: url.clone(),
            http: Http::new().guarded(guard(url, &sources.networks)),
        };
        Self {
            servers: sources.debuginfod.iter().map(server).collect(),
            timeout: sources.timeout,
            max_bytes: sources.max_file_bytes.min(max_file_bytes),
            pace: Duration::from_secs(60) / sources.requests_per_minute.max(1),
            next: Mutex::new(Instant::now()),
        }
    }

    /// How many servers there are; they are asked by number.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Asks a server for a build id (hex), and writes its file to `to`.
    ///
    /// # Errors
    /// When it gives none.
    pub async fn ask(&self, server: usize, build_id: &str, to: &Path) -> Result<(), NotGiven> {
        let asked = timeout(self.timeout, self.follow(server, build_id, to)).await;
        asked.unwrap_or_else(|_| {
            let reason = format!("the file was not there within {:?}", self.timeout);
            Err(NotGiven::new(Outcome::Late, reason))
        })
    }

    async fn follow(&self, server: usize, build_id: &str, to: &Path) -> Result<(), NotGiven> {
        let mut server = &self.servers[server];
        let mut url = server.question(build_id);
        for _ in 0..=MAX_REDIRECTS {
            self.take_turn().await;
            let call = Call::get(url.clone()).timeout(self.timeout);
            let opened = server.http.open(call.max_body(self.max_bytes)).await?;
            match opened.status {
                StatusCode::OK => return self.write(opened, to).await,
                StatusCode::NOT_FOUND | StatusCode::GONE => {
                    return Err(NotGiven::new(Outcome::Missing, "it has none"));
                }
                status if status.is_redirection() => {
                    (server, url) = self.redirect(&url, &opened.headers, build_id)?;
                }
                status => {
                    let reason = format!("{url}: status {status}");
                    return Err(NotGiven::new(Outcome::Failed, reason));
                }
            }
        }
        let reason = format!("{url}: more than {MAX_REDIRECTS} redirects");
        Err(NotGiven::new(Outcome::Refused, reason))
    }

    /// Waits until another request is allowed.
    async fn take_turn(&self) {
        let turn = {
            let mut next = self
                .next
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            let turn = (*next).max(Instant::now());
            *next = turn + self.pace;
            turn
        };
        sleep_until(turn).await;
    }

    /// Where an answer leads, if we go there.
    fn redirect(
        &self,
        from: &Url,
        headers: &HeaderMap,
        build_id: &str,
    ) -> Result<(&Server, Url), NotGiven> {
        let location = headers
            .get("location")
            .and_then(|value| value.to_str().ok());
        let location = location.unwrap_or_default();
        let refused = |why: &str| {
            let reason = format!("{from} redirects to {location:?}, {why}");
            NotGiven::new(Outcome::Refused, reason)
        };
        let url = match location.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => Ok(from.with_path_and_query(location, [])),
            _ => Url::parse(location),
        };
        let url = url.map_err(|_| refused("which is no URL of http or https"))?;
        if from.is_secure() && !url.is_secure() {
            return Err(refused("away from TLS"));
        }
        let server = self
            .servers
            .iter()
            .find(|server| server.answers_at(&url, build_id));
        let server = server.ok_or_else(|| {
            refused("which is not the same file at one of server.debuginfo.debuginfod_urls")
        })?;
        Ok((server, url))
    }

    async fn write(&self, mut opened: Opened, to: &Path) -> Result<(), NotGiven> {
        let disk = |error: std::io::Error| {
            NotGiven::new(Outcome::Failed, format!("{}: {error}", to.display()))
        };
        let mut file = tokio::fs::File::create(to).await.map_err(disk)?;
        while let Some(piece) = self.piece(&mut opened).await? {
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)
    }

    /// The next bytes; a server that falls silent for long is given up.
    async fn piece(&self, opened: &mut Opened) -> Result<Option<Bytes>, NotGiven> {
        let silence = self.timeout / 10;
        let Ok(piece) = timeout(silence, opened.next()).await else {
            let reason = format!("nothing came for {silence:?}");
            return Err(NotGiven::new(Outcome::Late, reason));
        };
        Ok(piece?)
    }

    /// Says in the log what a server did not give, unless it simply has none.
    pub fn log(&self, server: usize, build_id: &str, not: &NotGiven) {
        if not.outcome == Outcome::Missing {
            return;
        }
        let url = &self.servers[server].url;
        log::warn(
            "a debuginfod server gave no file",
            &[
                ("server", url),
                ("build_id", &build_id),
                ("outcome", &not.outcome.word()),
                ("reason", &not.reason),
            ],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff00112233";

    fn client(urls: &[&str]) -> Client {
        let sources = Sources {
            debuginfod: urls.iter().map(|url| Url::parse(url).unwrap()).collect(),
            ..Sources::default()
        };
        Client::new(&sources, u64::MAX)
    }

    fn leads(client: &Client, from: &str, location: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("location", location.parse().unwrap());
        let from = Url::parse(from).unwrap();
        let led = client.redirect(&from, &headers, ID);
        led.ok().map(|(_, url)| url.to_string())
    }

    #[test]
    fn one_path_is_asked() {
        let client = client(&["http://one.example/", "https://two.example/base/"]);
        let asked = |at: usize| client.servers[at].question(ID).to_string();
        assert_eq!(
            asked(0),
            format!("http://one.example/buildid/{ID}/debuginfo")
        );
        assert_eq!(
            asked(1),
            format!("https://two.example/base/buildid/{ID}/debuginfo")
        );
    }

    #[test]
    fn a_redirect_leads_to_the_same_file_at_a_configured_server_or_nowhere() {
        let client = client(&["http://one.example/", "https://two.example/base"]);
        let from = format!("http://one.example/buildid/{ID}/debuginfo");
        for good in [
            format!("https://two.example/base/buildid/{ID}/debuginfo"),
            format!("https://one.example/buildid/{ID}/debuginfo"),
            from.clone(),
        ] {
            assert_eq!(leads(&client, &from, &good), Some(good));
        }
        let relative = format!("/buildid/{ID}/debuginfo");
        assert_eq!(leads(&client, &from, &relative), Some(from.clone()));
        for bad in [
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            format!("http://169.254.169.254/buildid/{ID}/debuginfo"),
            format!("http://three.example/buildid/{ID}/debuginfo"),
            format!("http://one.example:8080/buildid/{ID}/debuginfo"),
            format!("http://two.example/base/buildid/{ID}/debuginfo"),
            format!("//one.example/buildid/{ID}/debuginfo"),
            format!("http://one.example/buildid/{ID}/executable"),
            format!("http://one.example/buildid/{ID}/debuginfo?x=1"),
            format!("http://a@one.example/buildid/{ID}/debuginfo"),
            "/admin".to_owned(),
            "file:///etc/passwd".to_owned(),
            "gopher://one.example/".to_owned(),
            String::new(),
        ] {
            assert_eq!(leads(&client, &from, &bad), None, "{bad}");
        }
        let secure = format!("https://two.example/base/buildid/{ID}/debuginfo");
        assert_eq!(leads(&client, &secure, &from), None, "away from TLS");
    }
}
