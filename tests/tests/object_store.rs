//! Segments on a real S3 server, through the real binary: what is acknowledged is on the store, and a
//! machine that knows nothing but the bucket answers the same.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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

/// A profile of one stack, an hour ago at most.
fn profile(n: i64) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 1);
    out.time(
        now.unwrap().as_nanos() as i64 - 60_000_000_000 * n,
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
    let tree = http::json(port, "/api/v1/tree.json?type=cpu&from=now-2h&until=now")?;
    assert_eq!(tree["meta"]["partial"], false);
    tree["meta"]["total"]
        .as_i64()
        .ok_or_else(|| tree.to_string())
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
