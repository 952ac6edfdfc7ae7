//! The issuer's public keys: found by discovery, kept, and asked for again when they are old or a token
//! names one that is not among them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use pilotlight_wire::{Call, Client, TlsClient, Url};
use serde::Deserialize;

use super::crypto::family;

/// Keys are asked for again after so long.
const FRESH: Duration = Duration::from_secs(600);
/// Known keys hold so long while the issuer does not answer.
const LAST: Duration = Duration::from_secs(24 * 3600);
/// The issuer is asked at most so often, whatever tokens name.
const PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: u64 = 1 << 20;

/// Why there is no key.
#[derive(Debug)]
pub enum Failure {
    /// The issuer has no such key.
    Unknown,
    /// It does not answer as it should.
    Issuer(String),
}

/// Keys of an issuer.
pub struct Keys {
    client: Client,
    issuer: String,
    discovery: Url,
    known: Mutex<Known>,
    /// One asks at a time; holds when.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<Vec<Key>>,
    since: Option<Instant>,
}

struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

impl Known {
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let fits = |key: &&Key| {
            let named = id.is_none() || key.id.as_deref() == id;
            let alike = family(algorithm) == Some(key.key.family());
            let said = key.algorithm.as_ref();
            named && alike && said.is_none_or(|said| *said == format!("{algorithm:?}"))
        };
        self.keys.iter().find(fits).map(|key| key.key.clone())
    }

    fn younger_than(&self, age: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() < age)
    }
}

impl Keys {
    /// Asks nobody yet.
    pub fn new(issuer: &str, ca_file: Option<PathBuf>) -> Result<Keys, String> {
        let address = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let tls = TlsClient {
            ca_file,
            ..TlsClient::default()
        };
        Ok(Keys {
            client: Client::new().with_tls(tls),
            issuer: issuer.to_owned(),
            discovery: trusted(&address)?,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    fn known(&self) -> Known {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// The key that a token names.
    pub async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, Failure> {
        let known = self.known();
        let found = known.find(id, algorithm);
        if let (Some(key), true) = (&found, known.younger_than(FRESH)) {
            return Ok(key.clone());
        }
        match (self.ask().await, found) {
            (Ok(()), _) => self.known().find(id, algorithm).ok_or(Failure::Unknown),
            (Err(_), Some(key)) if known.younger_than(LAST) => Ok(key),
            (Err(reason), _) => Err(Failure::Issuer(reason)),
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let mut asked = self.asking.lock().await;
        if asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            return match self.known().since {
                Some(_) => Ok(()),
                None => Err("it did not answer a moment ago".to_owned()),
            };
        }
        *asked = Some(Instant::now());
        let discovered: Discovered = self.get(self.discovery.clone()).await?;
        if discovered.issuer != self.issuer {
            return Err(format!("it calls itself {:?}", discovered.issuer));
        }
        let set: JwkSet = self.get(trusted(&discovered.jwks_uri)?).await?;
        let keys: Vec<Key> = set.keys.iter().filter_map(usable).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Known {
            keys: Arc::new(keys),
            since: Some(Instant::now()),
        };
        Ok(())
    }

    async fn get<T: for<'a> Deserialize<'a>>(&self, url: Url) -> Result<T, String> {
        let call = Call::get(url).timeout(TIMEOUT).max_body(MAX_ANSWER);
        let answer = self.client.send(call).await;
        let answer = answer.and_then(|answer| answer.success());
        let answer = answer.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer.body).map_err(|error| format!("{}: {error}", answer.url))
    }
}

/// Keys that came over a plain connection would be anybody's.
fn trusted(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let loopback = matches!(url.host(), "127.0.0.1" | "localhost" | "[::1]");
    match url.is_secure() || loopback {
        true => Ok(url),
        false => Err(format!("{text} must be https")),
    }
}

/// A key that can check signatures of its owner; secrets cannot.
fn usable(jwk: &Jwk) -> Option<Key> {
    if matches!(&jwk.common.public_key_use, Some(of) if *of != PublicKeyUse::Signature) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let shared = key.family() == AlgorithmFamily::Hmac;
    (!shared).then(|| Key {
        id: jwk.common.key_id.clone(),
        algorithm: jwk.common.key_algorithm.map(|said| said.to_string()),
        key,
    })
}
