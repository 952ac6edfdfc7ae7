//! Who may ask for what, and whose data that is.
//!
//! A tenant is a store of its own: folder, index, caches, limits and routes. Here a request gets the
//! name of one, from its token; nothing behind knows of another.

pub mod audit;
pub mod cors;
pub mod front;
pub mod oidc;
pub mod scope;
pub mod tenants;

use std::collections::HashMap;
use std::path::PathBuf;

use axum::http::{HeaderMap, Method, StatusCode, header};
use base64::Engine as _;
use sha2::{Digest, Sha256};

pub use oidc::{Identity, Oidc};
pub use scope::Scope;

/// The tenant of those who name none.
pub const DEFAULT_TENANT: &str = "default";
/// Pyroscope's and Grafana's way to name one.
const TENANT_HEADER: &str = "x-scope-orgid";

/// Who may do what.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    /// Without any, and without `clients` and `oidc`, everybody may do everything.
    pub tokens: Vec<Token>,
    /// Those who show a certificate of the authority in [`crate::Config::tls`].
    pub clients: Option<Rights>,
    /// Those who show a token of this issuer.
    pub oidc: Option<Oidc>,
    /// One JSON line for each request that reads.
    pub audit_file: Option<PathBuf>,
    /// Origins of pages that may ask from a browser, such as `https://page.example`; `*` for all.
    pub cors_origins: Vec<String>,
}

impl AccessRules {
    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.clients.is_none() && self.oidc.is_none()
    }
}

/// What somebody may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Allowed.
    pub scopes: Vec<Scope>,
    /// Whose data; `None`: any tenant's, chosen by `X-Scope-OrgID`.
    pub tenant: Option<String>,
}

/// A secret that stands for rights. Only its hash is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// For people: errors and the audit say it.
    pub name: String,
    /// SHA-256 of the secret. A secret is 32 random bytes, so that no slower hash is needed.
    pub sha256: [u8; 32],
    /// What it is for.
    pub rights: Rights,
}

/// SHA-256 of a secret.
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Whether a tenant may have this name: it is a folder's.
pub fn is_tenant_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

/// Whose data a request sees; an extension of it.
#[derive(Clone, Debug)]
pub struct Tenant(pub String);

/// A request that may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// Whose data it sees.
    pub tenant: &'a str,
    /// Name of the token, or how else it is known.
    pub who: &'a str,
    /// Whether it could have chosen any tenant.
    pub of_all: bool,
    /// What was needed.
    pub needed: Option<Scope>,
}

/// Why a request may not.
#[derive(Debug, PartialEq, Eq)]
pub struct Denied {
    /// 401 or 403.
    pub status: StatusCode,
    /// For people.
    pub message: String,
    /// For the counter.
    pub reason: &'static str,
}

fn unauthorized(reason: &'static str, message: &str) -> Denied {
    Denied {
        status: StatusCode::UNAUTHORIZED,
        message: message.to_owned(),
        reason,
    }
}

fn forbidden(reason: &'static str, message: String) -> Denied {
    Denied {
        status: StatusCode::FORBIDDEN,
        message,
        reason,
    }
}

/// What was checked of a request already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// A certificate of the authority that is configured.
    pub certificate: bool,
    /// A token of the issuer that is configured.
    pub identity: Option<&'a Identity>,
}

/// The rules, ready to be asked.
pub struct Access {
    is_open: bool,
    tokens: HashMap<[u8; 32], Token>,
    clients: Option<Rights>,
    tenants: Vec<String>,
}

impl Access {
    /// `tenants`: all that there are, the default one included.
    pub fn new(rules: &AccessRules, tenants: Vec<String>) -> Access {
        let by_hash = |token: &Token| (token.sha256, token.clone());
        Access {
            is_open: rules.is_open(),
            tokens: rules.tokens.iter().map(by_hash).collect(),
            clients: rules.clients.clone(),
            tenants,
        }
    }

    /// Whether the request may go on, and as whom.
    ///
    /// # Errors
    /// [`Denied`], which does not depend on what any tenant holds.
    pub fn judge<'a>(
        &'a self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        shown: Shown<'a>,
    ) -> Result<Grant<'a>, Denied> {
        let Some(needed) = scope::needed(method, path) else {
            return Ok(Grant {
                tenant: DEFAULT_TENANT,
                who: "anybody",
                of_all: false,
                needed: None,
            });
        };
        let asked = headers
            .get(TENANT_HEADER)
            .map(|value| value.to_str().unwrap_or("?"));
        if self.is_open {
            // Clients of others name tenants that mean nothing here, until there are some.
            let asked = asked.filter(|_| self.tenants.len() > 1);
            return self.grant("anybody", needed, None, asked);
        }
        let (who, rights) = self.known(headers, shown)?;
        if !rights.scopes.contains(&needed) {
            let message = format!(
                "{who} has no right to this: it needs the scope {needed}; \
                 use another token, or add the scope under server.access"
            );
            return Err(forbidden("scope", message));
        }
        self.grant(who, needed, rights.tenant.as_deref(), asked)
    }

    fn known<'a>(
        &'a self,
        headers: &HeaderMap,
        shown: Shown<'a>,
    ) -> Result<(&'a str, &'a Rights), Denied> {
        if let Some(identity) = shown.identity {
            return Ok((&identity.who, &identity.rights));
        }
        match (secret(headers)?, &self.clients) {
            (Some(secret), _) => match self.tokens.get(&hash(&secret)) {
                Some(token) => Ok((&token.name, &token.rights)),
                None => Err(unauthorized(
                    "unknown_token",
                    "this token is not known here; make one with: pilotlight token",
                )),
            },
            (None, Some(rights)) if shown.certificate => Ok(("a client's certificate", rights)),
            _ => Err(unauthorized(
                "no_token",
                "a token is needed: send Authorization: Bearer TOKEN, or the token as a password",
            )),
        }
    }

    /// `own`: the only tenant; `asked`: the one that the request names.
    fn grant<'a>(
        &'a self,
        who: &'a str,
        needed: Scope,
        own: Option<&'a str>,
        asked: Option<&str>,
    ) -> Result<Grant<'a>, Denied> {
        let tenant = match (own, asked) {
            (Some(own), Some(asked)) if own != asked => {
                let message =
                    format!("{who} is for the tenant {own}, and X-Scope-OrgID names another");
                return Err(forbidden("tenant", message));
            }
            (Some(own), _) => own,
            (None, asked) => asked.unwrap_or(DEFAULT_TENANT),
        };
        match self.tenants.iter().find(|known| *known == tenant) {
            Some(tenant) => Ok(Grant {
                tenant,
                who,
                of_all: own.is_none(),
                needed: Some(needed),
            }),
            None => Err(forbidden(
                "tenant",
                "X-Scope-OrgID names no tenant of this server; tenants are listed under server.tenants"
                    .to_owned(),
            )),
        }
    }
}

/// The bearer token, or the password of basic authentication: what browsers and Grafana can send.
pub fn secret(headers: &HeaderMap) -> Result<Option<String>, Denied> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let odd = || {
        let message = "Authorization is neither Bearer TOKEN nor Basic with the token as password";
        unauthorized("bad_header", message)
    };
    let (scheme, rest) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(odd)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(odd());
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(rest.trim());
    let text = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(odd)?;
    let (_, password) = text.split_once(':').ok_or_else(odd)?;
    Ok(Some(password.to_owned()))
}

#[cfg(test)]
mod tests;
