//! The API's own document, and the stream of news for live pages.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Local, T0, config, get, profile, push, try_request};

#[test]
fn every_documented_operation_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let answer = get(server.address, "/api/v1/openapi.json");
    assert_eq!(answer.status, 200);
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            count += 1;
            // A stream has no end to wait for; the other test reads it.
            if about["responses"]["200"]["content"]
                .get("text/event-stream")
                .is_some()
            {
                continue;
            }
            let asked = path.replace("{name}", "pod").replace("{id}", "none");
            let method = method.to_uppercase();
            let answer = try_request(server.address, &method, &asked, "", b"").unwrap();
            let known = answer.status != 405 && !answer.text().contains("no such endpoint");
            assert!(
                known && answer.status < 500,
                "{method} {asked}: {}",
                answer.text()
            );
        }
    }
    assert!(count > 20, "{count} operations");
    server.stop();
}

#[test]
fn a_live_page_is_told_when_profiles_were_taken() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let head = "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = || {
        let data = lines
            .by_ref()
            .find(|line| line.starts_with("data: "))
            .unwrap();
        let data: serde_json::Value = serde_json::from_str(&data[6..]).unwrap();
        data["profiles"].as_u64().unwrap()
    };
    assert_eq!(next(), 0, "at once");
    let body = profile(T0, &[(&["main"], 10_000_000)]);
    assert_eq!(
        push(server.address, "{service_name=\"s\"}", &body).status,
        200
    );
    assert_eq!(next(), 1);
    // The stream ends with the server, which does not wait for it.
    server.stop();
    assert!(lines.by_ref().all(|line| !line.starts_with("data: ")));
}
