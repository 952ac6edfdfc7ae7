//! What the configuration file accepts and what it refuses, word for word.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

use pilotlight_scraper::{Config, ScrapeConfig};
use std::path::Path;
use std::time::Duration;

fn accepted(text: &str) -> Config {
    Config::parse(
        text,
        Path::new("/etc/pilotlight/pilotlight.yaml"),
        &["server"],
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> Vec<String> {
    Config::parse(text, Path::new("pilotlight.yaml"), &["server"])
        .unwrap_err()
        .problems
}

fn only_job(text: &str) -> ScrapeConfig {
    let config = accepted(text);
    assert_eq!(config.scrape_configs.len(), 1);
    config.scrape_configs[0].clone()
}

#[test]
fn the_shortest_job_gets_the_documented_defaults() {
    let job = only_job("scrape_configs: [{job_name: a, static_configs: [{targets: ['h:1']}]}]");
    assert_eq!(job, ScrapeConfig::new("a", &["h:1"]));
    assert_eq!(job.scrape_interval, Duration::from_secs(10));
    assert_eq!(job.scrape_timeout, Duration::from_secs(10));
    assert_eq!(job.profiles.len(), 1, "only process_cpu");
    assert_eq!(job.profiles[0].path, "/debug/pprof/profile");
    assert_eq!(
        job.profiles[0].seconds,
        Some(9),
        "a second less than the interval"
    );
}

#[test]
fn every_setting_of_a_full_job_arrives() {
    let job = only_job(
        r"
global: {scrape_interval: 30s, scrape_timeout: 3s}
scrape_configs:
  - job_name: full
    scrape_interval: 1m
    scrape_timeout: 45s
    scheme: http
    params: {team: [a, b], one: x}
    body_size_limit: 8MB
    sample_limit: 5000
    label_limit: 10
    label_name_length_limit: 20
    label_value_length_limit: 30
    target_limit: 7
    static_configs:
      - targets: [h:1, 'h:2']
        labels: {env: dev, shard: 3}
    file_sd_configs:
      - files: [targets/*.yml, /abs/x.json]
        refresh_interval: 2m
    profiling_config:
      path_prefix: /internal/
      pprof_config:
        process_cpu: {seconds: 10}
        memory: {enabled: true, delta: true}
        goroutine: {enabled: false}
        fgprof: {path: /debug/fgprof, seconds: 5, delta: true}
",
    );
    assert_eq!(
        (job.scrape_interval.as_secs(), job.scrape_timeout.as_secs()),
        (60, 45)
    );
    assert_eq!(job.params["team"], ["a", "b"]);
    assert_eq!(job.params["one"], ["x"]);
    assert_eq!(
        (job.body_size_limit, job.sample_limit, job.label_limit),
        (8 << 20, 5000, 10)
    );
    assert_eq!(
        (
            job.label_name_length_limit,
            job.label_value_length_limit,
            job.target_limit
        ),
        (20, 30, 7)
    );
    assert_eq!(job.static_configs[0].targets, ["h:1", "h:2"]);
    assert_eq!(
        job.static_configs[0].labels.selector(),
        r#"{env="dev",shard="3"}"#
    );
    let files: Vec<_> = job.file_sd_configs[0]
        .files
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    assert_eq!(
        files,
        ["/etc/pilotlight/targets/*.yml", "/abs/x.json"],
        "relative to the file's folder"
    );
    assert_eq!(job.file_sd_configs[0].refresh_interval.as_secs(), 120);
    let profiles: Vec<_> = job
        .profiles
        .iter()
        .map(|profile| {
            (
                profile.name.as_str(),
                profile.path.as_str(),
                profile.seconds,
            )
        })
        .collect();
    assert_eq!(profiles.len(), 3);
    assert!(profiles.contains(&("process_cpu", "/internal/debug/pprof/profile", Some(10))));
    assert!(profiles.contains(&("memory", "/internal/debug/pprof/allocs", Some(59))));
    assert!(profiles.contains(&("fgprof", "/internal/debug/fgprof", Some(5))));
}

#[test]
fn a_one_minute_interval_with_45_seconds_of_timeout_starts() {
    // valid for Prometheus, refused by Parca (parca-dev/parca#2332)
    let job = only_job("scrape_configs: [{job_name: a, scrape_interval: 1m, scrape_timeout: 45s}]");
    assert_eq!(job.profiles[0].seconds, Some(59));
}

#[test]
fn the_default_timeout_follows_a_short_interval() {
    let job = only_job("scrape_configs: [{job_name: a, scrape_interval: 2s}]");
    assert_eq!(
        (job.scrape_timeout.as_secs(), job.profiles[0].seconds),
        (2, Some(1))
    );
}

#[test]
fn metrics_path_is_accepted_and_said_to_have_no_effect() {
    let config = accepted("scrape_configs: [{job_name: a, metrics_path: /metrics}]");
    assert_eq!(config.warnings.len(), 1);
    assert!(
        config.warnings[0].contains("metrics_path has no effect"),
        "{:?}",
        config.warnings
    );
}

#[test]
fn sections_of_others_are_handed_over() {
    let config = accepted("server: {listen: '127.0.0.1:1'}");
    assert_eq!(config.sections[0].0, "server");
    assert_eq!(config.sections[0].1["listen"], "127.0.0.1:1");
    assert!(accepted("").scrape_configs.is_empty());
}

/// (file, problems)
const REFUSED: &[(&str, &[&str])] = &[
    (
        "scrape_configs: [{job_name: a, scrap_interval: 5s}]",
        &["scrape_configs[0] (a).scrap_interval: unknown key; did you mean scrape_interval?"],
    ),
    (
        "scrape_configs: [{job_name: a, relabel_configs: [{action: keep}, {action: hashmod, target_label: x}, 7]}]",
        &[
            "scrape_configs[0] (a).relabel_configs[1].modulus: hashmod needs one above 0",
            "scrape_configs[0] (a).relabel_configs[2]: must be a mapping such as {action: drop, …}",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, metric_relabel_configs: []}]",
        &[
            "scrape_configs[0] (a).metric_relabel_configs: a profile has the labels of its target; use relabel_configs, and remove it",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod}]}]",
        &[
            "scrape_configs[0] (a).kubernetes_sd_configs: this kind of discovery is not supported yet; write its targets to file_sd_configs",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, basic_auth: {username: u}}]",
        &[
            "scrape_configs[0] (a).basic_auth: of authentication only authorization and tls_config are supported yet",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, scheme: ftp}]",
        &["scrape_configs[0] (a).scheme: \"ftp\" is neither http nor https"],
    ),
    (
        "scrape_configs: [{job_name: a, scheme: https, tls_config: {cert_file: a.pem, min_version: TLS13}}]",
        &[
            "scrape_configs[0] (a).tls_config.cert_file: give cert_file and key_file, or neither",
            "scrape_configs[0] (a).tls_config.min_version: TLS 1.2 and 1.3 are spoken; remove it",
        ],
    ),
    (
        "scrape_configs: [{job_name: a}, {job_name: a}]",
        &["scrape_configs[1].job_name: \"a\" stands twice; every job needs its own name"],
    ),
    (
        "scrape_configs: [{static_configs: [{targets: [h:1], label: {a: b}}]}]",
        &[
            "scrape_configs[0].job_name: every job needs a name",
            "scrape_configs[0].static_configs[0].label: unknown key; did you mean labels?",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, scrape_interval: 10, scrape_timeout: 11s, body_size_limit: 10XB}]",
        &[
            "scrape_configs[0] (a).scrape_interval: \"10\" is not a duration; write it like 15s, 1m30s or 500ms",
            "scrape_configs[0] (a).scrape_timeout: 11s is longer than scrape_interval (10s); it is the time beyond the profile's seconds, lower it",
            "scrape_configs[0] (a).body_size_limit: \"10XB\" is not a size; write it like 64MB or 65536",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, params: {seconds: ['30'], debug: ['1']}}]",
        &[
            "scrape_configs[0] (a).params.debug: asks for text, which is not a profile; remove it",
            "scrape_configs[0] (a).params.seconds: would apply to every profile; set profiling_config.pprof_config.process_cpu.seconds instead",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, profiling_config: {pprof_config: {trace: {path: /debug/pprof/trace}}}}]",
        &[
            "scrape_configs[0] (a).profiling_config.pprof_config.trace.path: \"/debug/pprof/trace\" does not answer with a pprof profile; remove it",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, profiling_config: {pprof_config: {own: {seconds: 3}, process_cpu: {seconds: 11, delta: false}}}}]",
        &[
            "scrape_configs[0] (a).profiling_config.pprof_config.own.seconds: asks for a difference; add delta: true, or remove it",
            "scrape_configs[0] (a).profiling_config.pprof_config.own.path: a profile that is not built in needs a path",
            "scrape_configs[0] (a).profiling_config.pprof_config.own.path: \"\" must begin with /",
            "scrape_configs[0] (a).profiling_config.pprof_config.process_cpu.seconds: is longer than scrape_interval (10s)",
            "scrape_configs[0] (a).profiling_config.pprof_config.process_cpu.delta: this profile always covers its own seconds; remove it",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, profiling_config: {pprof_config: {process_cpu: {enabled: false}}}}]",
        &[
            "scrape_configs[0] (a).profiling_config: turns every profile off; enable one or remove the job",
        ],
    ),
    (
        "scrape_configs: [{job_name: a, file_sd_configs: [{files: [a.txt, 'x*/b.yml']}, {}]}]",
        &[
            "scrape_configs[0] (a).file_sd_configs[0].files: \"a.txt\" must end in .yml, .yaml or .json",
            "scrape_configs[0] (a).file_sd_configs[0].files: \"x*/b.yml\": * may only stand in the last part",
            "scrape_configs[0] (a).file_sd_configs[1].files: needs at least one path",
        ],
    ),
    (
        "{scrape_configs: {job_name: a}, remote_write: [], nonsense: 1}",
        &[
            "scrape_configs: must be a list, not a mapping",
            "nonsense: unknown key; known here: server, global, scrape_configs",
            "remote_write: Prometheus' key, not supported yet; remove it here",
        ],
    ),
];

#[test]
fn refused_files_name_every_place_and_what_to_do() {
    for (text, problems) in REFUSED {
        assert_eq!(refused(text), *problems, "{text}");
    }
}

#[test]
fn broken_yaml_says_where() {
    let problems = refused("scrape_configs:\n  - job_name: [a\n");
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("not valid YAML: ") && problems[0].contains("line 2"),
        "{problems:?}"
    );
    let problems = refused("server: {}\nserver: {}\n");
    assert!(problems[0].contains("duplicate"), "{problems:?}");
}

#[test]
fn label_values_keep_their_text_or_ask_for_quotes() {
    let job = only_job(
        "scrape_configs: [{job_name: a, static_configs: [{targets: [h:1], labels: {a: y, b: no, c: 007, d: 12, e: '1.10'}}]}]",
    );
    let labels = job.static_configs[0].labels.selector();
    assert_eq!(labels, r#"{a="y",b="no",c="007",d="12",e="1.10"}"#);
    let problems = refused(
        "scrape_configs: [{job_name: a, static_configs: [{targets: [h:1], labels: {v: 1.10, t: true, l: []}}]}]",
    );
    let place = "scrape_configs[0] (a).static_configs[0].labels";
    assert_eq!(
        problems,
        [
            format!("{place}.l: must be a text, not a list"),
            format!("{place}.t: is read as true or false; write it in quotes"),
            format!("{place}.v: is read as a number; write it in quotes"),
        ]
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::read(Path::new("/nowhere/pilotlight.yaml"), &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/pilotlight.yaml:\n  cannot be read: "),
        "{error}"
    );
}
