//! Selections answered over HTTP, held against `pilotlight_profile` as the oracle.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

#[path = "query/bounds.rs"]
mod bounds;
mod common;
#[path = "query/detail.rs"]
mod detail;
#[path = "query/gopprof.rs"]
mod gopprof;
#[path = "query/live.rs"]
mod live;
#[path = "query/pyroscope.rs"]
mod pyroscope;
#[path = "query/sources.rs"]
mod sources;

use std::io::Read;
use std::net::SocketAddr;

use common::{
    Local, SECOND, T0, WINDOW, busy_maintenance, config, escape, get, profile, push, push_path,
    try_request,
};
use pilotlight_profile::{Limits, Mode, Profile, Tree, decode, merge, top};
use serde_json::{Value, json};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn ask(address: SocketAddr, endpoint: &str, q: &str, more: &str) -> Value {
    let path = format!(
        "/api/v1/{endpoint}?type={CPU}&{WINDOW}&q={}{more}",
        escape(q)
    );
    let answer = get(address, &path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn error(address: SocketAddr, path: &str, status: u16) -> String {
    let answer = get(address, path);
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
    answer.json()["error"].as_str().unwrap().to_owned()
}

/// Three services with two pods each, a profile every 10 s, stacks from a small generator.
fn load(address: SocketAddr) -> Vec<(String, String, i64, Vec<u8>)> {
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let functions: Vec<String> = (0..12).map(|n| format!("f{n}")).collect();
    let mut pushed = Vec::new();
    for step in 0..12 {
        for (service, pod) in [("checkout", "a-1"), ("checkout", "a-2"), ("cart", "b-1")] {
            let stacks: Vec<(Vec<&str>, i64)> = (0..30)
                .map(|_| {
                    let depth = 1 + next(8);
                    let names = (0..depth).map(|_| functions[next(12) as usize].as_str());
                    let names = std::iter::once("main").chain(names).collect();
                    (names, 10_000_000 * (1 + next(5) as i64))
                })
                .collect();
            let stacks: Vec<(&[&str], i64)> = stacks
                .iter()
                .map(|(names, value)| (names.as_slice(), *value))
                .collect();
            let time = T0 + step * 10 * SECOND;
            let body = profile(time, &stacks);
            let series = format!("{{service_name=\"{service}\",pod=\"{pod}\"}}");
            assert_eq!(push(address, &series, &body).status, 200);
            pushed.push((service.to_owned(), pod.to_owned(), time, body));
        }
    }
    pushed
}

fn merged(
    pushed: &[(String, String, i64, Vec<u8>)],
    keep: impl Fn(&str, &str, i64) -> bool,
) -> Profile {
    let kept = pushed
        .iter()
        .filter(|(service, pod, time, _)| keep(service, pod, *time));
    let profiles: Vec<Profile> = kept
        .map(|(_, _, _, body)| {
            decode(body, Mode::Strict, &Limits::default())
                .unwrap()
                .profile
        })
        .collect();
    merge(&profiles.iter().collect::<Vec<_>>()).unwrap()
}

/// (path of names, own value) of every node, in order.
fn paths(names: &[String], name: &[u64], depth: &[u64], own: &[i64]) -> Vec<(String, i64)> {
    let mut path: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for node in 0..name.len() {
        path.truncate(depth[node] as usize);
        path.push(&names[name[node] as usize]);
        out.push((path.join(";"), own[node]));
    }
    out
}

fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn answered(tree: &Value) -> Vec<(String, i64)> {
    paths(
        &numbers::<Vec<String>>(&tree["names"]),
        &numbers::<Vec<u64>>(&tree["name"]),
        &numbers::<Vec<u64>>(&tree["depth"]),
        &numbers::<Vec<i64>>(&tree["self"]),
    )
}

fn expected(profile: &Profile, column: usize) -> Vec<(String, i64)> {
    let tree = Tree::from_profile(profile, column);
    let names: Vec<String> = tree
        .names
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    let wide = |column: &[u32]| column.iter().map(|&id| u64::from(id)).collect::<Vec<_>>();
    paths(
        &names,
        &wide(&tree.nodes.name),
        &wide(&tree.nodes.depth),
        &tree.nodes.self_value,
    )
}

#[test]
fn selections_equal_the_merge_of_the_profiles_they_name_also_after_merging_segments() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let pushed = load(server.address);
    server.stop();
    let mut merging = config(folder.path());
    merging.maintenance = Some(busy_maintenance());
    for config in [config(folder.path()), merging] {
        let merges = config.maintenance.is_some();
        let server = Local::start(config);
        let since = std::time::Instant::now();
        while merges && get(server.address, "/api/v1/status").json()["segments"] != 1 {
            assert!(since.elapsed().as_secs() < 30, "not merged");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let half = T0 + 60 * SECOND;
        type Keep = fn(&str, &str, i64) -> bool;
        let selections: [(&str, String, Keep); 5] = [
            ("{}", String::new(), |_, _, _| true),
            (
                "{service_name=\"checkout\"}",
                String::new(),
                |service, _, _| service == "checkout",
            ),
            ("{pod=~\"a.*\",pod!=\"a-1\"}", String::new(), |_, pod, _| {
                pod == "a-2"
            }),
            ("{service_name!~\"c.+t\"}", String::new(), |_, _, _| false),
            ("{}", format!("&until={}", half - 1), |_, _, time| {
                time < T0 + 60 * SECOND
            }),
        ];
        for (q, until, keep) in selections {
            let window = if until.is_empty() {
                WINDOW.to_owned()
            } else {
                format!("from=1767225000{until}")
            };
            let path = format!("/api/v1/tree.json?type={CPU}&{window}&q={}", escape(q));
            let tree = get(server.address, &path).json();
            let profile = if pushed.iter().any(|(s, p, t, _)| keep(s, p, *t)) {
                merged(&pushed, keep)
            } else {
                assert_eq!(answered(&tree), [(String::new(), 0)], "{q}");
                continue;
            };
            assert!(answered(&tree) == expected(&profile, 1), "tree of {q}");
            assert_eq!(tree["meta"]["total"], profile.total(1), "{q}");

            let rows =
                get(server.address, &path.replace("tree.json", "top")).json()["rows"].clone();
            let mut rows: Vec<(String, i64, i64)> = rows
                .as_array()
                .unwrap()
                .iter()
                .map(|row| {
                    (
                        numbers(&row["name"]),
                        numbers(&row["self"]),
                        numbers(&row["total"]),
                    )
                })
                .collect();
            let mut oracle: Vec<(String, i64, i64)> = top(&profile, 1)
                .into_iter()
                .map(|row| (row.name.to_string(), row.self_value, row.total_value))
                .collect();
            rows.sort();
            oracle.sort();
            assert_eq!(rows, oracle, "{q}: recursion counts once");

            let pprof = get(server.address, &path.replace("tree.json", "pprof")).body;
            let pprof = decode(&pprof, Mode::Strict, &Limits::default())
                .unwrap()
                .profile;
            assert!(expected(&pprof, 0) == expected(&profile, 1), "pprof of {q}");
            assert_eq!((pprof.time_ns, pprof.period), (profile.time_ns, 10_000_000));
        }
        server.stop();
    }
}

/// Reads `application/vnd.pilotlight.tree` as its document says.
fn read_tree(bytes: &[u8]) -> (Value, Vec<(String, i64)>) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!((&bytes[..4], word(4)), (&b"PLTR"[..], 1));
    let (nodes, names, meta) = (word(8), word(12), word(16));
    let mut at = 20 + meta;
    let number = |at: &mut usize| {
        let mut value = 0_u64;
        for shift in (0..).step_by(7) {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    let names: Vec<String> = (0..names)
        .map(|_| {
            let len = number(&mut at) as usize;
            at += len;
            String::from_utf8(bytes[at - len..at].to_vec()).unwrap()
        })
        .collect();
    let depth: Vec<u64> = (0..nodes).map(|_| number(&mut at)).collect();
    let name: Vec<u64> = (0..nodes).map(|_| number(&mut at)).collect();
    let own: Vec<i64> = (0..nodes)
        .map(|_| number(&mut at))
        .map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
        .collect();
    assert_eq!(at, bytes.len());
    let meta = serde_json::from_slice(&bytes[20..20 + meta]).unwrap();
    (meta, paths(&names, &name, &depth, &own))
}

#[test]
fn the_binary_tree_says_what_the_json_says_gzipped_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let json = ask(server.address, "tree.json", "{}", "");
    let path = format!("/api/v1/tree?type=cpu&{WINDOW}");
    let plain = get(server.address, &path);
    assert!(
        plain.head.contains("application/vnd.pilotlight.tree"),
        "{}",
        plain.head
    );
    assert!(!plain.head.contains("content-encoding"), "{}", plain.head);
    let (meta, nodes) = read_tree(&plain.body);
    assert_eq!((&meta, &nodes), (&json["meta"], &answered(&json)));
    let header = "Accept-Encoding: br, gzip;q=0.8\r\n";
    let zipped = try_request(server.address, "GET", &path, header, b"").unwrap();
    assert!(
        zipped.head.contains("content-encoding: gzip"),
        "{}",
        zipped.head
    );
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&zipped.body[..])
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(read_tree(&bytes), (meta, nodes));
    server.stop();
}

#[test]
fn a_cut_tree_keeps_the_largest_nodes_and_the_whole_value() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let whole = ask(server.address, "tree.json", "{}", "");
    let nodes = whole["depth"].as_array().unwrap().len() as u64;
    for max in [1, 2, 10, 50, nodes - 1, nodes] {
        let cut = ask(
            server.address,
            "tree.json",
            "{}",
            &format!("&max_nodes={max}"),
        );
        let own: Vec<i64> = numbers(&cut["self"]);
        assert_eq!(cut["meta"]["total"], own.iter().sum::<i64>(), "{max}");
        assert_eq!(cut["meta"]["total"], whole["meta"]["total"]);
        let others = answered(&cut)
            .into_iter()
            .filter(|(path, _)| path.ends_with(";(other)"));
        let (count, value) = others.fold((0, 0), |(n, sum), (_, value)| (n + 1, sum + value));
        assert_eq!(cut["meta"]["cut_value"], value, "{max}");
        assert_eq!(own.len() as u64 - count, max, "{max}");
        assert_eq!(cut["meta"]["cut_nodes"], nodes - max, "{max}");
    }
    server.stop();
}

#[test]
fn series_add_up_in_steps_and_split_by_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    for n in 0..4 {
        for (pod, value) in [("a", 10_000_000), ("b", 20_000_000)] {
            let body = profile(T0 + n * 5 * SECOND, &[(&["main"], value)]);
            let series = format!("{{service_name=\"s\",pod=\"{pod}\"}}");
            assert_eq!(push(server.address, &series, &body).status, 200);
        }
    }
    let t = T0 / 1_000_000;
    let all = ask(server.address, "series", "{}", "&step=10s");
    assert_eq!(
        all["series"],
        json!([{
            "labels": {}, "points": [[t, 60_000_000], [t + 10_000, 60_000_000]],
        }])
    );
    assert_eq!(
        (&all["unit"], &all["step_ms"]),
        (&json!("nanoseconds"), &json!(10_000))
    );
    let by = ask(server.address, "series", "{}", "&step=20s&by=pod");
    assert_eq!(
        by["series"],
        json!([
            { "labels": { "pod": "a" }, "points": [[t, 40_000_000]] },
            { "labels": { "pod": "b" }, "points": [[t, 80_000_000]] },
        ])
    );
    error(
        server.address,
        &format!("/api/v1/series?type=cpu&{WINDOW}&step=1ms"),
        400,
    );
    server.stop();
}

#[test]
fn types_labels_and_values_follow_the_selection() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let body = profile(T0, &[(&["main"], 10_000_000)]);
    let path = format!(
        "/api/v1/push?name=other&series={}",
        escape("{service_name=\"z\",zone=\"1\"}")
    );
    assert_eq!(
        try_request(server.address, "POST", &path, "", &body)
            .unwrap()
            .status,
        200
    );
    let types = get(server.address, &format!("/api/v1/types?{WINDOW}")).json();
    let ids: Vec<&str> = types["types"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["id"].as_str().unwrap())
        .collect();
    let other = "other:cpu:nanoseconds:cpu:nanoseconds";
    assert_eq!(
        ids,
        [
            other,
            "other:samples:count:cpu:nanoseconds",
            CPU,
            "process_cpu:samples:count:cpu:nanoseconds",
        ]
    );
    let names = get(server.address, &format!("/api/v1/labels?{WINDOW}")).json();
    assert_eq!(names["names"], json!(["pod", "service_name", "zone"]));
    let names = ask(server.address, "labels", "{}", "");
    assert_eq!(names["names"], json!(["pod", "service_name"]));
    let values = ask(
        server.address,
        "labels/pod/values",
        "{service_name=\"checkout\"}",
        "",
    );
    assert_eq!(values["values"], json!(["a-1", "a-2"]));
    let none = get(server.address, "/api/v1/labels/pod/values?from=now-1h").json();
    assert_eq!(none["values"], json!([]));

    let ambiguous = error(
        server.address,
        &format!("/api/v1/top?type=cpu&{WINDOW}"),
        400,
    );
    assert!(
        ambiguous.contains(other) && ambiguous.contains(CPU),
        "{ambiguous}"
    );
    let narrowed = format!("/api/v1/top?type=cpu&{WINDOW}&q={}", escape("{zone=\"1\"}"));
    assert_eq!(get(server.address, &narrowed).json()["type"], other);
    let prefix = get(
        server.address,
        &format!("/api/v1/top?type=other:cpu&{WINDOW}"),
    )
    .json();
    assert_eq!(prefix["type"], other);
    let missing = error(
        server.address,
        &format!("/api/v1/top?type=heap&{WINDOW}"),
        404,
    );
    assert!(missing.contains("process_cpu:samples"), "{missing}");
    server.stop();
}

#[test]
fn errors_say_what_where_and_what_next() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    for (path, status, word) in [
        ("/api/v1/top", 400, "type is missing"),
        ("/api/v1/top?type=cpu", 404, "no data"),
        ("/api/v1/top?type=cpu&q=%7Bpod", 400, "expected one of"),
        ("/api/v1/top?type=cpu&from=yesterday", 400, "parameter from"),
        (
            "/api/v1/top?type=cpu&from=now&until=now-1h",
            400,
            "window is empty",
        ),
        ("/api/v1/tree?type=a:b:c:d:e&max_nodes=0", 400, "max_nodes"),
        ("/api/v1/top?type=cpu&type=cpu", 400, "twice"),
        ("/api/v2/top", 404, "no such endpoint"),
        ("/api/v1/push", 405, "use POST"),
        ("/no/such/file", 404, "not found"),
    ] {
        let text = error(server.address, path, status);
        assert!(text.contains(word), "{path}: {text}");
    }
    let post = try_request(server.address, "POST", "/api/v1/top", "", b"").unwrap();
    assert_eq!(post.status, 405);
    // Anything in a regex may be asked, nothing may take the server down.
    let regex = escape(&format!("{{pod=~\"{}\"}}", "(a{1000}){1000}"));
    assert_eq!(
        get(server.address, &format!("/api/v1/top?type=cpu&q={regex}")).status,
        400
    );
    server.stop();
}

#[test]
fn pages_from_elsewhere_do_not_reach_a_loopback_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let body = profile(T0, &[(&["main"], 10_000_000)]);
    let path = push_path("{service_name=\"a\"}");
    let foreign = "Origin: https://example.com\r\n";
    assert_eq!(
        try_request(server.address, "POST", &path, foreign, &body)
            .unwrap()
            .status,
        403
    );
    let own = format!("Origin: http://{}\r\n", server.address);
    assert_eq!(
        try_request(server.address, "POST", &path, &own, &body)
            .unwrap()
            .status,
        200
    );
    server.stop();
}

#[test]
fn the_page_the_metrics_and_added_routes_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.targets = Some(std::sync::Arc::new(|| {
        "{\"status\":\"success\"}".to_owned()
    }));
    config.extra_metrics = Some(std::sync::Arc::new(|| "scraper_up 1\n".to_owned()));
    let route = axum::routing::get(|| async { "profile" });
    config.extra_router = Some(axum::Router::new().route("/debug/pprof/x", route));
    let server = Local::start(config);
    let page = get(server.address, "/?type=cpu&view=flame");
    assert_eq!(page.status, 200);
    assert!(
        page.text().starts_with("<!doctype html>"),
        "{}",
        page.text()
    );
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'"),
        "{}",
        page.head
    );
    let etag = page
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let header = format!("If-None-Match: {etag}\r\n");
    assert_eq!(
        try_request(server.address, "GET", "/", &header, b"")
            .unwrap()
            .status,
        304
    );
    assert_eq!(get(server.address, "/debug/pprof/x").text(), "profile");
    assert_eq!(
        get(server.address, "/api/v1/targets").json()["status"],
        "success"
    );
    let metrics = get(server.address, "/metrics").text();
    assert!(metrics.contains("\nscraper_up 1\n") && metrics.contains("pilotlight_ready 1"));
    server.stop();
}
