//! `server.access`, `server.tenants` and `server.tls`.

use super::ServerRules;
use pilotlight_scraper::config::reader::{Problems, Section};
use pilotlight_server::{Oidc, Rights, Scope, TlsFiles, Token, is_tenant_name};
use serde_json::Value;
use std::path::Path;

/// Who may do what; files are relative to `folder`.
pub fn read(server: &mut Section<'_>, problems: &Problems, folder: &Path, rules: &mut ServerRules) {
    rules.tenants = server.texts("tenants");
    for tenant in &rules.tenants {
        if !is_tenant_name(tenant) {
            let text = format!("{tenant:?}: a name is 1 to 64 letters, digits, '-', '_' or '.'");
            server.problem("tenants", text);
        }
    }
    let nothing = Value::Null;
    let value = server.value("tls").unwrap_or(&nothing);
    if !value.is_null() {
        rules.tls = tls(Section::new("server.tls", value, problems), folder);
    }
    let value = server.value("access").unwrap_or(&nothing);
    let mut access = Section::new("server.access", value, problems);
    rules.access.audit_file = access.text("audit_file").map(|file| folder.join(file));
    rules.access.cors_origins = access.texts("cors_origins");
    for (place, value) in access.list("tokens") {
        let section = Section::new(place, value, problems);
        rules.access.tokens.extend(token(section, &rules.tenants));
    }
    if let Some(value) = access.value("clients") {
        let mut section = Section::new("server.access.clients", value, problems);
        let has_authority = rules
            .tls
            .as_ref()
            .is_some_and(|tls| tls.client_authority.is_some());
        if !has_authority {
            section.problem(
                "scopes",
                "nobody can show a certificate without server.tls.client_ca_file",
            );
        }
        rules.access.clients = Some(rights(&mut section, &rules.tenants));
        section.finish(|_| None);
    }
    if let Some(value) = access.value("oidc") {
        let section = Section::new("server.access.oidc", value, problems);
        rules.access.oidc = oidc(section, &rules.tenants, folder);
    }
    access.finish(|_| None);
}

fn oidc(mut section: Section<'_>, tenants: &[String], folder: &Path) -> Option<Oidc> {
    let mut needed = |key: &'static str, what: &str| {
        let text = section.text(key);
        if text.is_none() {
            section.problem(key, what);
        }
        text
    };
    let issuer = needed("issuer", "the URL of the issuer, as its tokens say it");
    let audience = needed(
        "audience",
        "what tokens must be for, such as this server's client id",
    );
    let scopes = scopes(&mut section);
    let tenant = tenant(&mut section, tenants);
    let oidc = Oidc {
        issuer: issuer.unwrap_or_default(),
        audience: audience.unwrap_or_default(),
        ca_file: section.text("ca_file").map(|file| folder.join(file)),
        rights: Rights { scopes, tenant },
        scope_claim: section
            .text("scope_claim")
            .unwrap_or_else(|| "scope".to_owned()),
        tenant_claim: section.text("tenant_claim"),
    };
    section.finish(|_| None);
    Some(oidc).filter(|oidc| !oidc.issuer.is_empty() && !oidc.audience.is_empty())
}

fn tls(mut section: Section<'_>, folder: &Path) -> Option<TlsFiles> {
    let mut file = |key| section.text(key).map(|file| folder.join(file));
    let (certificate, key) = (file("cert_file"), file("key_file"));
    let client_authority = file("client_ca_file");
    let files = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate,
            key,
            client_authority,
        }),
        _ => {
            section.problem("cert_file", "TLS needs cert_file and key_file");
            None
        }
    };
    section.finish(|_| None);
    files
}

fn token(mut section: Section<'_>, tenants: &[String]) -> Option<Token> {
    let name = section.text("name").unwrap_or_default();
    if name.is_empty() {
        section.problem(
            "name",
            "every token needs a name: errors and the audit say it",
        );
    }
    let text = section.text("sha256").unwrap_or_default();
    let sha256 = unhex(&text);
    if sha256.is_none() {
        section.problem(
            "sha256",
            "must be 64 hex digits, as pilotlight token prints them",
        );
    }
    let rights = rights(&mut section, tenants);
    section.finish(|_| None);
    Some(Token {
        name,
        sha256: sha256?,
        rights,
    })
}

fn rights(section: &mut Section<'_>, tenants: &[String]) -> Rights {
    let scopes = scopes(section);
    if scopes.is_empty() {
        section.problem(
            "scopes",
            "name at least one of ingest, read, debuginfo and admin",
        );
    }
    let tenant = tenant(section, tenants);
    Rights { scopes, tenant }
}

fn scopes(section: &mut Section<'_>) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for word in section.texts("scopes") {
        match Scope::of_word(&word) {
            Some(scope) => scopes.push(scope),
            None => section.problem(
                "scopes",
                format!("{word:?} is none of ingest, read, debuginfo and admin"),
            ),
        }
    }
    scopes
}

/// `None` is any tenant.
fn tenant(section: &mut Section<'_>, tenants: &[String]) -> Option<String> {
    let tenant = section
        .text("tenant")
        .unwrap_or_else(|| "default".to_owned());
    if tenant != "*" && tenant != "default" && !tenants.contains(&tenant) {
        section.problem(
            "tenant",
            format!("{tenant:?} is not listed in server.tenants"),
        );
    }
    (tenant != "*").then_some(tenant)
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(value: &Value) -> (ServerRules, Vec<String>) {
        let problems = Problems::default();
        let mut rules = ServerRules::default();
        let mut server = Section::new("server", value, &problems);
        read(
            &mut server,
            &problems,
            Path::new("/etc/pilotlight"),
            &mut rules,
        );
        (rules, problems.into_vec())
    }

    #[test]
    fn tokens_have_a_hash_scopes_and_a_tenant() {
        let hash = "ab".repeat(32);
        let (rules, problems) = parsed(&json!({
            "tenants": ["red"],
            "tls": {"cert_file": "c.pem", "key_file": "/k.pem", "client_ca_file": "ca.pem"},
            "access": {
                "audit_file": "audit.jsonl",
                "tokens": [
                    {"name": "a", "sha256": hash, "scopes": ["ingest"], "tenant": "red"},
                    {"name": "b", "sha256": hash, "scopes": ["read", "admin"], "tenant": "*"},
                ],
                "clients": {"scopes": ["read"]},
                "oidc": {"issuer": "https://id.example", "audience": "p", "tenant_claim": "t"},
            },
        }));
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(rules.access.tokens[0].rights.tenant.as_deref(), Some("red"));
        assert_eq!(rules.access.tokens[0].sha256, [0xab; 32]);
        assert_eq!(rules.access.tokens[1].rights.tenant, None);
        assert_eq!(
            rules.access.tokens[1].rights.scopes,
            [Scope::Read, Scope::Admin]
        );
        let clients = rules.access.clients.unwrap();
        assert_eq!(clients.tenant.as_deref(), Some("default"));
        let oidc = rules.access.oidc.unwrap();
        assert_eq!(oidc.issuer, "https://id.example");
        assert_eq!((oidc.rights.scopes.len(), &*oidc.scope_claim), (0, "scope"));
        let tls = rules.tls.unwrap();
        assert_eq!(tls.certificate, Path::new("/etc/pilotlight/c.pem"));
        assert_eq!(tls.key, Path::new("/k.pem"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let (_, problems) = parsed(&json!({
            "tenants": ["../x"],
            "tls": {"cert_file": "c.pem"},
            "access": {
                "tokens": [{"name": "a", "sha256": "12", "scopes": ["write"], "tenant": "blue"}],
                "clients": {"scopes": ["read"]},
                "oidc": {"issuer": "https://id.example"},
            },
        }));
        for expected in [
            "server.tenants: \"../x\"",
            "server.tls.cert_file: TLS needs",
            "server.access.tokens[0].sha256: must be 64 hex digits",
            "server.access.tokens[0].scopes: \"write\" is none of",
            "server.access.tokens[0].tenant: \"blue\" is not listed",
            "server.access.oidc.audience: what tokens",
            "server.access.clients.scopes: nobody can show",
        ] {
            let found = problems.iter().any(|problem| problem.starts_with(expected));
            assert!(found, "{expected}: {problems:#?}");
        }
    }
}
