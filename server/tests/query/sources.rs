//! A process seen from inside and by the host agent counts once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CPU, ask};
use crate::common::{
    Local, SECOND, T0, WINDOW, busy_maintenance, config, escape, get, profile, push,
};

const UNIT: i64 = 10_000_000;

fn send(address: SocketAddr, series: &str, at: i64, name: &str, units: i64) {
    let body = profile(T0 + at * SECOND, &[(&["main", name], units * UNIT)]);
    assert_eq!(push(address, series, &body).status, 200, "{series}");
}

/// Profiles of 10 s. a: seen by both in the first two; b: by the agent alone; c: two processes that
/// only their instance tells apart.
fn load(address: SocketAddr) {
    let inside = "{service_name=\"a\",service_instance_id=\"1\",pod=\"p\"}";
    let agent = "{service_name=\"a\",service_instance_id=\"1\",host=\"h\",source=\"agent\"}";
    for (at, units) in [(0, 100), (10, 100)] {
        send(address, inside, at, "sdk", units);
    }
    for (at, units) in [(0, 97), (15, 98), (20, 50), (30, 51)] {
        send(address, agent, at, "agent", units);
    }
    send(
        address,
        "{service_name=\"b\",source=\"agent\"}",
        0,
        "agent",
        7,
    );
    send(
        address,
        "{service_name=\"c\",service_instance_id=\"1\",source=\"sdk\"}",
        0,
        "sdk",
        3,
    );
    send(
        address,
        "{service_name=\"c\",service_instance_id=\"2\",source=\"agent\"}",
        0,
        "agent",
        4,
    );
}

/// (total, profiles left out) of a selection, by tree, top and pprof alike.
fn sums(address: SocketAddr, q: &str) -> (i64, u64) {
    let tree = ask(address, "tree.json", q, "");
    let total = tree["meta"]["total"].as_i64().unwrap();
    let top = ask(address, "top", q, "");
    assert_eq!(top["total"], total, "{q}");
    let lines = ask(address, "series", q, "&step=1h");
    let points = lines["series"].as_array().unwrap().iter();
    let of = |line: &Value| {
        line["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p[1].as_i64().unwrap())
            .sum::<i64>()
    };
    assert_eq!(
        points.map(of).sum::<i64>(),
        total,
        "{q}: the line says what the tree says"
    );
    assert_eq!(lines["superseded"], tree["meta"]["superseded"], "{q}");
    (total / UNIT, tree["meta"]["superseded"].as_u64().unwrap())
}

fn check(address: SocketAddr) {
    // What the agent saw from 0 to 25 s overlaps with the inside's 0 to 20 s.
    assert_eq!(sums(address, "{service_name=\"a\"}"), (200 + 101, 2));
    assert_eq!(
        sums(address, "{service_name=\"a\",source=\"agent\"}"),
        (296, 0)
    );
    assert_eq!(
        sums(address, "{service_name=\"a\",source!=\"agent\"}"),
        (200, 0)
    );
    assert_eq!(sums(address, "{service_name=\"b\"}"), (7, 0));
    assert_eq!(
        sums(address, "{service_name=\"c\"}"),
        (7, 0),
        "two processes"
    );
    assert_eq!(sums(address, "{}"), (301 + 7 + 7, 2));
    let path = format!(
        "/api/v1/series?type={CPU}&{WINDOW}&step=1h&by=source&q={}",
        escape("{service_name=\"a\"}")
    );
    let lines = get(address, &path).json();
    let line = |at: usize| {
        lines["series"][at]["points"][0][1]
            .as_i64()
            .map(|sum| sum / UNIT)
    };
    assert_eq!(
        (line(0), line(1)),
        (Some(200), Some(296)),
        "each line for itself: {lines}"
    );
}

#[test]
fn sums_over_a_selector_never_add_a_process_seen_by_sdk_and_agent_twice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    load(server.address);
    check(server.address);
    server.stop();
    let mut merging = config(folder.path());
    merging.maintenance = Some(busy_maintenance());
    let server = Local::start(merging);
    let since = Instant::now();
    while get(server.address, "/api/v1/status").json()["blocks"] != 1 {
        assert!(since.elapsed() < Duration::from_secs(30), "not merged");
        std::thread::sleep(Duration::from_millis(20));
    }
    check(server.address);
    server.stop();
}
