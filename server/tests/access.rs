//! Tokens, tenants and the audit, over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod common;
#[path = "access/oidc.rs"]
mod oidc;
#[path = "access/page.rs"]
mod page;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use common::{Local, Response, T0, WINDOW, config, escape, profile, push_path, try_request};
use pilotlight_server::{AccessRules, Config, Error, Rights, Scope, Server, Token, token_hash};

const TENANTS: [&str; 3] = ["default", "red", "blue"];

fn secret(who: &str) -> String {
    format!("secret of {who}")
}

fn token(who: &str, scopes: &[Scope], tenant: Option<&str>) -> Token {
    Token {
        name: who.into(),
        sha256: token_hash(&secret(who)),
        rights: Rights {
            scopes: scopes.to_vec(),
            tenant: tenant.map(str::to_owned),
        },
    }
}

/// A token for all of each tenant, one that may only send, and one for everything.
fn guarded(folder: &Path) -> Config {
    let mut config = config(folder);
    config.tenants = TENANTS[1..].iter().map(|name| (*name).to_owned()).collect();
    let mut tokens: Vec<Token> = TENANTS
        .iter()
        .map(|tenant| token(tenant, &[Scope::Ingest, Scope::Read], Some(tenant)))
        .collect();
    tokens.push(token("sender", &[Scope::Ingest], Some("red")));
    tokens.push(token("root", &Scope::ALL, None));
    config.access = AccessRules {
        tokens,
        audit_file: Some(folder.join("audit.jsonl")),
        ..AccessRules::default()
    };
    config
}

fn ask(address: SocketAddr, who: &str, method: &str, path: &str, body: &[u8]) -> Response {
    let headers = format!("Authorization: Bearer {}\r\n", secret(who));
    try_request(address, method, path, &headers, body).unwrap()
}

fn send(address: SocketAddr, who: &str, service: &str, function: &str, value: i64) {
    let series = format!("{{service_name=\"{service}\"}}");
    let body = profile(T0, &[(&["main", function], value)]);
    let answer = ask(address, who, "POST", &push_path(&series), &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn tree(q: &str) -> String {
    let kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    format!("/api/v1/tree.json?type={kind}&{WINDOW}&q={}", escape(q))
}

#[test]
fn a_token_is_needed_and_opens_what_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(guarded(folder.path()));
    let address = server.address;
    let bare = try_request(address, "GET", &tree("{}"), "", b"").unwrap();
    assert_eq!(bare.status, 401);
    let head = bare.head.to_lowercase();
    assert!(
        head.contains("www-authenticate: basic realm=\"pilotlight\""),
        "{head}"
    );
    assert!(
        bare.text().contains("Authorization: Bearer TOKEN"),
        "{}",
        bare.text()
    );
    assert_eq!(ask(address, "nobody", "GET", "/", b"").status, 401);
    assert_eq!(ask(address, "sender", "GET", &tree("{}"), b"").status, 403);
    send(address, "sender", "shop", "price", 50_000_000);
    let seen = ask(address, "red", "GET", &tree("{}"), b"").json();
    assert_eq!(seen["meta"]["total"], 50_000_000);
    let other = ask(address, "blue", "GET", &tree("{}"), b"");
    assert!(!other.text().contains("price"), "{}", other.text());
    // A page from elsewhere cannot post with the browser's password.
    let basic = "Basic OnNlY3JldCBvZiByb290";
    let foreign = format!("Authorization: {basic}\r\nOrigin: http://evil.example\r\n");
    let posted = try_request(address, "POST", "/api/v1/push", &foreign, b"").unwrap();
    assert_eq!(posted.status, 403, "{}", posted.text());
    let own = format!("Authorization: {basic}\r\nOrigin: http://{address}\r\n");
    let posted = try_request(address, "POST", "/api/v1/push", &own, b"").unwrap();
    assert_eq!(posted.status, 400, "{}", posted.text());
    server.stop();
}

#[test]
fn metrics_are_of_all_tenants_for_those_who_may_see_all() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(guarded(folder.path()));
    send(server.address, "red", "shop", "price", 1_000_000);
    assert_eq!(
        ask(server.address, "red", "GET", "/metrics", b"").status,
        403
    );
    let all = ask(server.address, "root", "GET", "/metrics", b"").text();
    for line in [
        "pilotlight_profiles_accepted_total{tenant=\"red\"} 1",
        "pilotlight_profiles_accepted_total{tenant=\"blue\"} 0",
        "pilotlight_access_refused_total{reason=\"scope\"} 1",
    ] {
        assert!(all.contains(line), "{line} is not in {all}");
    }
    server.stop();
}

#[test]
fn reads_are_noted_with_who_and_what_and_hostile_text_stays_in_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(guarded(folder.path()));
    send(server.address, "red", "shop", "price", 1_000_000);
    let hostile = "/api/v1/labels?q=%0A%22%7B";
    ask(server.address, "red", "GET", hostile, b"");
    ask(server.address, "root", "GET", "/api/v1/types", b"");
    server.stop();
    let file = folder.path().join("audit.jsonl");
    let read = || std::fs::read_to_string(&file).unwrap();
    for _ in 0..200 {
        if read().lines().count() == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let lines: Vec<serde_json::Value> = read()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Pushes are no reads.
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["who"], "red");
    assert_eq!(lines[0]["tenant"], "red");
    assert_eq!(lines[0]["path"], "/api/v1/labels");
    assert_eq!(lines[1]["who"], "root");
    assert_eq!(lines[1]["tenant"], "default");
    assert_eq!(lines[1]["status"], 200);
}

#[tokio::test]
async fn other_machines_are_let_in_only_with_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let mut open = config(folder.path());
    open.listen = ([0, 0, 0, 0], 0).into();
    let refused = Server::start(open).await.err().unwrap();
    assert!(
        refused.to_string().contains("pilotlight token"),
        "{refused}"
    );
    let mut guarded = guarded(folder.path());
    guarded.listen = ([0, 0, 0, 0], 0).into();
    Server::start(guarded.clone())
        .await
        .unwrap()
        .shutdown()
        .await;
    guarded.tenants.push("red".into());
    let twice = Server::start(guarded).await.err().unwrap();
    assert!(matches!(twice, Error::Tenant(name) if name == "red"));
}

/// What a tenant should see, by service.
#[derive(Default)]
struct Model {
    totals: HashMap<String, i64>,
    pushed: u32,
}

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A question, some of them about other tenants' services, some of them wrong.
fn question(state: &mut u64, service: &str) -> String {
    let q = escape(&format!("{{service_name=\"{service}\"}}"));
    let kind = "type=process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    match next(state) % 10 {
        0 => format!("/api/v1/top?{kind}&{WINDOW}&q={q}"),
        1 => format!("/api/v1/labels?{WINDOW}&q={q}"),
        2 => format!("/api/v1/labels/service_name/values?{WINDOW}"),
        3 => format!("/api/v1/types?{WINDOW}"),
        4 => format!("/api/v1/series?{kind}&{WINDOW}&q={q}&by=service_name"),
        5 => format!("/api/v1/diff.json?{kind}&{WINDOW}&q={q}&base_{WINDOW}"),
        6 => format!("/api/v1/tree.json?{kind}&{WINDOW}&q={{{service}"),
        7 => "/api/v1/status".to_owned(),
        8 => format!("/pyroscope/render?query={q}&{WINDOW}"),
        _ => tree(&format!("{{service_name=\"{service}\"}}")),
    }
}

/// Random pushes and questions of three tenants: no answer, error or not, ever holds another's name, and
/// totals are those of the tenant alone. 3,000 steps, or `PILOTLIGHT_ACCESS_STEPS`.
#[test]
fn nothing_crosses_from_one_tenant_to_another() {
    let steps = std::env::var("PILOTLIGHT_ACCESS_STEPS");
    let steps: u32 = steps
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3000);
    let folder = tempfile::tempdir().unwrap();
    let mut config = guarded(folder.path());
    config.linger = std::time::Duration::ZERO;
    config.maintenance = Some(common::busy_maintenance());
    let server = Local::start(config);
    let address = server.address;
    let mut models: HashMap<&str, Model> = HashMap::new();
    let mut state = 7;
    for step in 0..steps {
        let tenant = TENANTS[next(&mut state) as usize % TENANTS.len()];
        let other = TENANTS[next(&mut state) as usize % TENANTS.len()];
        let number = next(&mut state) % 5;
        if next(&mut state).is_multiple_of(12) {
            let model = models.entry(tenant).or_default();
            let service = format!("service-of-{tenant}-{number}");
            // Another one each time: an equal profile of an equal time would count once.
            let function = format!("function_of_{tenant}_{}", model.pushed);
            let value = 10_000_000 * (1 + next(&mut state) as i64 % 9).abs();
            send(address, tenant, &service, &function, value);
            model.pushed += 1;
            *model.totals.entry(service).or_default() += value;
            continue;
        }
        let service = format!("service-of-{other}-{number}");
        let answer = ask(address, tenant, "GET", &question(&mut state, &service), b"");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        for foreign in TENANTS.iter().filter(|name| **name != tenant) {
            let names = [
                format!("function_of_{foreign}"),
                format!("service-of-{foreign}-"),
            ];
            // The question itself may be said again.
            let found = names
                .iter()
                .any(|name| text.replace(&service, "").contains(name));
            assert!(!found, "step {step}: {tenant} sees {foreign}: {text}");
        }
        if step % 50 == 0 {
            let q = format!("{{service_name=\"{service}\"}}");
            let seen = ask(address, tenant, "GET", &tree(&q), b"").json();
            let expected = models
                .get(tenant)
                .and_then(|model| model.totals.get(&service));
            let total = seen["meta"]["total"].as_i64().unwrap_or(0);
            assert_eq!(
                total,
                expected.copied().unwrap_or(0),
                "step {step}: {tenant} {q}"
            );
        }
    }
    // To ask for another tenant's service is to ask for one that is not there.
    let about = |service: &str| {
        let answer = ask(
            address,
            "red",
            "GET",
            &tree(&format!("{{service_name=\"{service}\"}}")),
            b"",
        );
        (answer.status, answer.text().replace(service, ""))
    };
    assert_eq!(about("service-of-blue-1"), about("service-of-none-1"));
    server.stop();
}
