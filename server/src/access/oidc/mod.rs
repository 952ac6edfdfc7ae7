//! Tokens of an OpenID Connect issuer: who somebody is, and what its claims allow.

mod crypto;
mod keys;

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::{Denied, Rights, Scope, is_tenant_name};
use keys::{Failure, Keys};

/// Whose tokens are taken, and what they allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oidc {
    /// Its URL, exactly as its tokens say it; `https`, or `http` on loopback.
    pub issuer: String,
    /// What its tokens must be for.
    pub audience: String,
    /// Authorities that vouch for the issuer, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What every token of it may do, and the tenant of those whose token does not say one.
    pub rights: Rights,
    /// Claim with further scopes as `pilotlight:read`: a text with spaces between, or a list. Dots lead
    /// into objects.
    pub scope_claim: String,
    /// Claim that names the tenant; a token without it is refused.
    pub tenant_claim: Option<String>,
}

/// Somebody whose token was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its `sub`.
    pub who: String,
    /// What it may do.
    pub rights: Rights,
}

/// Signatures that only the issuer can make. `none` and secrets that both sides know are not among them.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Seconds that two clocks may differ by.
const LEEWAY_S: u64 = 30;
const SCOPE_PREFIX: &str = "pilotlight:";

/// Checks tokens.
pub struct Verifier {
    rules: Oidc,
    keys: Arc<Keys>,
}

fn denied(reason: &'static str, message: String) -> Denied {
    Denied {
        status: StatusCode::UNAUTHORIZED,
        message,
        reason,
    }
}

/// Whether a secret looks like a token of an issuer, rather than one of ours.
pub fn is_jwt(secret: &str) -> bool {
    secret.starts_with("ey") && secret.matches('.').count() == 2
}

impl Verifier {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// When the issuer is no URL that can be trusted.
    pub fn new(rules: Oidc) -> Result<Verifier, String> {
        crypto::install();
        let keys = Arc::new(Keys::new(&rules.issuer, rules.ca_file.clone())?);
        Ok(Verifier { rules, keys })
    }

    /// Who showed this token.
    ///
    /// # Errors
    /// [`Denied`]: 401 for a bad token, 503 when the issuer's keys cannot be had.
    pub async fn identify(&self, token: &str) -> Result<Identity, Denied> {
        let head = decode_header(token)
            .map_err(|error| denied("bad_jwt", format!("the token cannot be read: {error}")))?;
        if !ALGORITHMS.contains(&head.alg) {
            let message = format!("tokens signed by {:?} are not taken", head.alg);
            return Err(denied("jwt_algorithm", message));
        }
        let key = match self.keys.find(head.kid.as_deref(), head.alg).await {
            Ok(key) => key,
            Err(Failure::Unknown) => {
                let message = "the token is signed by a key that its issuer does not have";
                return Err(denied("jwt_key", message.to_owned()));
            }
            Err(Failure::Issuer(reason)) => {
                let issuer = &self.rules.issuer;
                return Err(Denied {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    message: format!("the keys of {issuer} cannot be had: {reason}"),
                    reason: "issuer",
                });
            }
        };
        let mut validation = Validation::new(head.alg);
        validation.set_issuer(&[&self.rules.issuer]);
        validation.set_audience(&[&self.rules.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_S;
        let claims = decode::<Map<String, Value>>(token, &key, &validation)
            .map_err(|error| denied("bad_jwt", format!("the token is refused: {error}")))?;
        self.rules.identity(&claims.claims)
    }
}

impl Oidc {
    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, Denied> {
        let who = claims.get("sub").and_then(Value::as_str).unwrap_or("");
        let mut scopes = self.rights.scopes.clone();
        for word in words(claim(claims, &self.scope_claim)) {
            let scope = word.strip_prefix(SCOPE_PREFIX).and_then(Scope::of_word);
            scopes.extend(scope.filter(|scope| !self.rights.scopes.contains(scope)));
        }
        let tenant = match &self.tenant_claim {
            None => self.rights.tenant.clone(),
            Some(name) => {
                let named = claim(claims, name).and_then(Value::as_str);
                let named = named.filter(|tenant| is_tenant_name(tenant));
                let message = || format!("the claim {name} of the token names no tenant");
                let named = named.ok_or_else(|| Denied {
                    status: StatusCode::FORBIDDEN,
                    message: message(),
                    reason: "tenant",
                });
                Some(named?.to_owned())
            }
        };
        Ok(Identity {
            who: who.chars().take(128).collect(),
            rights: Rights { scopes, tenant },
        })
    }
}

/// A claim by its path.
fn claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    // A name with dots in it, such as a URL, comes first.
    if let Some(whole) = claims.get(path) {
        return Some(whole);
    }
    let mut parts = path.split('.');
    let first = claims.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

fn words(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => text.split_whitespace().collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
