//! `server`, `push`, `query`: a file goes in, text comes out.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

mod common;
#[path = "verbs/hostile.rs"]
mod hostile;
#[path = "verbs/secure.rs"]
mod secure;

use common::{PATIENCE, Running, run, text};
use pilotlight_profile::{LabelSetId, ProfileBuilder};
use pilotlight_tests::process::Scratch;
use pilotlight_tests::{free_port, http, wait_for};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `main` 1 s itself, `hot` below it 3 s.
fn profile() -> Vec<u8> {
    profile_of(1, 3)
}

/// Seconds in `main` itself and in `hot` below it.
fn profile_of(main_s: i64, hot_s: i64) -> Vec<u8> {
    let mut builder = ProfileBuilder::new();
    builder.sample_type("cpu", "nanoseconds");
    builder.period("cpu", "nanoseconds", 10_000_000);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as i64;
    builder.time(now - 5_000_000_000, 4_000_000_000);
    let [main, hot] = ["main", "hot"].map(|name| {
        let name = builder.string(name.as_bytes());
        let function = builder.function(name, name, name, 1);
        builder.location(None, 0, &[(function, 1)])
    });
    for (frames, value) in [
        (&[main][..], main_s * 1_000_000_000),
        (&[hot, main][..], hot_s * 1_000_000_000),
    ] {
        let stack = builder.stack(frames);
        builder.sample(stack, LabelSetId::default(), &[value]);
    }
    builder.finish().to_pprof_gz()
}

#[test]
fn a_pushed_file_is_queried_as_top_tree_and_json() {
    let scratch = Scratch::new("verbs");
    let port = free_port();
    let (listen, server) = (
        format!("127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}"),
    );
    std::fs::write(scratch.path().join("cpu.pb.gz"), profile()).unwrap();
    let running = Running::start(
        scratch.path(),
        &["server", "--listen", &listen, "--data", "d"],
    );
    wait_for("ready", PATIENCE, || {
        http::get_within(port, "/ready", Duration::from_secs(2)).map(drop)
    });

    let ask = |arguments: &[&str]| {
        let output = run(
            scratch.path(),
            &[arguments, &["--server", &server]].concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let pushed = ask(&["push", "cpu.pb.gz", "--service", "filed"]);
    assert!(pushed.contains("\"accepted_samples\":2"), "{pushed}");
    let top = ask(&["query", "top", "--q", "{service_name=\"filed\"}"]);
    assert_eq!(
        top,
        "total 4.00 s\n   self    total        self  function\n \
         75.0 %   75.0 %      3.00 s  hot\n 25.0 %  100.0 %      1.00 s  main\n"
    );
    let tree = ask(&["query", "tree", "--min-percent", "0"]);
    assert!(
        tree.contains("100.0 %    main\n 75.0 %      hot\n"),
        "{tree}"
    );
    assert!(ask(&["query", "top", "--json"]).contains("\"total\":4000000000"));

    std::fs::write(scratch.path().join("later.pb.gz"), profile_of(3, 1)).unwrap();
    ask(&["push", "later.pb.gz", "--service", "later"]);
    let (q, base) = ("{service_name=\"later\"}", "{service_name=\"filed\"}");
    let diff = ask(&["query", "diff", "--q", q, "--base-q", base]);
    assert_eq!(
        diff,
        "base 4.00 s (2 events)  now 4.00 s (2 events)\n   base      now    change     function\n \
         75.0 %   25.0 %    -50.0%     hot\n100.0 %  100.0 %     +0.0%     main\n\
         * more than chance (p < 0.001)\n",
        "two samples on each side prove nothing"
    );

    let output = run(
        scratch.path(),
        &["query", "top", "--type", "nope", "--server", &server],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("\nnext:  "),
        "{}",
        text(&output.stderr)
    );
    let (output, _) = running.stop("-TERM");
    assert!(output.status.success());
    a_flipped_bit_is_found(scratch.path());
}

fn a_flipped_bit_is_found(folder: &Path) {
    let verify = || run(folder, &["verify", "--data", "d"]);
    let sound = verify();
    let said = text(&sound.stdout);
    assert!(sound.status.success(), "{said}");
    assert!(said.contains("2 profiles, 4 samples"), "{said}");
    let segment = std::fs::read_dir(folder.join("d/segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let broken = verify();
    let said = text(&broken.stdout);
    assert_eq!(broken.status.code(), Some(1), "{said}");
    let name = segment.file_name().unwrap().to_string_lossy().into_owned();
    assert!(said.contains(&format!("damaged     {name}: ")), "{said}");
    assert!(said.contains("1 profiles, 2 samples"), "{said}");
}

#[test]
fn a_server_that_is_not_there_and_https_say_what_to_run_next() {
    let scratch = Scratch::new("verbs-nobody");
    let server = format!("http://127.0.0.1:{}", free_port());
    let output = run(scratch.path(), &["query", "top", "--server", &server]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("refused") && err.contains("next:  pilotlight up"),
        "{err}"
    );
    let output = run(
        scratch.path(),
        &["query", "top", "--server", "https://127.0.0.1:1"],
    );
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("https://127.0.0.1:1"), "{err}");
}

#[test]
fn debug_information_is_sent_once_and_listed() {
    let scratch = Scratch::new("debuginfo");
    let port = free_port();
    let (listen, server) = (
        format!("127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}"),
    );
    let folder = scratch.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("app.c"), "int main(void) { return 0; }\n").unwrap();
    let built = std::process::Command::new("cc")
        .args(["-g", "-Wl,--build-id=sha1", "-o", "app", "app.c"])
        .current_dir(&folder)
        .status();
    assert!(built.unwrap().success());
    let running = Running::start(
        scratch.path(),
        &["server", "--listen", &listen, "--data", "d"],
    );
    wait_for("ready", PATIENCE, || {
        http::get_within(port, "/ready", Duration::from_secs(2)).map(drop)
    });
    let ask = |arguments: &[&str]| {
        let all = [arguments, &["--server", &server]].concat();
        let output = run(scratch.path(), &all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = ask(&["debuginfo", "upload", "bin"]);
    assert!(first.starts_with("stored      dwarf           "), "{first}");
    assert!(first.ends_with("  bin/app\n"), "{first}");
    let again = ask(&["debuginfo", "upload", "bin/app"]);
    assert_eq!(again, first.replace("stored    ", "not needed"));
    let list = ask(&["debuginfo", "list"]);
    assert!(list.starts_with("no address of this selection lacks a name\n"));
    assert!(list.contains(" app ("), "{list}");
    let text_file = ["debuginfo", "upload", "bin/app.c", "--server", &server];
    let refused = run(scratch.path(), &text_file);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("bin/app.c: not an ELF file\nnext:  file "));
    let (output, _) = running.stop("-TERM");
    assert!(output.status.success());
}
