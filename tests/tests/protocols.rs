//! Other projects' own clients against the real binary.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

#[path = "protocols/parca.rs"]
mod parca;

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

/// Names of the bars of each level of a Flamebearer.
fn bars(graph: &serde_json::Value, width: usize) -> Vec<Vec<String>> {
    let names: Vec<String> = serde_json::from_value(graph["names"].clone()).unwrap();
    let levels = graph["levels"].as_array().unwrap();
    levels
        .iter()
        .map(|level| {
            let values = level["values"].as_array().unwrap();
            values
                .chunks(width)
                .map(|bar| {
                    let at = bar[width - 1].as_u64().unwrap();
                    names[usize::try_from(at).unwrap()].clone()
                })
                .collect()
        })
        .collect()
}

#[test]
fn pyroscopes_clients_push_and_ask() {
    let scratch = Scratch::new("pyroscope");
    let (_server, port) = server::start(scratch.path(), "data", |_| {});
    let client = go_build("go/pyroscope", scratch.path());
    let output = Command::new(client)
        .arg(format!("127.0.0.1:{port}"))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let out: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for way in ["json", "proto"] {
        let got = &out[way];
        let kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
        assert!(got["types"].to_string().contains(kind), "{}", got["types"]);
        assert_eq!(got["versions"], serde_json::json!(["1", "2"]));
        let labels = got["labels"].to_string();
        for name in ["service_name", "version", "__profile_type__", "region"] {
            assert!(labels.contains(name), "{labels}");
        }
        assert_eq!(
            got["series"].as_array().unwrap().len(),
            2,
            "{}",
            got["series"]
        );
        let graph = &got["graph"];
        // 300 + 700 in leaf, twice 100 in main; each pushed twice and counted once.
        assert_eq!(graph["total"], 1200);
        assert_eq!(bars(graph, 4), [["total"], ["main"], ["leaf"]]);
        let main = &graph["levels"][1]["values"];
        assert_eq!(main.as_array().unwrap()[1..3], [1200, 200]);
        let diff = &got["diff"];
        assert_eq!([&diff["leftTicks"], &diff["rightTicks"]], [400, 800]);
        let leaf = &diff["levels"][2]["values"];
        assert_eq!([&leaf[1], &leaf[4]], [300, 700]);
        let points = |line: &serde_json::Value| -> f64 {
            let points = line["points"].as_array().unwrap();
            points
                .iter()
                .map(|point| point["value"].as_f64().unwrap())
                .sum()
        };
        let lines = got["lines"].as_array().unwrap();
        let sums: Vec<f64> = lines.iter().map(points).collect();
        assert_eq!(sums, [400.0, 800.0]);
    }
    assert_eq!(out["merged_total"], 1200);
    // pyroscope-go's own profile of three seconds in one loop.
    let pushed = &out["gopusher"];
    let total = pushed["total"].as_f64().unwrap();
    assert!(total > 1e9, "{pushed}");
    let names = pushed["names"].to_string();
    assert!(names.contains("main.hotLoop"), "{names}");
}
