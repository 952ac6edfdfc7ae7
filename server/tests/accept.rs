//! Every row of the table of real and broken pprof: 2xx with a report, or 4xx that names the fault.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;
#[path = "accept/formats.rs"]
mod formats;

use std::net::SocketAddr;

use common::{
    Local, SECOND, T0, WINDOW, config, get, profile, push, push_path, total, try_request,
};
use serde_json::Value;

/// Protobuf by hand, for what no encoder would write.
#[derive(Default, Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn uint(mut self, field: u64, mut value: u64) -> Self {
        self.0.push((field << 3) as u8);
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        let tag = self.0.len();
        self = self.uint(field, value.len() as u64);
        // `uint` wrote wire type 0; length-delimited is 2.
        self.0[tag] |= 2;
        self.0.extend_from_slice(value);
        self
    }
}

/// Strings: 1 cpu, 2 nanoseconds, 3 main, 4 main.rs, 5 leaf, 6 /bin/app.
fn strings(mut raw: Raw) -> Raw {
    for text in [
        "",
        "cpu",
        "nanoseconds",
        "main",
        "main.rs",
        "leaf",
        "/bin/app",
    ] {
        raw = raw.bytes(6, text.as_bytes());
    }
    raw
}

fn value_type() -> Vec<u8> {
    Raw::default().uint(1, 1).uint(2, 2).0
}

fn sample(locations: &[u64], value: i64) -> Vec<u8> {
    let mut raw = Raw::default();
    for &location in locations {
        raw = raw.uint(1, location);
    }
    raw.uint(2, value as u64).0
}

fn location(id: u64, mapping: u64, function: u64) -> Vec<u8> {
    let raw = Raw::default()
        .uint(1, id)
        .uint(2, mapping)
        .uint(3, 0x40_1000 + id);
    match function {
        0 => raw.0,
        id => raw.bytes(4, &Raw::default().uint(1, id).uint(2, 7).0).0,
    }
}

fn function(id: u64, name: u64) -> Vec<u8> {
    Raw::default()
        .uint(1, id)
        .uint(2, name)
        .uint(3, name)
        .uint(4, 4)
        .0
}

fn mapping(id: u64) -> Vec<u8> {
    Raw::default()
        .uint(1, id)
        .uint(2, 0x40_0000)
        .uint(3, 0x50_0000)
        .uint(5, 6)
        .0
}

#[derive(Clone)]
struct Parts {
    samples: Vec<Vec<u8>>,
    mappings: Vec<Vec<u8>>,
    locations: Vec<Vec<u8>>,
    functions: Vec<Vec<u8>>,
    time: bool,
    duration: bool,
    period_type: bool,
}

/// Valid: 20 + 30 million nanoseconds in leaf and main.
fn valid() -> Parts {
    Parts {
        samples: vec![sample(&[2, 1], 20_000_000), sample(&[1], 30_000_000)],
        mappings: vec![mapping(1)],
        locations: vec![location(1, 1, 1), location(2, 1, 2)],
        functions: vec![function(1, 3), function(2, 5)],
        time: true,
        duration: true,
        period_type: true,
    }
}

fn encode(parts: &Parts) -> Vec<u8> {
    let mut raw = Raw::default().bytes(1, &value_type());
    for (field, list) in [
        (2, &parts.samples),
        (3, &parts.mappings),
        (4, &parts.locations),
        (5, &parts.functions),
    ] {
        for item in list {
            raw = raw.bytes(field, item);
        }
    }
    raw = strings(raw);
    if parts.time {
        raw = raw.uint(9, T0 as u64);
    }
    if parts.duration {
        raw = raw.uint(10, 10 * SECOND as u64);
    }
    if parts.period_type {
        raw = raw.bytes(11, &value_type()).uint(12, 10_000_000);
    }
    raw.0
}

fn with(change: impl FnOnce(&mut Parts)) -> Vec<u8> {
    let mut parts = valid();
    change(&mut parts);
    encode(&parts)
}

struct Row {
    name: &'static str,
    body: Vec<u8>,
    /// Value visible afterwards.
    visible: i64,
    /// Reasons that the answer must give, under `repaired` or `dropped`.
    reasons: &'static [&'static str],
}

fn rows() -> Vec<Row> {
    let row = |name, body, visible, reasons| Row {
        name,
        body,
        visible,
        reasons,
    };
    vec![
        row("un-gzipped proto", encode(&valid()), 50_000_000, &[]),
        row(
            "sample without locations",
            with(|p| p.samples.push(sample(&[], 10_000_000))),
            60_000_000,
            &[],
        ),
        row(
            "location in a missing mapping",
            with(|p| p.locations[1] = location(2, 9, 2)),
            50_000_000,
            &["unknown_mapping"],
        ),
        row(
            "line of a missing function",
            with(|p| p.locations[1] = location(2, 1, 9)),
            50_000_000,
            &["unknown_function"],
        ),
        row(
            "sample of a missing location",
            with(|p| p.samples[0] = sample(&[9, 1], 20_000_000)),
            50_000_000,
            &["unknown_location"],
        ),
        row(
            "negative value",
            with(|p| p.samples[0] = sample(&[2, 1], -20_000_000)),
            30_000_000,
            &["negative_value"],
        ),
        row(
            "zero value",
            with(|p| p.samples.push(sample(&[2, 1], 0))),
            50_000_000,
            &["zero_value"],
        ),
        row(
            "value count mismatch",
            with(|p| p.samples[0] = Raw(sample(&[2, 1], 1)).uint(2, 1).0),
            30_000_000,
            &["value_count"],
        ),
        row(
            "ids that are not 1..n",
            with(|p| {
                p.mappings = vec![mapping(77)];
                p.locations = vec![location(1000, 77, 500), location(7, 77, 3)];
                p.functions = vec![function(500, 3), function(3, 5)];
                p.samples = vec![sample(&[7, 1000], 20_000_000), sample(&[1000], 30_000_000)];
            }),
            50_000_000,
            &[],
        ),
        row(
            "unsymbolized",
            with(|p| {
                p.locations = vec![location(1, 1, 0), location(2, 1, 0)];
                p.functions.clear();
            }),
            50_000_000,
            &[],
        ),
        row(
            "no mapping",
            with(|p| {
                p.mappings.clear();
                p.locations = vec![location(1, 0, 1), location(2, 0, 2)];
            }),
            50_000_000,
            &[],
        ),
        row("no duration", with(|p| p.duration = false), 50_000_000, &[]),
        row(
            "no time",
            with(|p| p.time = false),
            50_000_000,
            &["missing_time"],
        ),
        row(
            "depth 1500",
            with(|p| p.samples[0] = sample(&[1; 1500], 20_000_000)),
            50_000_000,
            &[],
        ),
        row(
            "location id 0 in a sample",
            with(|p| p.samples.push(sample(&[0], 10_000_000))),
            60_000_000,
            &["unknown_location"],
        ),
    ]
}

/// Total of a row's own series, over all types and times.
fn visible(address: SocketAddr, series: &str, now: bool) -> i64 {
    let window = if now { "from=now-5m" } else { WINDOW };
    let q = common::escape(series);
    let path = format!("/api/v1/top?type=cpu&{window}&q={q}");
    get(address, &path).json()["total"].as_i64().unwrap()
}

fn reasons(answer: &Value) -> Vec<String> {
    let of = |kind: &str| {
        answer[kind]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    [of("repaired"), of("dropped")].concat()
}

#[test]
fn every_legal_or_slightly_broken_profile_is_taken_and_visible_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    for (index, row) in rows().into_iter().enumerate() {
        let series = format!("{{service_name=\"row{index}\"}}");
        let answer = push(server.address, &series, &row.body);
        assert_eq!(answer.status, 200, "{}: {}", row.name, answer.text());
        assert_eq!(reasons(&answer.json()), row.reasons, "{}", row.name);
        let seen = visible(server.address, &series, row.name == "no time");
        assert_eq!(seen, row.visible, "{}", row.name);
    }
    let long = "x".repeat(100_000);
    let body = profile(T0, &[(&["main", &long], 10_000_000)]);
    assert_eq!(
        push(server.address, "{service_name=\"long\"}", &body).status,
        200
    );
    let top = format!("/api/v1/top?type=cpu&{WINDOW}&q=%7Bservice_name%3D%22long%22%7D");
    assert_eq!(get(server.address, &top).json()["rows"][0]["name"], long);
    let no_period = with(|parts| parts.period_type = false);
    let series = "{service_name=\"noperiod\"}";
    assert_eq!(push(server.address, series, &no_period).status, 200);
    assert_eq!(
        visible(server.address, series, false),
        50_000_000,
        "found by its sample type"
    );
    server.stop();
}

#[test]
fn unresolved_addresses_have_a_name_and_are_counted_as_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let body = with(|parts| {
        parts.locations = vec![location(1, 1, 1), location(2, 1, 0)];
    });
    assert_eq!(
        push(server.address, "{service_name=\"a\"}", &body).status,
        200
    );
    let tree = get(
        server.address,
        &format!("/api/v1/tree.json?type=cpu&{WINDOW}"),
    )
    .json();
    assert_eq!(tree["meta"]["unknown"], 20_000_000);
    assert_eq!(tree["meta"]["total"], 50_000_000);
    let names: Vec<&str> = tree["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(names, ["", "main", "app+0x1002"]);
    server.stop();
}

#[test]
fn what_is_no_profile_is_refused_with_the_fault_named_and_never_with_500() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let good = profile(T0, &[(&["main"], 10_000_000)]);
    let cut = good[..good.len() - 9].to_vec();
    let bomb = {
        use std::io::Write;
        let level = flate2::Compression::best();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        (0..64).for_each(|_| encoder.write_all(&[0; 1 << 20]).unwrap());
        encoder.finish().unwrap()
    };
    let series = "{service_name=\"a\"}";
    for (name, body, status) in [
        ("empty", Vec::new(), 400),
        ("garbage", b"\xff\xfe\xfd\xfc garbage".to_vec(), 400),
        ("an error page", b"<html>404 not found</html>".to_vec(), 400),
        ("cut gzip", cut, 400),
        ("bomb", bomb, 413),
        (
            "no sample types",
            strings(Raw::default().bytes(2, &sample(&[], 1))).0,
            422,
        ),
    ] {
        let answer = push(server.address, series, &body);
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert!(
            answer.json()["error"].as_str().unwrap().len() > 20,
            "{name}"
        );
    }
    for path in [
        "/api/v1/push?name=cpu",
        "/api/v1/push?series=%7B%7D",
        "/api/v1/push?name=cpu&series=%7Ba%3D~%22b%22%7D",
        "/api/v1/push?name=cpu&name=cpu&series=%7B%7D",
        "/api/v1/push?name=cpu&series=%7B%7D&from=soon",
    ] {
        let answer = try_request(server.address, "POST", path, "", &good).unwrap();
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
    let form = "Content-Type: multipart/form-data; boundary=x\r\n";
    let answer = try_request(server.address, "POST", &push_path(series), form, &good).unwrap();
    assert_eq!(answer.status, 415);
    let metrics = get(server.address, "/metrics").text();
    assert!(
        metrics.contains("pilotlight_refused_total{reason=\"invalid\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("pilotlight_refused_total{reason=\"too_large\"} 1"),
        "{metrics}"
    );
    assert_eq!(
        total(server.address, "{}"),
        (0, false),
        "nothing of it is stored"
    );
    server.stop();
}

#[test]
fn a_body_longer_than_the_limit_is_refused_without_being_held() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.limits.wire_bytes = 1 << 20;
    let server = Local::start(config);
    let answer = push(server.address, "{service_name=\"a\"}", &vec![0; 2 << 20]);
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(answer.text().contains("1048576"));
    server.stop();
}
