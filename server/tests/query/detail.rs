//! A function over time, sizes, spans: what sums alone do not say.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pilotlight_profile::{Label, LabelValue, ProfileBuilder};
use serde_json::{Value, json};

use super::{CPU, ask, error};
use crate::common::{Local, SECOND, T0, WINDOW, busy_maintenance, config, escape, push};

const UNIT: i64 = 10_000_000;

/// main → work: 3 and, in span a1, 5; main → work → work: 2 in span b2; main → idle: 1.
fn spans(time_ns: i64, scale: i64) -> Vec<u8> {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", UNIT);
    out.time(time_ns, 10 * SECOND);
    let mut at = |name: &str| {
        let name = out.string(name.as_bytes());
        let function = out.function(name, name, name, 1);
        out.location(None, 0, &[(function, 7)])
    };
    let (main, work, idle) = (at("main"), at("work"), at("idle"));
    let samples: [(&[_], Option<&str>, i64); 4] = [
        (&[work, main], None, 3),
        (&[work, main], Some("a1"), 5),
        (&[work, work, main], Some("b2"), 2),
        (&[idle, main], None, 1),
    ];
    let key = out.string(b"span_id");
    for (path, span, count) in samples {
        let stack = out.stack(path);
        let labels: Vec<Label> = span
            .map(|span| Label {
                key,
                value: LabelValue::Str(out.string(span.as_bytes())),
            })
            .into_iter()
            .collect();
        let set = out.label_set(&labels);
        out.sample(stack, set, &[count * scale, count * scale * UNIT]);
    }
    out.finish().to_pprof_gz()
}

fn check(address: SocketAddr) {
    let points = |more: &str| {
        let answer = ask(address, "function", "{}", &format!("&step=1m{more}"));
        let points = answer["points"].as_array().unwrap().clone();
        let unit = |point: &Value, key: &str| point[key].as_i64().unwrap() / UNIT;
        let of = |point: &Value| {
            [
                unit(point, "self"),
                unit(point, "total"),
                unit(point, "all"),
            ]
        };
        points.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(points("&function=work"), [[10, 10, 11], [20, 20, 22]]);
    assert_eq!(points("&function=main"), [[0, 11, 11], [0, 22, 22]]);
    assert_eq!(
        points("&matching=%5E(work%7Cidle)%24"),
        [[11, 11, 11], [22, 22, 22]]
    );
    assert_eq!(points("&function=wor"), [[0, 0, 11], [0, 0, 22]]);
    let of_span = format!("&function=work&labels={}", escape("{span_id=\"b2\"}"));
    assert_eq!(points(&of_span), [[2, 2, 2], [4, 4, 4]]);

    // Sizes of a profile's samples: 3, 5, 2 and 1 units, then twice that.
    let fields = ask(address, "heatmap", "{}", "&step=1h")["fields"].clone();
    let fields = fields.as_array().unwrap();
    let sums = fields.iter().map(|field| field["sum"].as_i64().unwrap());
    assert_eq!(sums.sum::<i64>(), 33 * UNIT);
    let counts = fields.iter().map(|field| field["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 8);
    let field = |value: i64| {
        let holds = |field: &&Value| {
            let edge = |key: &str| field[key].as_i64().unwrap();
            (edge("from")..edge("until")).contains(&value)
        };
        fields
            .iter()
            .find(holds)
            .map(|field| field["count"].clone())
    };
    assert_eq!(field(UNIT), Some(json!(1)));
    assert_eq!(field(10 * UNIT), Some(json!(1)));
    let profiles = ask(address, "heatmap", "{}", "&step=1h&of=profiles")["fields"].clone();
    assert_eq!(profiles[0]["sum"], 11 * UNIT);
    assert_eq!(profiles[1]["sum"], 22 * UNIT);

    let exemplars = ask(address, "exemplars", "{}", "&limit=3")["exemplars"].clone();
    let first = |key: &str| exemplars[0][key].clone();
    assert_eq!(exemplars.as_array().unwrap().len(), 3);
    assert_eq!(first("value"), 10 * UNIT);
    assert_eq!(first("labels"), json!({ "span_id": "a1" }));
    assert_eq!(first("series"), json!({ "service_name": "s" }));
    assert_eq!(first("function"), "work");
    assert_eq!(first("time_ms"), (T0 + 60 * SECOND) / 1_000_000);
    assert_eq!(exemplars[2]["value"], 4 * UNIT, "5, then 2 × 2");

    for (labels, total) in [
        ("{span_id=\"a1\"}", 15),
        ("{span_id=~\".+\"}", 21),
        ("{span_id=\"\"}", 12),
        ("{span_id=\"none\"}", 0),
    ] {
        let more = format!("&labels={}", escape(labels));
        let tree = ask(address, "tree.json", "{}", &more);
        assert_eq!(tree["meta"]["total"], total * UNIT, "{labels}");
        assert_eq!(
            ask(address, "top", "{}", &more)["total"],
            total * UNIT,
            "{labels}"
        );
        let lines = ask(address, "series", "{}", &format!("{more}&step=1h"));
        let sum = lines["series"][0]["points"][0][1].as_i64().unwrap_or(0);
        assert_eq!(sum, total * UNIT, "{labels}");
    }
}

#[test]
fn functions_sizes_and_spans_are_answered_from_segments_and_blocks_alike() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    for (at, scale) in [(0, 1), (60, 2)] {
        let body = spans(T0 + at * SECOND, scale);
        assert_eq!(
            push(server.address, "{service_name=\"s\"}", &body).status,
            200
        );
    }
    check(server.address);
    for (path, word) in [
        ("function?x=1", "which function"),
        ("function?matching=(", "matching"),
        ("heatmap?of=moons", "neither samples nor profiles"),
        ("tree.json?labels={", "labels"),
    ] {
        let (route, more) = path.split_once('?').unwrap();
        let path = format!(
            "/api/v1/{route}?type={CPU}&{WINDOW}&{}",
            more.replace('{', "%7B")
        );
        assert!(error(server.address, &path, 400).contains(word), "{path}");
    }
    server.stop();
    let mut merging = config(folder.path());
    merging.maintenance = Some(busy_maintenance());
    let server = Local::start(merging);
    let since = Instant::now();
    while crate::common::get(server.address, "/api/v1/status").json()["blocks"] != 1 {
        assert!(since.elapsed() < Duration::from_secs(30), "not merged");
        std::thread::sleep(Duration::from_millis(20));
    }
    check(server.address);
    server.stop();
}
