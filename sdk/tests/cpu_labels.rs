//! CPU samples say what their thread was doing.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{burn, profile_of, start_with};
use pilotlight::otel::{TraceContext, TraceExt};
use pilotlight::{Capture, Config, LabelExt, Profile, SpanExt, labels};
use pilotlight_profile::LabelValue;

/// Samples by the value of a label, `-` for those without.
fn by_label(profile: &Profile, key: &str) -> BTreeMap<String, i64> {
    sums_by_label(profile, key, 0)
}

/// A column by the value of a label.
fn sums_by_label(profile: &Profile, key: &str, column: usize) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for sample in profile.iter_samples() {
        let label = sample
            .labels
            .iter()
            .find(|l| profile.strings.get(l.key) == key.as_bytes());
        let value = match label.map(|label| label.value) {
            Some(LabelValue::Str(text)) => profile.strings.text(text).into_owned(),
            _ => "-".into(),
        };
        *sums.entry(value).or_insert(0) += sample.values[column];
    }
    sums
}

const MS: u64 = 1_000_000;

#[test]
fn threads_and_tasks_have_their_shares_by_label() {
    let _guard = start_with(Config::new("test").no_listener().frequency_hz(250));
    let profile = profile_of(|| {
        let thread = std::thread::spawn(|| {
            let _labels = labels! { "route" => "/thread", "zone" => "eu" }.enter();
            burn(400 * MS);
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let task = |route: &'static str, ms: u64| {
                let task = async move {
                    for _ in 0..10 {
                        burn(ms / 10 * MS);
                        tokio::task::yield_now().await;
                    }
                };
                let task = task.span("burn").span("handle");
                tokio::spawn(task.labelled(labels! { "route" => route }))
            };
            let tasks = [task("/a", 800), task("/b", 1600)];
            for task in tasks {
                task.await.unwrap();
            }
        });
        thread.join().unwrap();
    });
    let routes = by_label(&profile, "route");
    let sum: i64 = routes.values().sum();
    let known: i64 = ["/thread", "/a", "/b"]
        .iter()
        .map(|route| routes[*route])
        .sum();
    assert!(known as f64 > 0.95 * sum as f64, "{routes:?}");
    for (route, share) in [("/thread", 1.0 / 7.0), ("/a", 2.0 / 7.0), ("/b", 4.0 / 7.0)] {
        let sigma = (share * (1.0 - share) / known as f64).sqrt();
        let seen = routes[route] as f64 / known as f64;
        assert!(
            (seen - share).abs() < 3.0 * sigma,
            "{route}: {seen}, {routes:?}"
        );
    }
    assert_eq!(by_label(&profile, "zone").len(), 2);
    let spans = by_label(&profile, "span");
    assert_eq!(
        spans["handle > burn"],
        routes["/a"] + routes["/b"],
        "{spans:?}"
    );
    assert!(!by_label(&profile, "trace_id").keys().any(|id| id != "-"));
    assert_eq!(pilotlight::stats().labels_lost, 0);
}

#[test]
fn trace_ids_are_in_samples_when_asked_for() {
    let config = Config::new("test").no_listener().frequency_hz(250);
    let work = || {
        let context = TraceContext {
            trace_id: *b"0123456789abcdef",
            span_id: [0xab; 8],
            flags: 1,
        };
        let task = async { burn(200 * MS) }.traced(context);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(task);
    };
    let guard = start_with(config.clone());
    let without = by_label(&profile_of(work), "trace_id");
    assert_eq!(without.keys().collect::<Vec<_>>(), ["-"]);
    drop(guard);
    let _guard = start_with(config.trace_ids(true));
    let profile = profile_of(work);
    let traces = by_label(&profile, "trace_id");
    assert!(
        traces["30313233343536373839616263646566"] >= 40,
        "{traces:?}"
    );
    assert!(by_label(&profile, "span_id")["abababababababab"] >= 40);
}

#[test]
fn threads_that_wait_have_their_labels_in_wall_time() {
    let _guard = start_with(Config::new("test").no_listener());
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (waits, waiting) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _labels = labels! { "queue" => "mail" }.enter();
        let _span = pilotlight::spans::enter("next job");
        waits.send(()).unwrap();
        gone.recv().unwrap();
    });
    waiting.recv().unwrap();
    let began = Instant::now();
    let capture = Capture::begin_wall().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let profile = capture.finish();
    // The last look comes while the capture ends, which takes its time on a busy machine.
    let most = began.elapsed().as_nanos() as i64;
    go.send(()).unwrap();
    thread.join().unwrap();
    let queues = sums_by_label(&profile, "queue", 1);
    let least = profile.duration_ns * 9 / 10;
    let mail = queues["mail"];
    assert!(
        least <= mail && mail <= most,
        "{queues:?} in {least} to {most}"
    );
    assert_eq!(
        sums_by_label(&profile, "span", 1)["next job"],
        queues["mail"]
    );
}

#[test]
fn a_sample_between_two_instructions_never_mixes_two_contexts() {
    const NAMES: [&str; 8] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let _guard = start_with(Config::new("test").no_listener().frequency_hz(1000));
    let profile = profile_of(|| {
        let threads = [0, 4].map(|first| {
            std::thread::spawn(move || {
                let sets = NAMES.map(|name| labels! { "name" => name, "again" => name });
                let until = common::thread_cpu_ns() + 700 * MS;
                while common::thread_cpu_ns() < until {
                    for at in (first..first + 4).cycle().take(200) {
                        let _labels = sets[at].enter();
                        let _span = pilotlight::spans::enter(NAMES[at]);
                        (0..200).for_each(|n| {
                            std::hint::black_box(n);
                        });
                    }
                }
            })
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let text = |value: LabelValue| match value {
        LabelValue::Str(text) => profile.strings.text(text).into_owned(),
        LabelValue::Num { .. } => panic!("a number"),
    };
    let mut both = 0;
    for sample in profile.iter_samples() {
        let labels: BTreeMap<_, _> = sample
            .labels
            .iter()
            .map(|label| {
                (
                    profile.strings.text(label.key).into_owned(),
                    text(label.value),
                )
            })
            .collect();
        assert_eq!(labels.get("name"), labels.get("again"));
        if let Some(span) = labels.get("span") {
            assert_eq!(Some(span), labels.get("name"), "a span without its labels");
            both += sample.values[0];
        }
    }
    assert!(both > 50, "only {both} samples had a span");
}
