//! Blocks in a server: answers do not change when segments become blocks and blocks larger ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Local, SECOND, T0, WINDOW, busy_maintenance, config, escape, get, push};
use pilotlight_profile::{Label, LabelSetId, LabelValue, Limits, Mode, ProfileBuilder, decode};
use pilotlight_server::Maintenance;
use serde_json::{Value, json};

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn random_profile(rng: &mut Rng, time_ns: i64) -> Vec<u8> {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(time_ns, 10 * SECOND);
    let key = out.string(b"thread");
    for _ in 0..1 + rng.below(20) {
        let mut path = Vec::new();
        for _ in 0..rng.below(5) {
            let name = out.string(format!("f{}", rng.below(10)).as_bytes());
            let function = out.function(name, name, name, 1);
            path.push(out.location(None, 0, &[(function, 7)]));
        }
        let stack = out.stack(&path);
        let set = match rng.below(3) {
            0 => {
                let value = LabelValue::Str(out.string(format!("t{}", rng.below(2)).as_bytes()));
                out.label_set(&[Label { key, value }])
            }
            _ => LabelSetId(0),
        };
        let count = rng.below(9) as i64;
        out.sample(stack, set, &[count, count * 10_000_000]);
    }
    out.finish().to_pprof_gz()
}

fn push_some(address: SocketAddr, rng: &mut Rng, from: i64, count: i64) {
    for n in from..from + count {
        let body = random_profile(rng, T0 + n * 10 * SECOND);
        let (service, pod) = (rng.below(2), rng.below(3));
        let series = format!("{{service_name=\"s{service}\",pod=\"p{pod}\"}}");
        assert_eq!(push(address, &series, &body).status, 200);
    }
}

/// Everything a client may ask, in a form that does not depend on how it is stored.
fn answers(address: SocketAddr) -> Vec<Value> {
    let seconds = |n: i64| T0 / SECOND + n;
    let windows = [
        WINDOW.to_owned(),
        format!("from={}&until={}", seconds(55), seconds(255)),
        format!("from={}&until={}", seconds(100), seconds(101)),
    ];
    let mut all = Vec::new();
    for window in windows {
        for q in ["{}", "{service_name=\"s1\"}", "{pod=~\"p[12]\"}"] {
            let ask = |route: &str| {
                let path = format!("/api/v1/{route}type={CPU}&{window}&q={}", escape(q));
                get(address, &path)
            };
            for route in ["tree.json?", "top?", "series?step=30s&"] {
                all.push(ask(route).json());
            }
            all.push(ask("series?step=60s&by=pod&").json());
            all.push(pprof(&ask("pprof?").body));
        }
    }
    // Labels are answered from headers, which know of a series only its first and last time.
    for route in [
        "types?",
        "labels?",
        "labels/pod/values?q=%7Bservice_name=%22s1%22%7D&",
    ] {
        all.push(get(address, &format!("/api/v1/{}{WINDOW}", route)).json());
    }
    all
}

/// A profile as sorted (stack, labels, value).
fn pprof(bytes: &[u8]) -> Value {
    let profile = decode(bytes, Mode::Strict, &Limits::default())
        .unwrap()
        .profile;
    let text = |id| profile.strings.text(id).into_owned();
    let mut samples = Vec::new();
    for index in 0..profile.samples.len() {
        let stack = profile.stacks.get(profile.samples.stack[index] as usize);
        let names = stack.iter().flat_map(|&at| {
            let lines = profile.location(at as usize).lines.iter();
            let names = lines.map(|line| text(profile.functions[line.function.index()].name));
            names.collect::<Vec<_>>()
        });
        let labels = profile
            .label_sets
            .get(profile.samples.labels[index] as usize)
            .iter();
        let labels = labels.map(|label| match label.value {
            LabelValue::Str(value) => text(value),
            LabelValue::Num { value, .. } => value.to_string(),
        });
        samples.push(json!([
            names.collect::<Vec<_>>(),
            labels.collect::<Vec<_>>(),
            profile.samples.values[index]
        ]));
    }
    samples.sort_by_key(Value::to_string);
    json!([
        samples,
        profile.time_ns,
        profile.duration_ns,
        profile.period
    ])
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.join("blocks")).unwrap();
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(end));
    files.sort();
    files
}

fn status(address: SocketAddr) -> Value {
    get(address, "/api/v1/status").json()
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn answers_stay_equal_while_segments_become_blocks_and_blocks_larger_ones() {
    let mut rng = Rng(1);
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    push_some(server.address, &mut rng, 0, 20);
    let mut expected = answers(server.address);
    server.stop();
    // Level 1 from segments, then level 2 from two blocks.
    for round in 0..2 {
        let mut merging = config(folder.path());
        merging.maintenance = Some(Maintenance {
            fan_in: 2,
            ..busy_maintenance()
        });
        let server = Local::start(merging);
        wait("merged", || {
            for (answer, expected) in answers(server.address).iter().zip(&expected) {
                assert_eq!(answer, expected, "round {round}");
            }
            status(server.address)["segments"] == 1
        });
        assert_eq!(status(server.address)["blocks"], 1);
        server.stop();
        let server = Local::start(config(folder.path()));
        assert_eq!(answers(server.address), expected, "after a restart");
        push_some(server.address, &mut rng, 20 + round * 10, 10);
        expected = answers(server.address);
        server.stop();
    }
    // Two blocks' worth of data: one block, and segments beside it.
    let server = Local::start(config(folder.path()));
    assert_eq!(status(server.address)["segments"], 11);
    assert_eq!(answers(server.address), expected);
    server.stop();
}

#[test]
fn a_block_made_from_memory_answers_as_its_segments_do() {
    let (plain, merging) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Local::start(config(plain.path()));
    push_some(server.address, &mut Rng(5), 0, 40);
    let expected = answers(server.address);
    server.stop();
    let mut rules = config(merging.path());
    rules.maintenance = Some(busy_maintenance());
    let server = Local::start(rules);
    push_some(server.address, &mut Rng(5), 0, 40);
    wait("all in blocks", || {
        let status = status(server.address);
        assert_eq!(answers(server.address), expected);
        status["segments"] == status["blocks"]
    });
    let metrics = get(server.address, "/metrics").text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pilotlight_merges_from_memory_total "));
    assert!(line.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    assert_eq!(answers(server.address), expected);
    server.stop();
}

#[test]
fn answers_stay_equal_with_roll_ups_and_go_on_from_them_when_the_samples_are_gone() {
    let mut rng = Rng(3);
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    push_some(server.address, &mut rng, 0, 80);
    let expected = answers(server.address);
    server.stop();
    let rules = Maintenance {
        roll_ups: vec![(1, Duration::from_secs(20)), (1, Duration::from_secs(40))],
        // Of one span, also when five minutes end during the test.
        spans: [Duration::from_secs(86_400); 3],
        ..busy_maintenance()
    };
    let mut rolling = config(folder.path());
    rolling.maintenance = Some(rules.clone());
    let server = Local::start(rolling);
    wait("rolled up", || status(server.address)["roll_ups"] == 2);
    assert_eq!(answers(server.address), expected);
    assert_eq!(status(server.address)["blocks"], 1);
    server.stop();
    let server = Local::start(config(folder.path()));
    assert_eq!(answers(server.address), expected, "after a restart");
    // More data, merged with what was rolled up: the old roll-ups go.
    push_some(server.address, &mut rng, 80, 10);
    let expected = answers(server.address);
    server.stop();
    let mut rolling = config(folder.path());
    rolling.maintenance = Some(Maintenance {
        fan_in: 2,
        ..rules.clone()
    });
    let server = Local::start(rolling);
    wait("merged and rolled up again", || {
        assert_eq!(answers(server.address), expected);
        let status = status(server.address);
        status["blocks"] == 1 && status["roll_ups"] == 2 && status["segments"] == 3
    });
    server.stop();
    // Samples are kept for a moment only, roll-ups for ever.
    let mut forgetting = config(folder.path());
    forgetting.maintenance = Some(Maintenance {
        patience: Duration::from_secs(3600),
        max_age: Some(Duration::from_secs(2)),
        roll_up_max_age: None,
        ..rules
    });
    let server = Local::start(forgetting);
    let now = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
    };
    wait("forgotten", || {
        // Something is always fresh: a server that finds all too old right after its start doubts
        // its clock.
        let body = random_profile(&mut rng, now().as_nanos() as i64);
        let answer = push(server.address, "{service_name=\"fresh\"}", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        std::thread::sleep(Duration::from_millis(200));
        files(folder.path(), ".plblk").len() == 2
    });
    let after = tree(server.address);
    assert_eq!(after["total"], expected[0]["meta"]["total"]);
    assert_eq!(after["profiles"], 90);
    server.stop();
}

/// A folder with a block of 6 profiles of one service and another of 3.
fn two_blocks(folder: &Path) {
    let mut rng = Rng(5);
    for (count, blocks) in [(6, 1), (3, 2)] {
        let server = Local::start(config(folder));
        push_some(server.address, &mut rng, 0, count);
        server.stop();
        let mut merging = config(folder);
        merging.maintenance = Some(Maintenance {
            spans: [Duration::from_secs(86_400); 3],
            ..busy_maintenance()
        });
        let server = Local::start(merging);
        wait("merged", || {
            let status = status(server.address);
            status["segments"] == status["blocks"] && status["blocks"] == blocks
        });
        // Sources that are still there would count again without their block.
        wait("sources are gone", || {
            fs::read_dir(folder.join("segments")).unwrap().count() == 0
        });
        server.stop();
    }
    assert_eq!(files(folder, ".plblk").len(), 2);
}

fn tree(address: SocketAddr) -> Value {
    get(address, &format!("/api/v1/tree.json?type={CPU}&{WINDOW}")).json()["meta"].clone()
}

#[test]
fn a_damaged_block_is_named_and_the_rest_is_answered() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 5] = [
        (".samples.parquet", |path| {
            let mut bytes = fs::read(path).unwrap();
            // In every column of the first row group.
            let half = bytes.len() / 2;
            bytes[4..half].iter_mut().for_each(|byte| *byte ^= 1);
            fs::write(path, bytes).unwrap();
        }),
        (".symbols.parquet", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[40] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        (".samples.parquet", |path| fs::remove_file(path).unwrap()),
        (".symbols.parquet", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        }),
        (".plblk", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[50] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
    ];
    let good = tempfile::tempdir().unwrap();
    two_blocks(good.path());
    for (end, harm) in harms {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("blocks")).unwrap();
        for path in files(good.path(), "") {
            let name = path.file_name().unwrap();
            fs::copy(&path, folder.path().join("blocks").join(name)).unwrap();
        }
        harm(&files(folder.path(), end)[0]);
        let name = files(folder.path(), ".plblk")[0].clone();
        let server = Local::start(config(folder.path()));
        let mut before = 0;
        for again in [false, true] {
            let meta = tree(server.address);
            assert_eq!(meta["partial"], true, "{end}: {meta}");
            // All of the other block, and of this one the services that are whole.
            let profiles = meta["profiles"].as_u64().unwrap();
            assert!((3..9).contains(&profiles), "{end}: {meta}");
            assert!(!again || profiles == before, "{end}: {meta}");
            before = profiles;
            let named = meta["problems"][0]["segment"].as_str().unwrap();
            assert_eq!(named, name.file_name().unwrap().to_str().unwrap(), "{end}");
        }
        server.stop();
    }
}

#[test]
fn columns_without_a_manifest_do_not_count_and_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    two_blocks(folder.path());
    // As after a crash right before the manifest was written, and in the middle of a deletion.
    fs::remove_file(&files(folder.path(), ".plblk")[0]).unwrap();
    let mut tidy = config(folder.path());
    tidy.maintenance = Some(busy_maintenance());
    let server = Local::start(tidy);
    assert_eq!(tree(server.address)["profiles"], 3);
    assert_eq!(tree(server.address)["partial"], false);
    wait("deleted", || files(folder.path(), ".parquet").len() == 2);
    server.stop();
}
