//! Segments on a real S3 server, through the real binary: what is acknowledged is on the store, and a
//! machine that knows nothing but the bucket answers the same.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pilotlight_profile::{LabelSetId, ProfileBuilder};
use pilotlight_tests::process::{Program, Scratch, built};
use pilotlight_tests::{free_port, http, server, wait_for};

const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "pilotlight-test"),
    ("AWS_SECRET_ACCESS_KEY", "pilotlight-test-secret"),
];

fn store_program() -> PathBuf {
    let program = built("pilotlight").with_file_name("../tools/versitygw");
    assert!(
        program.is_file(),
        "{} is missing: `cargo xtask test` builds it, or run GOBIN=$PWD/target/tools go install \
         github.com/versity/versitygw/cmd/versitygw@v1.8.0",
        program.display()
    );
    program
}

/// An S3 server over a folder; a folder in it is a bucket.
fn start_store(folder: &Path) -> (Program, u16) {
    let port = free_port();
    let root = folder.join("s3");
    std::fs::create_dir_all(root.join("profiles")).unwrap();
    let mut command = Command::new(store_program());
    let [(_, key), (_, secret)] = KEYS;
    command
        .args(["--port", &format!("127.0.0.1:{port}")])
        .args(["--access", key, "--secret", secret, "posix"])
        .arg(&root);
    let program = Program::start("versitygw", folder, &mut command);
    wait_for("the S3 server", Duration::from_secs(20), || {
        std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
    });
    (program, port)
}

fn write_config(folder: &Path, store: u16) -> PathBuf {
    let file = folder.join("pilotlight.yaml");
    let text = format!(
        "server:\n  storage: s3://profiles/team/a\n  s3: {{endpoint: 'http://127.0.0.1:{store}', region: us-east-1}}\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn with_store<'a>(config: &'a Path, secret: &'a str) -> impl FnOnce(&mut Command) + 'a {
    move |command| {
        command.arg("--config").arg(config).envs(KEYS);
        command.env("AWS_SECRET_ACCESS_KEY", secret);
    }
}

/// A profile of one stack, two hours ago at most; the same bytes for the same number.
fn profile(n: i64) -> Vec<u8> {
    static NOW: OnceLock<Duration> = OnceLock::new();
    let now = NOW.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 1);
    out.time(
        now.as_nanos() as i64 - 60_000_000_000 * (n % 100),
        1_000_000_000,
    );
    let name = out.string(b"main");
    let function = out.function(name, name, name, 1);
    let location = out.location(None, 0, &[(function, 1)]);
    let stack = out.stack(&[location]);
    out.sample(stack, LabelSetId(0), &[1000 + n]);
    out.finish().to_pprof_gz()
}

fn total(port: u16) -> Result<i64, String> {
    let tree = http::json(port, "/api/v1/tree.json?type=cpu&from=now-3h&until=now")?;
    let whole = tree["meta"]["partial"] == false;
    let total = tree["meta"]["total"].as_i64().filter(|_| whole);
    total.ok_or_else(|| tree["meta"].to_string())
}

#[test]
fn a_new_machine_with_the_same_bucket_answers_the_same() {
    let scratch = Scratch::new("object-store");
    let folder = scratch.path();
    let (_store, store_port) = start_store(folder);
    let config = write_config(folder, store_port);
    let [_, (_, secret)] = KEYS;
    let (first, port) = server::start(folder, "first", with_store(&config, secret));
    let mut expected = 0;
    for n in 0..10 {
        let file = folder.join("profile.pb.gz");
        std::fs::write(&file, profile(n)).unwrap();
        let pushed = Command::new(built("pilotlight"))
            .arg("push")
            .arg(&file)
            .args([
                "--service",
                "s",
                "--server",
                &format!("http://127.0.0.1:{port}"),
            ])
            .output()
            .unwrap();
        assert!(
            pushed.status.success(),
            "{}",
            String::from_utf8_lossy(&pushed.stderr)
        );
        expected += 1000 + n;
    }
    assert_eq!(total(port), Ok(expected));
    let is_lease = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".pllease");
    let objects = std::fs::read_dir(folder.join("s3/profiles/team/a"))
        .unwrap()
        .filter(|entry| !is_lease(entry.as_ref().unwrap().file_name()))
        .count();
    assert!(
        objects > 0,
        "acknowledged segments are objects under the prefix"
    );
    // Killed, not stopped: there is nothing left to write.
    drop(first);
    let (_second, port) = server::start(folder, "second", with_store(&config, secret));
    assert_eq!(total(port), Ok(expected));
}

/// Pushes one profile.
fn push(port: u16, n: i64) -> Result<(), String> {
    let path = "/api/v1/push?name=process_cpu&series=%7Bservice_name%3D%22s%22%7D";
    let answer = http::post_within(port, path, &profile(n), Duration::from_secs(60))?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!(
            "{status} {}",
            String::from_utf8_lossy(&answer.body)
        )),
    }
}

/// Pushes all at once: each waits for its segment.
fn push_all(port: u16, numbers: &[i64]) {
    std::thread::scope(|scope| {
        for &n in numbers {
            scope.spawn(move || push(port, n).unwrap());
        }
    });
}

/// Pushes from several connections until the server does not answer any more; which profiles were
/// acknowledged, and which of the last ones were not. Kills the server after the first few.
fn push_until_killed(server: Program, port: u16) -> (Vec<i64>, Vec<i64>) {
    let (acknowledged, open) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let (count, senders) = (AtomicUsize::new(0), 4);
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let (acknowledged, open, count) = (&acknowledged, &open, &count);
            scope.spawn(move || {
                let mut numbers = (100 + sender..).step_by(senders as usize);
                let refused = numbers.find(|&n| {
                    let refused = push(port, n).is_err();
                    if !refused {
                        acknowledged.lock().unwrap().push(n);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    refused
                });
                open.lock().unwrap().extend(refused);
            });
        }
        wait_for("some pushes", Duration::from_secs(60), || {
            let count = count.load(Ordering::Relaxed);
            (count >= 8).then_some(()).ok_or_else(|| count.to_string())
        });
        // SIGKILL, in the middle of a segment.
        drop(server);
    });
    (
        acknowledged.into_inner().unwrap(),
        open.into_inner().unwrap(),
    )
}

fn sum(numbers: &[i64]) -> i64 {
    numbers.iter().map(|n| 1000 + n).sum()
}

/// Waits until a server has heard of what the others wrote, and answers with exactly this.
fn answers(port: u16, expected: i64) {
    wait_for("the exact sum", Duration::from_secs(90), || {
        let known = total(port)?;
        (known == expected)
            .then_some(())
            .ok_or_else(|| format!("{known} instead of {expected}"))
    });
}

#[test]
fn two_servers_over_one_bucket_answer_for_each_other_and_one_goes_on_when_the_other_is_killed() {
    let scratch = Scratch::new("object-store-two");
    let folder = scratch.path();
    let (_store, store_port) = start_store(folder);
    let config = write_config(folder, store_port);
    let [_, (_, secret)] = KEYS;
    let (first, first_port) = server::start(folder, "first", with_store(&config, secret));
    let (_second, second_port) = server::start(folder, "second", with_store(&config, secret));
    // Both take pushes, and either answers with the sum of all.
    let (odd, even) = ([1, 3, 5, 7, 9, 11], [0, 2, 4, 6, 8, 10]);
    push_all(first_port, &odd);
    push_all(second_port, &even);
    let mut all = [odd, even].concat();
    for port in [first_port, second_port] {
        answers(port, sum(&all));
    }
    // A retry that comes to the other one counts once.
    push(second_port, odd[0]).unwrap();
    answers(second_port, sum(&all));
    // What the killed one acknowledged is there, and the other one goes on.
    let (acknowledged, open) = push_until_killed(first, first_port);
    all.extend(acknowledged);
    let more = [60, 61, 62];
    push_all(second_port, &more);
    all.extend(more);
    // A machine that knows nothing but the bucket. Of what the killed one did not acknowledge, each
    // profile may be there, and is there for all of them alike.
    let (_third, third_port) = server::start(folder, "third", with_store(&config, secret));
    let known = total(third_port).unwrap();
    let choices = 0..1_u32 << open.len();
    let some = |choice: u32| {
        let chosen = (0..open.len()).filter(|at| choice >> at & 1 == 1);
        chosen.map(|at| 1000 + open[at]).sum::<i64>()
    };
    let mut possible = choices.map(|choice| sum(&all) + some(choice));
    assert!(
        possible.any(|sum| sum == known),
        "{known}: {all:?}, perhaps {open:?}"
    );
    answers(second_port, known);
}

#[test]
fn a_store_that_does_not_answer_or_does_not_know_us_is_named() {
    let scratch = Scratch::new("object-store-refused");
    let folder = scratch.path();
    let (_store, store_port) = start_store(folder);
    let config = write_config(folder, store_port);
    let mut command = Command::new(built("pilotlight"));
    command.args(["server", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(folder.join("data"));
    with_store(&config, "wrong")(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("object store profiles/team/a"), "{text}");
    assert!(text.contains("AWS_"), "{text}");
}
