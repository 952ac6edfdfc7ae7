//! Profiles that go to a server by themselves.
#![cfg(feature = "push")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{burn, start_with};
use pilotlight::push::{Protocol, Push};
use pilotlight::{Config, stats};
use pilotlight_profile::{Limits, Mode, decode};

/// One request as it came.
struct Got {
    line: String,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|header| header.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A server that gives these answers, one a connection, and the last one for ever; an empty one
/// closes without a word.
fn server(answers: &'static [&'static str]) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for at in 0.. {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim_end().is_empty() {
                    break;
                }
                lines.push(line.trim_end().to_string());
            }
            let mut got = Got {
                line: lines.remove(0),
                headers: lines,
                body: Vec::new(),
            };
            let length = got.header("Content-Length").unwrap().parse().unwrap();
            got.body.resize(length, 0);
            reader.read_exact(&mut got.body).unwrap();
            let answer = answers[at.min(answers.len() - 1)];
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\nok");
            let is_silent = answer.contains("1.1 \r\n");
            if !is_silent {
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            // The receiver may have seen enough.
            let _ = send.send(got);
        }
    });
    (url, receive)
}

fn push(url: &str) -> Push {
    Push::new(url)
        .interval(Duration::from_secs(1))
        .types(&["profile"])
}

fn config(push: Push) -> Config {
    Config::new("push \"test\"")
        .no_listener()
        .frequency_hz(199)
        .push(push)
}

/// Burns until `until` holds, at most 20 s.
fn burn_until(until: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !until() {
        assert!(Instant::now() < deadline, "{:?}", stats());
        burn(20_000_000);
    }
}

#[test]
fn a_push_is_tried_again_with_one_id_until_it_is_taken() {
    let answers = &["503 Busy\r\nRetry-After: 1", "", "200 OK"];
    let (url, got) = server(answers);
    let before = stats();
    let label = push(&url)
        .label("env", "prod")
        .header("Authorization", "Bearer x");
    let started = start_with(config(label));
    burn_until(|| stats().pushed > before.pushed);
    drop(started);
    let tries: Vec<Got> = (0..3).map(|_| got.recv().unwrap()).collect();
    let series = "%7Bservice_name%3D%22push%20%5C%22test%5C%22%22%2Cenv%3D%22prod%22%7D";
    let line = format!("POST /api/v1/push?series={series}&name=process_cpu HTTP/1.1");
    for one in &tries {
        assert_eq!(one.line, line);
        assert_eq!(one.header("Authorization"), Some("Bearer x"));
        let id = "X-Pilotlight-Request-Id";
        assert_eq!(one.header(id), tries[0].header(id));
        assert_eq!(one.body, tries[0].body);
    }
    let profile = decode(&tries[2].body, Mode::Strict, &Limits::default())
        .unwrap()
        .profile;
    let cpu_ns = profile.total(1);
    // One thread burns for about a second.
    assert!(
        cpu_ns > 100_000_000,
        "{cpu_ns} ns in {} ns",
        profile.duration_ns
    );
    assert!((800_000_000..5_000_000_000).contains(&profile.duration_ns));
    let after = stats();
    assert_eq!(after.push_failed_tries - before.push_failed_tries, 2);
    assert_eq!(after.push_lost_refused, before.push_lost_refused);
}

#[test]
fn otlp_goes_gzipped_to_its_own_path() {
    let (url, got) = server(&["200 OK"]);
    let started = start_with(config(push(&url).protocol(Protocol::Otlp)));
    let before = stats().pushed;
    burn_until(|| stats().pushed > before);
    drop(started);
    let got = got.recv().unwrap();
    assert_eq!(got.line, "POST /v1development/profiles HTTP/1.1");
    assert_eq!(got.header("Content-Type"), Some("application/x-protobuf"));
    assert_eq!(got.header("Content-Encoding"), Some("gzip"));
    assert_eq!(got.body[..3], [0x1f, 0x8b, 8]);
}

#[test]
fn what_is_lost_is_counted_by_reason() {
    let (url, _got) = server(&["422 Unprocessable"]);
    let before = stats();
    let started = start_with(config(push(&url)));
    burn_until(|| stats().push_lost_refused > before.push_lost_refused);
    drop(started);
    // No room for a single one.
    let before = stats();
    let started = start_with(config(push(&url).queue_bytes(10)));
    burn_until(|| stats().push_lost_queue_full > before.push_lost_queue_full);
    drop(started);
    // Nobody there: the end gives up at once, and says so.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let before = stats();
    let started = start_with(config(push(&format!("http://{nobody}"))));
    burn_until(|| stats().push_failed_tries > before.push_failed_tries);
    let ended = Instant::now();
    drop(started);
    assert!(ended.elapsed() < Duration::from_secs(10));
    assert!(stats().push_lost_unsent > before.push_lost_unsent);
    assert_eq!(stats().pushed, before.pushed);
}

#[test]
fn a_process_that_ends_early_sends_what_it_has() {
    let (url, got) = server(&["200 OK"]);
    let started = start_with(config(push(&url).interval(Duration::from_secs(3600))));
    std::thread::sleep(Duration::from_millis(200));
    burn(300_000_000);
    drop(started);
    let body = got.recv_timeout(Duration::from_secs(5)).unwrap().body;
    let profile = decode(&body, Mode::Strict, &Limits::default())
        .unwrap()
        .profile;
    assert!(profile.total(1) > 100_000_000, "{} ns", profile.total(1));
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let refused = config(push("https://a")).start().unwrap_err();
    assert!(refused.to_string().contains("without TLS"), "{refused}");
}
