//! A clock that is wrong for a while: nothing fresh is deleted, nothing is lost, nothing counts twice.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::{Local, SECOND, T0, busy_maintenance, get, held_config, profile, push};
use pilotlight_server::Maintenance;

const SERIES: &str = r#"{service_name="s"}"#;
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn all(address: std::net::SocketAddr) -> i64 {
    let path = format!("/api/v1/tree.json?type={TYPE}&from=1&until=4000000000");
    let meta = get(address, &path).json()["meta"].clone();
    assert_eq!(meta["partial"], false);
    meta["total"].as_i64().unwrap()
}

fn body(time_ns: i64) -> Vec<u8> {
    profile(time_ns, &[(&["main"], 10_000_000)])
}

fn merges(address: std::net::SocketAddr) -> u64 {
    get(address, "/api/v1/status").json()["merges"]
        .as_u64()
        .unwrap()
}

/// Waits until maintenance has done something more, or for some of its rounds.
fn rounds(address: std::net::SocketAddr) {
    let (before, since) = (merges(address), Instant::now());
    while merges(address) == before && since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn jumps_of_an_hour_and_of_a_year_lose_and_double_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, env) = held_config(folder.path());
    config.maintenance = Some(Maintenance {
        max_age: Some(Duration::from_secs(15 * 86_400)),
        ..busy_maintenance()
    });
    let server = Local::start(config);
    let address = server.address;
    let year = 365 * 86_400;
    let mut expected = 0;
    for (n, jump_s) in [0, 3600, -7200, 3600, year, -year, 0]
        .into_iter()
        .enumerate()
    {
        env.now_ns.fetch_add(jump_s * SECOND, Relaxed);
        // The sender's clock is right all the time.
        let sent = body(T0 + n as i64 * SECOND);
        let answer = push(address, SERIES, &sent);
        // While the clock is a year ahead, all that comes is older than what is kept: said, not lost.
        if answer.status == 422 {
            assert_eq!(jump_s, year, "{}", answer.text());
        } else {
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["duplicate"], false);
            expected += 10_000_000;
            assert_eq!(push(address, SERIES, &sent).json()["duplicate"], true);
        }
        rounds(address);
        assert_eq!(all(address), expected, "after jump {n}");
    }
    assert_eq!(expected, 6 * 10_000_000);
    let status = get(address, "/metrics").text();
    assert!(
        status.contains("pilotlight_expired_segments_total 0"),
        "{status}"
    );
    server.stop();
}
