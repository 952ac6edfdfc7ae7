//! The server's HTTP API, as the verbs need it.

use crate::args::Remote;
use crate::fail::Failure;
use pilotlight_wire::{Answer, Authorization, Bytes, Call, Client, Error, TlsClient, Url};
use serde_json::Value;

/// A server that is asked.
pub struct Api {
    client: Client,
    base: Url,
}

impl Api {
    /// Checks the URL only.
    pub fn new(remote: &Remote) -> Result<Self, Failure> {
        let base = Url::parse(&remote.server).map_err(|error| {
            Failure::new(
                error.to_string(),
                "the same command with --server http://127.0.0.1:4040",
            )
            .usage()
        })?;
        let mut api = Self::at(base, remote.authorization());
        if remote.ca_file.is_some() {
            let tls = TlsClient {
                ca_file: remote.ca_file.clone(),
                ..TlsClient::default()
            };
            api.client = api.client.with_tls(tls);
        }
        Ok(api)
    }

    /// A server at a checked URL.
    pub fn at(base: Url, authorization: Option<Authorization>) -> Self {
        Self {
            client: Client::new().authorized(authorization),
            base,
        }
    }

    /// Where it is.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// A JSON answer.
    pub async fn get(&self, path: &str, pairs: &[(&str, &str)]) -> Result<Value, Failure> {
        let url = self.base.with_path_and_query(path, pairs.iter().copied());
        self.json(Call::get(url)).await
    }

    /// Sends bytes, answers JSON.
    pub async fn post(
        &self,
        path: &str,
        pairs: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Value, Failure> {
        let url = self.base.with_path_and_query(path, pairs.iter().copied());
        self.json(Call::post(url, body)).await
    }

    async fn json(&self, call: Call) -> Result<Value, Failure> {
        let answer = self
            .client
            .send(call)
            .await
            .map_err(|error| self.failed(&error))?;
        if let Some(text) = refusal(&answer) {
            return Err(Failure::new(text, self.next()));
        }
        let answer = answer.success().map_err(|error| self.failed(&error))?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            let text = format!(
                "{}: not the JSON of a pilotlight server: {error}",
                answer.url
            );
            Failure::new(text, self.next())
        })
    }

    fn failed(&self, error: &Error) -> Failure {
        let next = match error {
            // Somebody answered: it is not to be started.
            Error::Connect { .. } if error.to_string().contains("certificate") => {
                "the same command with --ca-file FILE, the authority of the server's certificate"
                    .to_owned()
            }
            Error::Connect { .. } => {
                "pilotlight up, or the same command with --server URL".to_owned()
            }
            _ => self.next(),
        };
        Failure::new(error.to_string(), next)
    }

    fn next(&self) -> String {
        format!(
            "curl '{}'",
            self.base.with_path_and_query("/api/v1/status", [])
        )
    }
}

/// The server's own words for a refusal.
fn refusal(answer: &Answer) -> Option<String> {
    if answer.status.is_success() {
        return None;
    }
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(format!("{}: {}", answer.url, body.get("error")?.as_str()?))
}
