//! Two selections beside each other: exact values on both sides, and chance told from change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use common::{Local, SECOND, T0, WINDOW, config, escape, get, profile, push};
use serde_json::Value;

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const UNIT: i64 = 10_000_000;

fn load(address: SocketAddr) {
    for (version, stacks) in [
        (
            "1",
            vec![
                (&["main", "parse"][..], 30),
                (&["main", "parse", "copy"], 10),
                (&["main", "gone"], 60),
            ],
        ),
        (
            "2",
            vec![(&["main", "parse"][..], 90), (&["main", "new", "copy"], 10)],
        ),
    ] {
        let stacks: Vec<(&[&str], i64)> = stacks
            .into_iter()
            .map(|(names, n)| (names, n * UNIT))
            .collect();
        for step in 0..3 {
            let body = profile(T0 + step * 10 * SECOND, &stacks);
            let series = format!("{{service_name=\"s\",version=\"{version}\"}}");
            assert_eq!(push(address, &series, &body).status, 200);
        }
    }
}

fn path(endpoint: &str, more: &str) -> String {
    format!(
        "/api/v1/{endpoint}?type={CPU}&{WINDOW}&q={}&base_q={}{more}",
        escape(r#"{version="2"}"#),
        escape(r#"{version="1"}"#)
    )
}

/// Path → (own, own in base).
fn nodes(tree: &Value) -> BTreeMap<String, (i64, i64)> {
    let column = |name: &str| -> Vec<i64> { serde_json::from_value(tree[name].clone()).unwrap() };
    let names: Vec<String> = serde_json::from_value(tree["names"].clone()).unwrap();
    let (depth, name) = (column("depth"), column("name"));
    let (own, base) = (column("self"), column("base_self"));
    let mut path: Vec<&str> = Vec::new();
    let mut out = BTreeMap::new();
    for at in 0..depth.len() {
        path.truncate(depth[at] as usize);
        path.push(&names[name[at] as usize]);
        out.insert(path[1..].join(";"), (own[at], base[at]));
    }
    out
}

#[test]
fn both_sides_stand_on_one_tree() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let answer = get(server.address, &path("diff.json", "")).json();
    let n = 3 * UNIT;
    let expected = [
        ("", (0, 0)),
        ("main", (0, 0)),
        ("main;gone", (0, 60 * n)),
        ("main;new", (0, 0)),
        ("main;new;copy", (10 * n, 0)),
        ("main;parse", (90 * n, 30 * n)),
        ("main;parse;copy", (0, 10 * n)),
    ];
    let expected = expected.map(|(path, values)| (path.to_owned(), values));
    assert_eq!(nodes(&answer), BTreeMap::from(expected));
    assert_eq!(
        [&answer["meta"]["total"], &answer["meta"]["base_total"]],
        [100 * n, 100 * n]
    );
    // Cut to the root and the four largest by both sides together: main, parse, gone, and one tie.
    let cut = get(server.address, &path("diff.json", "&max_nodes=4")).json();
    let cut = nodes(&cut);
    assert_eq!(cut["main;parse"], (90 * n, 30 * n));
    assert_eq!(cut["main;parse;(other)"], (0, 10 * n));
    assert_eq!(cut["main;gone"], (0, 60 * n));
    assert_eq!(cut["main;(other)"], (10 * n, 0));
    let sum = |side: fn(&(i64, i64)) -> i64| cut.values().map(side).sum::<i64>();
    assert_eq!([sum(|v| v.0), sum(|v| v.1)], [100 * n, 100 * n]);
    server.stop();
}

#[test]
fn the_diff_of_a_selection_with_itself_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let same = format!("&base_q={}", escape(r#"{version="2"}"#));
    let path = format!(
        "/api/v1/diff.json?type={CPU}&{WINDOW}&q={}{same}",
        escape(r#"{version="2"}"#)
    );
    let answer = get(server.address, &path).json();
    assert!(nodes(&answer).values().all(|(own, base)| own == base));
    let top = get(server.address, &path.replace("diff.json", "diff/top")).json();
    let rows = top["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row["share_change"] == 0.0 && row["real"] == false)
    );
    server.stop();
}

#[test]
fn the_table_says_which_changes_are_more_than_chance() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let top = get(server.address, &path("diff/top", "")).json();
    // 300 events on each side: the column `samples` of the same profiles says so.
    assert_eq!([&top["events"], &top["base_events"]], [300, 300]);
    let row = |name: &str| {
        let rows = top["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    let gone = row("gone");
    assert_eq!([&gone["total"], &gone["base_total"]], [0, 180 * UNIT]);
    assert_eq!(
        [&gone["share_change"], &gone["real"]],
        [&Value::from(-0.6), &Value::from(true)]
    );
    // 40 % to 90 %: (0.9 - 0.4) / sqrt(0.65 * 0.35 * 2 / 300)
    let z = row("parse")["z"].as_f64().unwrap();
    assert!((z - 12.84).abs() < 0.01, "{z}");
    let copy = row("copy");
    assert_eq!([&copy["self"], &copy["base_self"]], [30 * UNIT, 30 * UNIT]);
    assert_eq!(copy["real"], false);
    assert_eq!(top["rows"][0]["name"], "gone", "largest change first");
    server.stop();
}

#[test]
fn windows_of_time_can_be_compared_and_a_missing_base_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let at = |n: i64| (T0 / SECOND + n).to_string();
    let path = format!(
        "/api/v1/diff.json?type={CPU}&from={}&until={}&base_from={}&base_until={}",
        at(10),
        at(25),
        at(0),
        at(5)
    );
    let meta = get(server.address, &path).json()["meta"].clone();
    assert_eq!(
        [&meta["total"], &meta["base_total"]],
        [400 * UNIT, 200 * UNIT]
    );
    let without = get(
        server.address,
        &format!("/api/v1/diff.json?type={CPU}&{WINDOW}"),
    );
    assert_eq!(without.status, 400);
    assert!(without.text().contains("base_q"), "{}", without.text());
    server.stop();
}

#[test]
fn depths_carry_the_value_of_stacks_of_that_many_frames() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    let path = format!(
        "/api/v1/depth?type={CPU}&{WINDOW}&q={}",
        escape(r#"{version="1"}"#)
    );
    let answer = get(server.address, &path).json();
    let n = 3 * UNIT;
    assert_eq!(answer["depths"], serde_json::json!([0, 0, 90 * n, 10 * n]));
    assert_eq!(answer["total"], 100 * n);
    server.stop();
}
