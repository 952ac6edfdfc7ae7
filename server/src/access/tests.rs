use super::*;

fn token(name: &str, scopes: &[Scope], tenant: Option<&str>) -> Token {
    Token {
        name: name.into(),
        sha256: hash(&format!("secret of {name}")),
        rights: Rights {
            scopes: scopes.to_vec(),
            tenant: tenant.map(str::to_owned),
        },
    }
}

fn access(clients: Option<Rights>) -> Access {
    let rules = AccessRules {
        tokens: vec![
            token("sender", &[Scope::Ingest], Some("a")),
            token("reader", &[Scope::Read], Some("b")),
            token("root", &Scope::ALL, None),
        ],
        clients,
        ..AccessRules::default()
    };
    let tenants = ["default", "a", "b"].map(str::to_owned);
    Access::new(&rules, tenants.to_vec())
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair =
        |&(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
    pairs.iter().map(pair).collect()
}

/// Tenant and name, or the status and reason.
fn judged(
    access: &Access,
    method: &str,
    path: &str,
    pairs: &[(&'static str, &str)],
) -> Result<(String, String), (u16, &'static str)> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    match access.judge(&method, path, &headers(pairs), Shown::default()) {
        Ok(grant) => Ok((grant.tenant.into(), grant.who.into())),
        Err(denied) => Err((denied.status.as_u16(), denied.reason)),
    }
}

const PUSH: (&str, &str) = ("POST", "/api/v1/push");
const TREE: (&str, &str) = ("GET", "/api/v1/tree");

fn bearer(name: &str) -> String {
    format!("Bearer secret of {name}")
}

#[test]
fn a_token_opens_what_it_is_for_and_nothing_else() {
    let access = access(None);
    let with = |(method, path): (&str, &str), name: &str| {
        judged(&access, method, path, &[("authorization", &bearer(name))])
    };
    assert_eq!(with(PUSH, "sender"), Ok(("a".into(), "sender".into())));
    assert_eq!(with(TREE, "reader"), Ok(("b".into(), "reader".into())));
    assert_eq!(with(TREE, "sender"), Err((403, "scope")));
    assert_eq!(with(PUSH, "reader"), Err((403, "scope")));
    assert_eq!(with(TREE, "root"), Ok(("default".into(), "root".into())));
    assert_eq!(with(TREE, "nobody"), Err((401, "unknown_token")));
    assert_eq!(judged(&access, TREE.0, TREE.1, &[]), Err((401, "no_token")));
    assert!(judged(&access, "GET", "/healthz", &[]).is_ok());
}

#[test]
fn the_token_may_be_a_password() {
    let access = access(None);
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let basic = |text: &str| format!("Basic {}", encode(text));
    let with = |value: &str| judged(&access, TREE.0, TREE.1, &[("authorization", value)]);
    assert_eq!(
        with(&basic("any:secret of reader")),
        Ok(("b".into(), "reader".into()))
    );
    assert_eq!(with(&basic("any:wrong")), Err((401, "unknown_token")));
    assert_eq!(with(&basic("nocolon")), Err((401, "bad_header")));
    assert_eq!(with("Basic ###"), Err((401, "bad_header")));
    assert_eq!(with("Digest x"), Err((401, "bad_header")));
    assert_eq!(with("Bearer"), Err((401, "bad_header")));
}

#[test]
fn only_a_token_of_all_tenants_can_choose_one() {
    let access = access(None);
    let with = |name: &str, tenant: &str| {
        let value = bearer(name);
        let pairs = [("authorization", value.as_str()), ("x-scope-orgid", tenant)];
        judged(&access, TREE.0, TREE.1, &pairs)
    };
    assert_eq!(with("root", "a"), Ok(("a".into(), "root".into())));
    assert_eq!(with("root", "c"), Err((403, "tenant")));
    assert_eq!(with("reader", "b"), Ok(("b".into(), "reader".into())));
    assert_eq!(with("reader", "a"), Err((403, "tenant")));
    // Whether another tenant exists is not told.
    assert_eq!(with("reader", "c"), Err((403, "tenant")));
}

#[test]
fn without_rules_all_is_open_and_foreign_tenants_mean_nothing_until_there_are_some() {
    let rules = AccessRules::default();
    let one = Access::new(&rules, vec!["default".into()]);
    let named = [("x-scope-orgid", "anonymous")];
    assert_eq!(
        judged(&one, TREE.0, TREE.1, &named),
        Ok(("default".into(), "anybody".into()))
    );
    let two = Access::new(&rules, vec!["default".into(), "a".into()]);
    assert_eq!(judged(&two, TREE.0, TREE.1, &named), Err((403, "tenant")));
    let named = [("x-scope-orgid", "a")];
    assert_eq!(
        judged(&two, TREE.0, TREE.1, &named),
        Ok(("a".into(), "anybody".into()))
    );
}

#[test]
fn a_certificate_stands_for_the_rights_of_clients() {
    let rights = Rights {
        scopes: vec![Scope::Ingest],
        tenant: Some("a".into()),
    };
    let access = access(Some(rights));
    let certificate = Shown {
        certificate: true,
        ..Shown::default()
    };
    let none = HeaderMap::new();
    let grant = access
        .judge(&Method::POST, PUSH.1, &none, certificate)
        .unwrap();
    assert_eq!(grant.tenant, "a");
    let denied = access
        .judge(&Method::GET, TREE.1, &none, certificate)
        .unwrap_err();
    assert_eq!(denied.status, 403);
    assert_eq!(
        access
            .judge(&Method::POST, PUSH.1, &none, Shown::default())
            .unwrap_err()
            .status,
        401
    );
    // A token says more than the certificate.
    let with = headers(&[("authorization", "Bearer wrong")]);
    assert_eq!(
        access
            .judge(&Method::POST, PUSH.1, &with, certificate)
            .unwrap_err()
            .status,
        401
    );
}

#[test]
fn names_of_tenants_are_names_of_folders() {
    for good in ["a", "team-1", "Team_2.b", &"x".repeat(64)] {
        assert!(is_tenant_name(good), "{good}");
    }
    for bad in ["", ".", "..", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert!(!is_tenant_name(bad), "{bad}");
    }
}
