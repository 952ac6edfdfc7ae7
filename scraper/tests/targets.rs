//! From configuration to targets: labels, URLs, identities.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

use pilotlight_scraper::target::{Target, targets};
use pilotlight_scraper::{Config, ScrapeConfig};
use std::path::Path;

fn job(text: &str) -> ScrapeConfig {
    let text = format!("scrape_configs: [{{job_name: shop, {text}}}]");
    Config::parse(&text, Path::new("x.yaml"), &[])
        .unwrap()
        .scrape_configs
        .remove(0)
}

fn good(job: &ScrapeConfig) -> Vec<Target> {
    let (good, bad) = targets(job, &job.static_configs);
    assert_eq!(bad, []);
    good
}

#[test]
fn labels_follow_prometheus_order() {
    let job =
        job("static_configs: [{targets: ['h:1'], labels: {env: dev, __meta_x: y, __internal: z}}]");
    let target = &good(&job)[0];
    assert_eq!(
        target.labels.selector(),
        r#"{env="dev",instance="h:1",job="shop",service_name="shop"}"#,
        "no label that begins with __ reaches the series"
    );
    for (name, value) in [
        ("__address__", "h:1"),
        ("__scheme__", "http"),
        ("__scrape_interval__", "10s"),
        ("__scrape_timeout__", "10s"),
        ("__profile_path__", "/debug/pprof/profile"),
        ("__meta_x", "y"),
        ("job", "shop"),
    ] {
        assert_eq!(target.discovered.get(name), Some(value), "{name}");
    }
}

#[test]
fn given_job_instance_and_service_name_win_over_defaults() {
    let job =
        job("static_configs: [{targets: ['h:1'], labels: {job: j, instance: i, service_name: s}}]");
    assert_eq!(
        good(&job)[0].labels.selector(),
        r#"{instance="i",job="j",service_name="s"}"#
    );
}

#[test]
fn service_name_defaults_to_the_configured_job() {
    let job = job("static_configs: [{targets: ['h:1'], labels: {service_name: ''}}]");
    assert_eq!(good(&job)[0].labels.get("service_name"), Some("shop"));
}

#[test]
fn rules_see_what_was_discovered_and_come_before_everything_else() {
    let job = job(r#"
        profiling_config: {pprof_config: {memory: {}}},
        relabel_configs: [
            {source_labels: [__meta_ready], regex: 'no', action: drop},
            {source_labels: [__address__], regex: '([^:]+):.*', target_label: __address__, replacement: '$1:9'},
            {source_labels: [__meta_path], target_label: __profile_path__, regex: '(.+)'},
            {regex: '__meta_label_(.+)', action: labelmap},
            {source_labels: [__profile_name__, __param_x], regex: 'memory;1', action: drop},
            {target_label: __scrape_interval__, replacement: 20s},
        ],
        params: {x: '1'},
        static_configs: [
            {targets: ['a:1'], labels: {__meta_ready: 'no'}},
            {targets: ['b:1', 'b:2'], labels: {__meta_label_team: blue, __meta_path: /p}},
        ]"#);
    let (good, bad) = targets(&job, &job.static_configs);
    let [target] = &good[..] else {
        panic!("both addresses became one: {good:?}")
    };
    assert_eq!(
        target.labels.selector(),
        r#"{instance="b:9",job="shop",service_name="shop",team="blue"}"#
    );
    assert_eq!(target.url.to_string(), "http://b:9/p?seconds=9&x=1");
    assert_eq!(target.interval.as_secs(), 20);
    assert_eq!(target.discovered.get("__address__"), Some("b:1"));
    let reasons: Vec<&str> = bad.iter().map(|bad| &*bad.reason).collect();
    let (ready, memory) = (
        "relabel_configs[0] (drop) drops it",
        "relabel_configs[4] (drop) drops it",
    );
    assert_eq!(reasons, [ready, ready, memory, memory]);
    assert!(bad.iter().all(|bad| bad.by_rule));
}

#[test]
fn interval_and_timeout_come_from_labels_and_are_checked() {
    let own = job(
        "static_configs: [{targets: ['h:1'], labels: {__scrape_interval__: 4s, __scrape_timeout__: 2s}}]",
    );
    let target = &good(&own)[0];
    assert_eq!(
        (target.interval.as_secs(), target.timeout.as_secs()),
        (4, 2)
    );
    assert_eq!(
        target.url.query(),
        "seconds=3",
        "the capture fits the target's own interval"
    );
    let bad = job("static_configs: [{targets: ['h:1'], labels: {__scrape_interval__: 4s}}]");
    let (_, rejected) = targets(&bad, &bad.static_configs);
    assert!(
        rejected[0].reason.contains("__scrape_timeout__"),
        "{rejected:?}"
    );
}

#[test]
fn one_bad_address_leaves_its_group_alone() {
    // prometheus/prometheus#8438
    let job = job("static_configs: [{targets: ['h:1', 'http://h:2/x', 'h:3', 'h:port']}]");
    let (good, bad) = targets(&job, &job.static_configs);
    let mut addresses: Vec<_> = good.iter().map(|target| target.url.address()).collect();
    addresses.sort();
    assert_eq!(addresses, ["h:1", "h:3"]);
    assert_eq!(bad.len(), 2);
    assert!(bad[0].reason.contains("without http://"), "{bad:?}");
    assert!(bad[1].reason.contains("port"), "{bad:?}");
}

#[test]
fn seconds_never_leaks_into_other_profiles_nor_grows() {
    // grafana/alloy#3026: a shared map of params collected one `seconds` per target and reload
    let job = job(
        "params: {team: [a]}, static_configs: [{targets: ['h:1', 'h:2'], labels: {__param_seconds: '99'}}], \
         profiling_config: {pprof_config: {memory: {}, mutex: {delta: true, seconds: 4}}}",
    );
    for _ in 0..3 {
        for target in good(&job) {
            let expected = match target.profile.name.as_str() {
                "process_cpu" => "seconds=9&team=a",
                "memory" => "team=a",
                "mutex" => "seconds=4&team=a",
                other => panic!("{other}"),
            };
            assert_eq!(target.url.query(), expected);
        }
    }
}

#[test]
fn a_param_label_replaces_the_first_value_of_its_target_only() {
    let job = job("params: {team: [a, b]}, \
         static_configs: [{targets: ['h:1'], labels: {__param_team: 'c d'}}, {targets: ['h:2']}]");
    let mut urls: Vec<_> = good(&job)
        .iter()
        .map(|target| target.url.to_string())
        .collect();
    urls.sort();
    assert_eq!(
        urls,
        [
            "http://h:1/debug/pprof/profile?seconds=9&team=c+d&team=b",
            "http://h:2/debug/pprof/profile?seconds=9&team=a&team=b",
        ]
    );
}

#[test]
fn equal_targets_collapse_and_identity_depends_on_labels_and_url_only() {
    let twice = job("static_configs: [{targets: ['h:1', 'h:1']}, {targets: ['h:1']}]");
    assert_eq!(good(&twice).len(), 1);
    let labelled = job("static_configs: [{targets: ['h:1']}, {targets: ['h:1'], labels: {a: b}}]");
    let targets = good(&labelled);
    assert_eq!(targets.len(), 2);
    assert_ne!(targets[0].identity, targets[1].identity);
    assert!(
        targets
            .iter()
            .any(|target| target.identity == good(&twice)[0].identity)
    );
}

#[test]
fn over_the_target_limit_all_targets_of_the_job_fail() {
    let job = job("target_limit: 1, static_configs: [{targets: ['h:1', 'h:2']}]");
    for target in good(&job) {
        assert_eq!(
            target.refused.as_deref(),
            Some("target_limit exceeded: 2 targets, limit 1")
        );
    }
}

#[test]
fn label_limits_name_the_label() {
    let limits = [
        ("label_limit: 3", "label_limit exceeded: 4 labels, limit 3"),
        (
            "label_name_length_limit: 11",
            "label_name_length_limit exceeded by \"service_name\": 12 bytes",
        ),
        (
            "label_value_length_limit: 3",
            "label_value_length_limit exceeded by \"env\": 6 bytes",
        ),
    ];
    for (limit, reason) in limits {
        let text = "static_configs: [{targets: ['h:1'], labels: {env: 'abcdef'}}]";
        let target = &good(&job(&format!("{limit}, {text}")))[0];
        assert_eq!(target.refused.as_deref(), Some(reason));
    }
}

#[test]
fn dashes_in_label_names_are_kept() {
    // grafana/pyroscope#3359
    let job = job("static_configs: [{targets: ['h:1'], labels: {process-description: x}}]");
    assert!(
        good(&job)[0]
            .labels
            .selector()
            .contains(r#""process-description"="x""#)
    );
}
