//! Tokens of an OpenID Connect issuer, which is played here.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use pilotlight_server::{Config, Oidc, Rights};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::{guarded, tree};
use crate::common::{Local, Response, T0, profile, push_path, try_request};

/// Answers discovery, and the keys of now.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Value>>,
}

impl Issuer {
    fn start() -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(json!({"keys": []})));
        let (own, current) = (url.clone(), keys.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let body = match head.split(' ').nth(1) {
                    Some("/.well-known/openid-configuration") => {
                        json!({"issuer": own, "jwks_uri": format!("{own}/keys")}).to_string()
                    }
                    _ => current.lock().unwrap().to_string(),
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Issuer { url, keys }
    }

    /// Adds the public half of a key.
    fn publish(&self, key: &Key) {
        let mut keys = self.keys.lock().unwrap();
        keys["keys"].as_array_mut().unwrap().push(key.public());
    }
}

struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    fn new(id: &'static str) -> Key {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ES256, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ES256, der.as_ref(), &random).unwrap();
        Key { id, pair }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y})
    }

    fn token(&self, claims: &Value) -> String {
        let text = unsigned(&json!({"alg": "ES256", "kid": self.id}), claims);
        let signature = self
            .pair
            .sign(&SystemRandom::new(), text.as_bytes())
            .unwrap();
        format!("{text}.{}", encoded(signature.as_ref()))
    }
}

fn unsigned(head: &Value, claims: &Value) -> String {
    let part = |value: &Value| encoded(value.to_string().as_bytes());
    format!("{}.{}", part(head), part(claims))
}

/// Signed with a secret that both sides know.
fn shared(secret: &[u8], id: &str, claims: &Value) -> String {
    let text = unsigned(&json!({"alg": "HS256", "kid": id}), claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = ring::hmac::sign(&key, text.as_bytes());
    format!("{text}.{}", encoded(signature.as_ref()))
}

fn now_s() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64
}

fn claims(issuer: &Issuer, change: Value) -> Value {
    let mut claims = json!({
        "iss": issuer.url, "aud": ["other", "profiles"], "sub": "alice", "exp": now_s() + 600,
        "scope": "openid pilotlight:read pilotlight:ingest", "team": {"tenant": "red"},
    });
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn with_issuer(mut config: Config, url: &str) -> Config {
    config.access.oidc = Some(Oidc {
        issuer: url.to_owned(),
        audience: "profiles".to_owned(),
        ca_file: None,
        rights: Rights {
            scopes: Vec::new(),
            tenant: None,
        },
        scope_claim: "scope".to_owned(),
        tenant_claim: Some("team.tenant".to_owned()),
    });
    config
}

fn ask(address: SocketAddr, token: &str, more: &str) -> Response {
    let headers = format!("Authorization: Bearer {token}\r\n{more}");
    try_request(address, "GET", &tree("{}"), &headers, b"").unwrap()
}

#[test]
fn claims_say_who_somebody_is_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::start();
    let key = Key::new("first");
    issuer.publish(&key);
    let server = Local::start(with_issuer(guarded(folder.path()), &issuer.url));
    let at = server.address;
    let token = |change: Value| key.token(&claims(&issuer, change));
    let good = token(json!({}));
    let body = profile(T0, &[(&["main"], 10_000_000)]);
    let push = |token: &str| {
        let headers = format!("Authorization: Bearer {token}\r\n");
        let path = push_path("{service_name=\"shop\"}");
        try_request(at, "POST", &path, &headers, &body).unwrap()
    };
    let pushed = push(&good);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let total = |answer: Response| answer.json()["meta"]["total"].clone();
    assert_eq!(total(ask(at, &good, "")), 10_000_000);
    // The other tenant has nothing, and this one cannot be left.
    let blue = token(json!({"team": {"tenant": "blue"}}));
    assert_eq!(total(ask(at, &blue, "")), 0);
    assert_eq!(ask(at, &good, "X-Scope-OrgID: blue\r\n").status, 403);
    // Lists of scopes are as good as texts; what is missing is missing.
    let reads = token(json!({"scope": ["pilotlight:read"]}));
    assert_eq!(ask(at, &reads, "").status, 200);
    let refused = push(&reads);
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("alice has no right"),
        "{}",
        refused.text()
    );
    // Our own tokens go on, as a password too.
    assert_eq!(ask(at, "secret of red", "").status, 200);
    assert_eq!(ask(at, "secret of nobody", "").status, 401);
    server.stop();
}

#[test]
fn a_token_that_is_forged_old_or_for_others_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::start();
    let (key, stranger) = (Key::new("first"), Key::new("first"));
    issuer.publish(&key);
    let secret = b"everybody knows this one, so it signs nothing";
    let oct = json!({"kty": "oct", "kid": "secret", "alg": "HS256", "k": encoded(secret)});
    issuer.keys.lock().unwrap()["keys"]
        .as_array_mut()
        .unwrap()
        .push(oct);
    let server = Local::start(with_issuer(guarded(folder.path()), &issuer.url));
    let at = server.address;
    let token = |change: Value| key.token(&claims(&issuer, change));
    let good = token(json!({}));
    let (head, rest) = good.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let richer = claims(&issuer, json!({"scope": "pilotlight:admin"}));
    let other_body = format!(
        "{head}.{}.{signature}",
        encoded(richer.to_string().as_bytes())
    );
    let point = key.pair.public_key().as_ref();
    let all = claims(&issuer, json!({}));
    let cases = [
        ("expired", token(json!({"exp": now_s() - 120})), 401),
        ("without an end", token(json!({"exp": null})), 401),
        ("an end that is a text", token(json!({"exp": "never"})), 401),
        ("not yet", token(json!({"nbf": now_s() + 300})), 401),
        (
            "of another issuer",
            token(json!({"iss": "https://elsewhere.example"})),
            401,
        ),
        ("for others", token(json!({"aud": "other"})), 401),
        ("for nobody", token(json!({"aud": null})), 401),
        ("of nobody", token(json!({"sub": null})), 401),
        (
            "none",
            format!("{}.", unsigned(&json!({"alg": "none"}), &all)),
            401,
        ),
        (
            "none, named",
            format!(
                "{}.",
                unsigned(&json!({"alg": "none", "kid": "first"}), &all)
            ),
            401,
        ),
        ("public key as a secret", shared(point, "first", &all), 401),
        ("a published secret", shared(secret, "secret", &all), 401),
        ("another key", stranger.token(&all), 401),
        ("another body", other_body, 401),
        (
            "no signature",
            format!("{head}.{}.", encoded(all.to_string().as_bytes())),
            401,
        ),
        ("unknown key", Key::new("unknown").token(&all), 401),
        ("no tenant", token(json!({"team": null})), 403),
        (
            "odd tenant",
            token(json!({"team": {"tenant": "../red"}})),
            403,
        ),
        (
            "unknown tenant",
            token(json!({"team": {"tenant": "green"}})),
            403,
        ),
        ("no scope", token(json!({"scope": "openid read"})), 403),
    ];
    for (what, token, status) in cases {
        let answer = ask(at, &token, "");
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
    }
    assert_eq!(ask(at, &good, "").status, 200);
    server.stop();
}

#[test]
fn new_keys_are_found_and_a_silent_issuer_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::start();
    let (first, second) = (Key::new("first"), Key::new("second"));
    issuer.publish(&first);
    let server = Local::start(with_issuer(guarded(folder.path()), &issuer.url));
    let all = claims(&issuer, json!({}));
    assert_eq!(ask(server.address, &first.token(&all), "").status, 200);
    issuer.publish(&second);
    let since = Instant::now();
    while ask(server.address, &second.token(&all), "").status != 200 {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "the new key is not found"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(ask(server.address, &first.token(&all), "").status, 200);
    server.stop();

    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(with_issuer(
        guarded(folder.path()),
        &format!("http://{nobody}"),
    ));
    let answer = ask(server.address, &first.token(&all), "");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(
        answer.text().contains(&nobody.to_string()),
        "{}",
        answer.text()
    );
    assert_eq!(ask(server.address, "secret of red", "").status, 200);
    server.stop();
}

#[tokio::test]
async fn an_issuer_without_tls_is_only_taken_on_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let config = with_issuer(guarded(folder.path()), "http://issuer.example");
    let error = pilotlight_server::Server::start(config)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("must be https"), "{error}");
}
