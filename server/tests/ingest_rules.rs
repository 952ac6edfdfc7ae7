//! Rates, windows of time and sampling: what is refused says so, what is thinned out keeps its sums.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::{
    Held, Local, SECOND, T0, WINDOW, escape, get, held_config, profile, push, push_path, total,
    try_request,
};
use pilotlight_server::{Config, Env, IngestRules, Keep, LabelLimits, Rule};
use serde_json::json;

fn held(folder: &std::path::Path, ingest: IngestRules) -> (Config, Arc<Held>) {
    let (mut config, env) = held_config(folder);
    config.ingest = ingest;
    (config, env)
}

fn cpu(time_ns: i64, ns: i64) -> Vec<u8> {
    profile(time_ns, &[(&["main", "a"], ns), (&["main", "b"], 3 * ns)])
}

#[test]
fn a_thinned_profile_keeps_its_totals_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = held(
        folder.path(),
        IngestRules {
            sampling: vec![Rule::new(r#"{env="dev"}"#, Keep::Share(0.25)).unwrap()],
            ..IngestRules::default()
        },
    );
    let server = Local::start(config);
    let mut thinned = 0;
    for n in 0..40 {
        let body = cpu(T0 + n * SECOND, 10_000_000);
        let answer = push(server.address, r#"{service_name="s",env="dev"}"#, &body).json();
        match answer["dropped"]["sampling_rule"].as_u64() {
            None => assert_eq!(answer["accepted_samples"], 2),
            Some(left_out) => {
                assert_eq!((left_out, &answer["accepted_samples"]), (2, &json!(1)));
                thinned += 1;
            }
        }
        let kept = push(server.address, r#"{service_name="s",env="prod"}"#, &body).json();
        assert_eq!(kept["accepted_samples"], 2, "no rule is for prod");
    }
    assert!((25..=35).contains(&thinned), "{thinned} of 40");
    let whole = 40 * 40_000_000;
    assert_eq!(total(server.address, r#"{env="dev"}"#), (whole, false));
    assert_eq!(
        total(server.address, r#"{env="dev",__sampled__="true"}"#).0,
        thinned * 40_000_000
    );
    assert_eq!(total(server.address, r#"{env="prod"}"#).0, whole);
    let tree = get(
        server.address,
        &format!(
            "/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&{WINDOW}&q={}",
            escape(r#"{env="dev"}"#)
        ),
    );
    assert!(tree.text().contains("[stacks left out by a sampling rule]"));
    let metrics = get(server.address, "/metrics").text();
    assert!(
        metrics.contains(&format!(
            "pilotlight_thinned_total{{reason=\"share\"}} {thinned}"
        )),
        "{metrics}"
    );
    server.stop();
}

#[test]
fn a_retry_of_a_thinned_profile_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = held(
        folder.path(),
        IngestRules {
            sampling: vec![Rule::new("{}", Keep::Share(0.5)).unwrap()],
            ..IngestRules::default()
        },
    );
    let server = Local::start(config);
    let body = cpu(T0, 10_000_000);
    for n in 0..8 {
        let answer = push(server.address, r#"{service_name="s"}"#, &body).json();
        assert_eq!(answer["duplicate"], n > 0);
    }
    assert_eq!(total(server.address, "{}").0, 40_000_000);
    server.stop();
}

#[test]
fn a_rate_answers_429_with_the_time_to_return() {
    let folder = tempfile::tempdir().unwrap();
    let (config, env) = held(
        folder.path(),
        IngestRules {
            profiles_per_second: 1,
            ..IngestRules::default()
        },
    );
    let server = Local::start(config);
    let send = |n: i64| {
        push(
            server.address,
            r#"{service_name="s"}"#,
            &cpu(T0 + n, 10_000_000),
        )
    };
    assert_eq!([send(0).status, send(1).status], [200, 200]);
    let refused = send(2);
    assert_eq!(refused.status, 429);
    assert!(
        refused.head.to_lowercase().contains("retry-after: 1"),
        "{}",
        refused.head
    );
    assert!(
        refused.text().contains("more than 1 profiles a second"),
        "{}",
        refused.text()
    );
    env.now_ns.fetch_add(SECOND, Relaxed);
    assert_eq!(send(2).status, 200, "the same push, a second later");
    assert_eq!(total(server.address, "{}").0, 3 * 40_000_000);
    let metrics = get(server.address, "/metrics").text();
    assert!(metrics.contains("pilotlight_limited_total{reason=\"profiles\"} 1"));
    server.stop();
}

#[test]
fn series_and_labels_beyond_the_limits_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = held(
        folder.path(),
        IngestRules {
            series: 2,
            labels: LabelLimits {
                count: 3,
                name_bytes: 12,
                value_bytes: 8,
            },
            ..IngestRules::default()
        },
    );
    let server = Local::start(config);
    let send = |series: &str, n: i64| push(server.address, series, &cpu(T0 + n, 10_000_000));
    assert_eq!(send(r#"{service_name="a"}"#, 0).status, 200);
    assert_eq!(send(r#"{service_name="b"}"#, 0).status, 200);
    let third = send(r#"{service_name="c"}"#, 0);
    assert_eq!(third.status, 422);
    assert!(third.text().contains("series_limit"), "{}", third.text());
    assert_eq!(
        send(r#"{service_name="a"}"#, 1).status,
        200,
        "known ones go on"
    );
    for (series, words) in [
        (
            r#"{a="1",b="2",c="3",service_name="a"}"#,
            "4 labels, the limit is 3",
        ),
        (r#"{service_name="123456789"}"#, "8 for the value"),
        (r#"{service_names="a"}"#, "12 bytes for the name"),
    ] {
        let answer = send(series, 2);
        assert_eq!(answer.status, 422, "{series}");
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    let status = get(server.address, "/api/v1/status").json();
    assert_eq!(status["active_series"], 2);
    server.stop();
}

#[test]
fn a_sender_whose_clock_is_ahead_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (config, env) = held(folder.path(), IngestRules::default());
    let server = Local::start(config);
    let ahead = cpu(T0 + 7200 * SECOND, 10_000_000);
    let answer = push(server.address, r#"{service_name="s"}"#, &ahead).json();
    assert_eq!(answer["repaired"]["future_time"], 1);
    let again = push(server.address, r#"{service_name="s"}"#, &ahead).json();
    assert_eq!(again["duplicate"], true);
    // It is found where it arrived.
    let at = env.now_ns() / SECOND;
    let path = format!(
        "/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&from={}&until={}",
        at - 1,
        at + 20
    );
    assert_eq!(
        get(server.address, &path).json()["meta"]["total"],
        40_000_000
    );
    server.stop();
}

#[test]
fn what_retention_would_delete_at_once_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = held(
        folder.path(),
        IngestRules {
            past: Some(Duration::from_secs(3600)),
            ..IngestRules::default()
        },
    );
    let server = Local::start(config);
    let answer = push(
        server.address,
        r#"{service_name="s"}"#,
        &cpu(T0 - 3600 * SECOND, 10_000_000),
    );
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("3700 s old"), "{}", answer.text());
    let own_label = try_request(
        server.address,
        "POST",
        &push_path(r#"{service_name="s",__sampled__="true"}"#),
        "",
        &cpu(T0, 10_000_000),
    )
    .unwrap();
    assert_eq!(own_label.status, 400);
    server.stop();
}
