//! Loops over real listeners: what a target does must stay with that target.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

mod common;
#[path = "scraping/secure.rs"]
mod secure;

use common::{Act, Peer, ok, options, profile, run, until};
use pilotlight_scraper::{Cause, Config, Handle, ScrapeConfig, Scraper, Status};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A job that asks for a present state several times a second; no capture, so nothing waits for seconds.
fn fast_job(name: &str, targets: &[&str]) -> ScrapeConfig {
    let text = format!(
        "scrape_configs: [{{job_name: {name}, scrape_interval: 200ms, \
         static_configs: [{{targets: {targets:?}}}], \
         profiling_config: {{pprof_config: {{process_cpu: {{enabled: false}}, goroutine: {{}}}}}}}}]"
    );
    Config::parse(&text, Path::new("x.yaml"), &[])
        .unwrap()
        .scrape_configs
        .remove(0)
}

/// A job of one CPU capture of one second.
fn cpu_job(name: &str, target: &str) -> ScrapeConfig {
    ScrapeConfig::new(name, &[target]).every(Duration::from_secs(2))
}

fn status(handle: &Handle, address: &str) -> Status {
    let targets = handle.targets();
    let state = targets
        .iter()
        .find(|state| state.target.url.address() == address);
    state.map(|state| state.status()).unwrap_or_default()
}

async fn failure(handle: &Handle, address: &str) -> (Cause, String) {
    let failure = until("failed scrape", || match status(handle, address).last {
        Some(Err(failure)) => Some(failure),
        _ => None,
    })
    .await;
    (failure.cause, failure.text)
}

async fn sink() -> Peer {
    Peer::start(|_, _| ok(b"{}".to_vec())).await
}

fn gzip_bomb() -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..256 {
        out.write_all(&zeros).unwrap();
    }
    out.finish().unwrap()
}

#[test]
fn a_dead_slow_or_garbage_target_does_not_delay_the_others() {
    run(async {
        let server = sink().await;
        let good = Peer::start(|_, _| ok(profile(3, 1))).await;
        let hole = Peer::start(|_, _| Act::Silence).await;
        let page = Peer::start(|_, _| ok(b"<!DOCTYPE html><html><body>hello".to_vec())).await;
        let bomb = gzip_bomb();
        let bomb = Peer::start(move |_, _| ok(bomb.clone())).await;
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        let targets: Vec<&str> = [
            &hole.address,
            &page.address,
            &bomb.address,
            &closed,
            &good.address,
        ]
        .map(String::as_str)
        .to_vec();
        let handle = Scraper::start(vec![fast_job("mixed", &targets)], options(server.url()));

        let pushed = server.until(10).await;
        for request in &pushed {
            assert_eq!(
                request.body,
                profile(3, 1),
                "the original bytes, and only the good target's"
            );
        }
        let (cause, text) = failure(&handle, &page.address).await;
        assert_eq!(cause, Cause::NotAProfile);
        assert!(
            text.contains(&format!("http://{}/debug/pprof/goroutine", page.address)),
            "{text}"
        );
        assert!(
            text.contains("HTML") && text.contains("\"<!DOCTYPE html>"),
            "{text}"
        );
        let (cause, text) = failure(&handle, &hole.address).await;
        assert_eq!(cause, Cause::Wire);
        assert!(text.contains("no answer within 200ms"), "{text}");
        let (cause, text) = failure(&handle, &bomb.address).await;
        assert_eq!(cause, Cause::NotAProfile);
        assert!(text.contains(&bomb.address), "{text}");
        assert_eq!(failure(&handle, &closed).await.0, Cause::Wire);
        let good_status = status(&handle, &good.address);
        assert_eq!((good_status.failed.len(), good_status.samples), (0, 3));
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn labels_name_and_id_reach_the_server_and_times_only_where_the_payload_has_none() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, n| {
            ok(profile(
                1,
                if n == 0 { 0 } else { 1_700_000_000_000_000_000 },
            ))
        })
        .await;
        let handle = Scraper::start(
            vec![fast_job("shop", &[&target.address])],
            options(server.url()),
        );
        let seen = server.until(2).await;
        handle.stop(Duration::from_secs(1)).await;
        let instance = target.address.replace(':', "%3A");
        let series = format!(
            "/api/v1/push?series=%7Binstance%3D%22{instance}%22%2Cjob%3D%22shop%22%2C\
             service_name%3D%22shop%22%7D&name=goroutine"
        );
        let (timeless, timed): (Vec<_>, Vec<_>) =
            seen.iter().partition(|r| r.target.contains("&from="));
        assert_eq!(timeless.len(), 1);
        assert!(
            timeless[0].target.starts_with(&format!("{series}&from=")),
            "{}",
            timeless[0].target
        );
        assert_eq!(timed[0].target, series, "payload times are trusted");
        let ids: Vec<_> = seen
            .iter()
            .map(|r| r.header("x-pilotlight-request-id").unwrap())
            .collect();
        assert_ne!(ids[0], ids[1]);
    });
}

#[test]
fn a_cpu_capture_asks_for_seconds_and_names_its_timeout() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| ok(profile(1, 1))).await;
        let handle = Scraper::start(
            vec![cpu_job("shop", &target.address)],
            options(server.url()),
        );
        let seen = target.until(1).await;
        assert_eq!(seen[0].target, "/debug/pprof/profile?seconds=1");
        assert_eq!(
            seen[0]
                .header("x-prometheus-scrape-timeout-seconds")
                .as_deref(),
            Some("3"),
            "one second of profile and two of slack"
        );
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn first_captures_fill_the_time_before_the_first_tick() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| Act::Late(Duration::from_secs(1), profile(1, 1))).await;
        let mut job = ScrapeConfig::new("self", &[&target.address]).every(Duration::from_secs(8));
        job.first_captures = Some(Duration::from_secs(1));
        let handle = Scraper::start(vec![job], options(server.url()));
        // the phase of this port may leave no room before the first tick
        let seen = target.until(1).await;
        let regular = "/debug/pprof/profile?seconds=7";
        let seen = if seen[0].target == regular {
            seen
        } else {
            until_regular(&target, regular).await
        };
        let (last, first) = seen.split_last().unwrap();
        assert_eq!(last.target, regular);
        assert!(
            first
                .iter()
                .all(|request| request.target == "/debug/pprof/profile?seconds=1")
        );
        assert!(
            first.len() < 8,
            "they fit into one interval: {}",
            first.len()
        );
        handle.stop(Duration::from_secs(1)).await;
    });
}

async fn until_regular(target: &Peer, regular: &str) -> Vec<common::Request> {
    until("regular capture", || {
        let seen = target.seen();
        seen.last()
            .is_some_and(|request| request.target == regular)
            .then_some(seen)
    })
    .await
}

#[test]
fn the_timeout_is_slack_beyond_the_seconds() {
    run(async {
        let server = sink().await;
        // longer than scrape_timeout alone, shorter than seconds + scrape_timeout
        let target =
            Peer::start(|_, _| Act::Late(Duration::from_millis(1500), profile(1, 1))).await;
        let mut job = cpu_job("shop", &target.address);
        job.scrape_timeout = Duration::from_secs(1);
        let handle = Scraper::start(vec![job], options(server.url()));
        server.until(1).await;
        assert_eq!(status(&handle, &target.address).failed.len(), 0);
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn one_process_is_never_captured_twice_at_a_time() {
    run(async {
        let server = sink().await;
        let now = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
        let target = Peer::start(move |_, _| {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let running = Arc::clone(&running);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(900)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            });
            Act::Late(Duration::from_millis(950), profile(1, 1))
        })
        .await;
        let alias = target.address.replace("127.0.0.1", "localhost");
        let jobs = ["a", "b", "c"].map(|name| {
            let mut job =
                ScrapeConfig::new(name, &[if name == "b" { &alias } else { &target.address }]);
            job = job.every(Duration::from_secs(1));
            job
        });
        let handle = Scraper::start(jobs.to_vec(), options(server.url()));
        let failure = until("overlap", || {
            handle
                .targets()
                .iter()
                .find_map(|state| match state.status().last {
                    Some(Err(failure)) => Some(failure),
                    _ => None,
                })
        })
        .await;
        assert_eq!(failure.cause, Cause::Overlap);
        assert!(
            failure
                .text
                .contains(&format!("capturing the CPU of {}", target.address)),
            "{}",
            failure.text
        );
        server.until(3).await;
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!(handle.metrics_text().contains("cause=\"overlap\""));
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn ticks_that_pass_during_a_slow_scrape_are_skipped_and_counted() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| Act::Late(Duration::from_millis(350), profile(1, 1))).await;
        let mut job = fast_job("slow", &[&target.address]);
        job.scrape_interval = Duration::from_millis(200);
        job.scrape_timeout = Duration::from_millis(200);
        job.profiles[0].seconds = Some(1); // the deadline is 1.2 s: the answers pass
        let handle = Scraper::start(vec![job], options(server.url()));
        let status = until("three scrapes", || {
            let status = status(&handle, &target.address);
            (status.good >= 3).then_some(status)
        })
        .await;
        assert!(status.missed >= status.good - 1, "{status:?}");
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn limits_on_body_samples_and_labels_fail_only_the_scrape() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| ok(profile(20, 1))).await;
        let size = profile(20, 1).len() as u64;
        type Set = fn(&mut ScrapeConfig, u64);
        let cases: [(&str, Set, &str); 4] = [
            (
                "body",
                |job, size| job.body_size_limit = size - 1,
                "body_size_limit",
            ),
            (
                "inflated",
                |job, size| job.body_size_limit = size + 1,
                "limit",
            ),
            (
                "samples",
                |job, _| job.sample_limit = 19,
                "20 samples, sample_limit is 19",
            ),
            (
                "labels",
                |job, _| job.label_limit = 1,
                "label_limit exceeded: 3 labels, limit 1",
            ),
        ];
        for (name, set, text) in cases {
            let mut job = fast_job(name, &[&target.address]);
            set(&mut job, size);
            let handle = Scraper::start(vec![job], options(server.url()));
            let (_, message) = failure(&handle, &target.address).await;
            assert!(message.contains(text), "{name}: {message}");
            handle.stop(Duration::from_secs(1)).await;
        }
        assert_eq!(server.seen().len(), 0);
        let mut job = fast_job("within", &[&target.address]);
        job.sample_limit = 20;
        job.label_limit = 3;
        job.body_size_limit = 1 << 20;
        let handle = Scraper::start(vec![job], options(server.url()));
        server.until(1).await;
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_profiler_that_is_busy_is_quoted() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| {
            Act::Answer(
                500,
                "X-Go-Pprof: 1\r\nContent-Type: text/plain; charset=utf-8\r\n",
                b"Could not enable CPU profiling: cpu profiling already in use\n".to_vec(),
            )
        })
        .await;
        let handle = Scraper::start(
            vec![fast_job("busy", &[&target.address])],
            options(server.url()),
        );
        let (cause, text) = failure(&handle, &target.address).await;
        assert_eq!(cause, Cause::Wire);
        assert!(text.ends_with("500 Internal Server Error: Could not enable CPU profiling: cpu profiling already in use"), "{text}");
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn targets_and_metrics_have_prometheus_shape() {
    run(async {
        let server = sink().await;
        let target = Peer::start(|_, _| ok(profile(2, 1))).await;
        let job = fast_job("shop", &[&target.address, "http://bad/"]);
        let handle = Scraper::start(vec![job], options(server.url()));
        until("good scrape", || {
            (status(&handle, &target.address).good > 0).then_some(())
        })
        .await;
        let json = handle.targets_json();
        assert_eq!(json["status"], "success");
        let active = &json["data"]["activeTargets"][0];
        let keys: Vec<&str> = active
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "discoveredLabels",
            "globalUrl",
            "health",
            "labels",
            "lastError",
            "lastScrape",
            "lastScrapeDuration",
            "scrapeInterval",
            "scrapePool",
            "scrapeTimeout",
            "scrapeUrl",
        ];
        assert_eq!(keys, expected);
        assert_eq!(
            (&active["health"], &active["lastError"]),
            (&"up".into(), &"".into())
        );
        assert_eq!(
            (&active["scrapePool"], &active["scrapeInterval"]),
            (&"shop".into(), &"200ms".into())
        );
        assert_eq!(active["labels"]["instance"], target.address);
        assert_eq!(
            active["globalUrl"].as_str().unwrap(),
            active["scrapeUrl"]
                .as_str()
                .unwrap()
                .replace("127.0.0.1", "test-host")
        );
        assert!(
            active["lastScrape"].as_str().unwrap().starts_with("20"),
            "{active}"
        );
        assert!(active["lastScrapeDuration"].as_f64().unwrap() > 0.0);
        let dropped = &json["data"]["droppedTargets"][0];
        assert_eq!(dropped["discoveredLabels"]["__address__"], "http://bad/");
        assert_eq!(json["data"]["droppedTargetCounts"]["shop"], 1);
        let metrics = handle.metrics_text();
        let labels = format!(
            "{{profile=\"goroutine\",instance=\"{}\",job=\"shop\",service_name=\"shop\"}}",
            target.address
        );
        assert!(metrics.contains(&format!("\nup{labels} 1\n")), "{metrics}");
        assert!(
            metrics.contains(&format!("\nscrape_samples_scraped{labels} 2\n")),
            "{metrics}"
        );
        assert!(
            metrics.contains(&format!(
                "scrape_body_size_bytes{labels} {}\n",
                profile(2, 1).len()
            )),
            "{metrics}"
        );
        for family in [
            "scrape_duration_seconds",
            "pilotlight_push_failures_total",
            "pilotlight_scrape_missed_total",
        ] {
            assert!(metrics.contains(&format!("# TYPE {family} ")), "{family}");
        }
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn followed_files_start_and_end_loops_and_leave_others_running() {
    run(async {
        let scratch = pilotlight_tests::process::Scratch::new("followed");
        let file = scratch.path().join("t.yml");
        let server = sink().await;
        let (a, b) = (
            Peer::start(|_, _| ok(profile(1, 1))).await,
            Peer::start(|_, _| ok(profile(1, 1))).await,
        );
        std::fs::write(&file, format!("- targets: ['{}']\n", a.address)).unwrap();
        let mut job = fast_job("files", &[]);
        job.file_sd_configs
            .push(pilotlight_scraper::config::FileSd {
                files: vec![file.clone()],
                refresh_interval: Duration::from_secs(300),
            });
        let handle = Scraper::start(vec![job], options(server.url()));
        a.until(1).await;
        std::fs::write(
            &file,
            format!("- targets: ['{}', '{}']\n", a.address, b.address),
        )
        .unwrap();
        b.until(1).await;
        let scrapes = status(&handle, &a.address).good;
        assert!(
            scrapes > 0,
            "the loop of the first target went on, with its counts"
        );
        std::fs::write(&file, format!("- targets: ['{}']\n", b.address)).unwrap();
        until("one target", || (handle.targets().len() == 1).then_some(())).await;
        let after = a.seen().len();
        b.until(b.seen().len() + 3).await;
        assert!(
            a.seen().len() <= after + 1,
            "the removed target is left alone"
        );
        handle.stop(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_service_s_own_version_is_a_label_unless_the_target_has_one() {
    run(async {
        let server = sink().await;
        let versioned =
            |head: &'static str| Peer::start(move |_, _| Act::Answer(200, head, profile(1, 1)));
        let told = versioned("Pilotlight-Version: 1.4.2\r\n").await;
        let wrong = versioned("Pilotlight-Version: \r\n").await;
        let mut canary = fast_job("canary", &[&told.address]);
        canary.static_configs[0].labels.set("version", "canary");
        let jobs = vec![
            fast_job("told", &[&told.address]),
            fast_job("wrong", &[&wrong.address]),
            canary,
        ];
        let handle = Scraper::start(jobs, options(server.url()));
        let series = |job: &str, peer: &Peer, version: &str| {
            let address = &peer.address;
            format!(r#"{{instance="{address}",job="{job}",service_name="{job}"{version}}}"#)
        };
        for expected in [
            series("told", &told, r#",version="1.4.2""#),
            series("wrong", &wrong, ""),
            series("canary", &told, r#",version="canary""#),
        ] {
            until(&expected, || {
                server
                    .seen()
                    .iter()
                    .find(|request| decoded(&request.target).contains(&expected))
                    .map(|_| ())
            })
            .await;
        }
        drop(handle);
    });
}

/// Percent-encoding taken back.
fn decoded(target: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = target.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| (byte.unwrap() as char).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' {
            digit(rest.next()) << 4 | digit(rest.next())
        } else {
            byte
        });
    }
    String::from_utf8(bytes).unwrap()
}
