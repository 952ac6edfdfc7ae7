use std::time::{Duration, Instant};

use super::client::Answer;
use super::queue::{Parcel, Queue};
use super::send::{Outcome, outcome, pause};
use super::url::{Url, encode};
use super::{Protocol, Push};
use crate::stats::COUNTERS;

fn parcel(id: u8, bytes: usize) -> Parcel {
    Parcel {
        query: id.to_string(),
        headers: Vec::new(),
        body: vec![id; bytes],
    }
}

fn lost() -> u64 {
    COUNTERS.push_lost_queue_full.get()
}

#[test]
fn the_queue_keeps_its_bytes_and_the_newest_and_counts_what_goes() {
    let (queue, before) = (Queue::new(100), lost());
    for id in 1..=3 {
        queue.add(parcel(id, 40));
    }
    assert_eq!(lost() - before, 1);
    queue.add(parcel(4, 101));
    assert_eq!(lost() - before, 2);
    // What is being sent counts, and stays.
    assert_eq!(queue.next().unwrap().query, "2");
    queue.add(parcel(5, 60));
    assert_eq!(lost() - before, 3);
    queue.add(parcel(6, 61));
    assert_eq!(lost() - before, 4);
    queue.sent();
    assert_eq!(queue.next().unwrap().query, "5");
    queue.sent();
    queue.no_more();
    assert!(queue.next().is_none());
}

#[test]
fn what_waits_at_the_end_is_counted_and_holds_nobody_up() {
    let (queue, before) = (Queue::new(100), COUNTERS.push_lost_unsent.get());
    queue.add(parcel(1, 10));
    queue.add(parcel(2, 10));
    queue.end(Instant::now());
    assert!(queue.pause(Duration::from_secs(600)));
    queue.wait_until_sent(Instant::now());
    assert_eq!(COUNTERS.push_lost_unsent.get() - before, 2);
}

#[test]
fn pauses_double_up_to_the_longest_with_half_of_it_random() {
    for (failed, full) in [
        (1, 500),
        (2, 1000),
        (4, 4000),
        (7, 30_000),
        (u32::MAX, 30_000),
    ] {
        let full = Duration::from_millis(full);
        assert_eq!(pause(failed, 0.0), full / 2);
        assert_eq!(pause(failed, 1.0), full);
    }
}

#[test]
fn only_what_may_pass_is_tried_again() {
    let of = |status| {
        let retry_after = Some(Duration::from_secs(3));
        outcome(Some(Answer {
            status,
            retry_after,
        }))
    };
    for status in [200, 202, 204] {
        assert_eq!(of(status), Outcome::Taken);
    }
    for status in [301, 400, 401, 404, 413, 415, 422, 501] {
        assert_eq!(of(status), Outcome::Refused, "{status}");
    }
    for status in [408, 429, 500, 502, 503, 504, 507] {
        assert_eq!(of(status), Outcome::Again(Some(Duration::from_secs(3))));
    }
    assert_eq!(outcome(None), Outcome::Again(None));
}

#[test]
fn addresses_get_port_and_path_and_nonsense_is_refused() {
    for (text, authority, path) in [
        ("http://a", "a:80", "/p"),
        ("http://a:4040/", "a:4040", "/p"),
        ("http://[::1]/x/", "[::1]:80", "/x"),
        ("http://[::1]:9/x/y", "[::1]:9", "/x/y"),
    ] {
        let url = Url::parse(text, "/p").unwrap();
        assert_eq!(
            (url.authority.as_str(), url.path.as_str()),
            (authority, path)
        );
    }
    for text in [
        "https://a",
        "a:80",
        "http://",
        "http:///x",
        "http://u@a",
        "http://a/?q",
        "http://a\r\nX: y",
        "http://a/ b",
        "http://ä",
    ] {
        assert_eq!(Url::parse(text, "/p"), None, "{text}");
        assert!(Push::new(text).check().is_err(), "{text}");
    }
    assert_eq!(encode("{a=\"ü/1\"}"), "%7Ba%3D%22%C3%BC%2F1%22%7D");
}

#[test]
fn the_environment_overrides_and_is_checked() {
    let push = |name: &'static str, value: &'static str| {
        let variable = move |asked: &str| match asked {
            "PILOTLIGHT_PUSH_URL" => Some("http://b:1".to_string()),
            asked if asked == name => Some(value.to_string()),
            _ => None,
        };
        Push::overridden(Some(Push::new("http://a:1")), variable)
    };
    let taken = push("PILOTLIGHT_PUSH_TYPES", "profile, heap")
        .unwrap()
        .unwrap();
    assert_eq!(
        (taken.url.as_str(), taken.types.as_slice()),
        (
            "http://b:1",
            &["profile".to_string(), "heap".to_string()][..]
        )
    );
    let otlp = push("PILOTLIGHT_PUSH_PROTOCOL", "otlp").unwrap().unwrap();
    assert_eq!(otlp.protocol, Protocol::Otlp);
    assert_eq!(otlp.check().unwrap().path, "/v1development/profiles");
    assert!(push("PILOTLIGHT_PUSH_PROTOCOL", "grpc").is_err());
    assert!(push("PILOTLIGHT_PUSH_SECONDS", "soon").is_err());
    let zero = push("PILOTLIGHT_PUSH_SECONDS", "0").unwrap().unwrap();
    assert!(zero.check().is_err());
    let forged = push("PILOTLIGHT_PUSH_AUTHORIZATION", "x\r\nHost: y")
        .unwrap()
        .unwrap();
    assert!(forged.check().is_err());
    assert!(Push::overridden(None, |_| None).unwrap().is_none());
}

#[test]
fn the_service_s_version_is_a_label_unless_the_push_has_one() {
    let labels = |push: Push| push.of_version(Some("2")).labels;
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let push = || Push::new("http://h:1").label("env", "prod");
    assert_eq!(labels(push()), [pair("env", "prod"), pair("version", "2")]);
    let otlp = labels(push().protocol(Protocol::Otlp));
    assert_eq!(otlp, [pair("env", "prod"), pair("service.version", "2")]);
    let own = labels(push().label("version", "canary"));
    assert_eq!(own, [pair("env", "prod"), pair("version", "canary")]);
    assert_eq!(push().of_version(None).labels, [pair("env", "prod")]);
}
