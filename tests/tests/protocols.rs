//! Other projects' own clients against the real binary.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::process::Command;

use pilotlight_tests::process::{Scratch, go_build};
use pilotlight_tests::{http, server};

fn tree(port: u16, kind: &str, service: &str) -> serde_json::Value {
    let q = http::encode(&format!("{{service_name=\"{service}\"}}"));
    let path = format!("/api/v1/tree.json?type={kind}&from=now-1h&until=now&q={q}");
    http::json(port, &path).unwrap()
}

#[test]
fn the_collectors_client_sends_profiles_by_grpc_and_http() {
    let scratch = Scratch::new("otlp");
    let (_server, port) = server::start(scratch.path(), "data", |_| {});
    let sender = go_build("go/otlp", scratch.path());
    let output = Command::new(sender)
        .arg(format!("127.0.0.1:{port}"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    let ways = ["grpc", "grpc-gzip", "http-protobuf", "http-json"];
    for way in ways {
        assert!(out.contains(&format!("{way} rejected=0")), "{out}");
        let tree = tree(port, "cpu", way);
        assert_eq!(
            tree["meta"]["total"], 50_000_000,
            "{way}: 5 samples of 10 ms"
        );
        assert_eq!(tree["names"], serde_json::json!(["", "main", "leaf"]));
        assert_eq!(tree["self"], serde_json::json!([0, 20_000_000, 30_000_000]));
    }
    assert!(
        out.contains("broken rejected=1") && out.contains("stack 99 is not in the table of 3"),
        "{out}"
    );
}
