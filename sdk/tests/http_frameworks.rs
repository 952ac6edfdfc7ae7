//! The same routes inside axum and hyper: same answers as the own server, no worker blocked.
#![cfg(feature = "axum")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use http_support::{captures, captures_end, connect, get, request, server};

/// A service with one single worker: what blocks it blocks everything.
fn axum_service() -> SocketAddr {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let own = axum::routing::get(async || "own");
            let app = axum::Router::new()
                .route("/own", own)
                .merge(pilotlight::axum::router());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
    });
    receive.recv().unwrap()
}

#[test]
fn axum_serves_the_index() {
    let page = get(axum_service(), "/debug/pprof/").text();
    assert!(page.contains("Types of profiles available:"), "{page}");
}

#[test]
fn axum_answers_like_the_own_server() {
    http_support::start_sampler();
    let (axum, ours) = (axum_service(), server(|_| {}));
    for (method, target) in [
        ("HEAD", "/debug/pprof/"),
        ("GET", "/debug/pprof"),
        ("GET", "/debug/pprof/cmdline"),
        ("GET", "/debug/pprof/symbol?0x1+zz"),
        ("HEAD", "/debug/pprof/symbol"),
        ("POST", "/debug/pprof/symbol"),
        ("POST", "/debug/pprof/profile"),
        ("HEAD", "/debug/pprof/profile"),
        ("GET", "/debug/pprof/nope"),
        ("GET", "/debug/pprof/nope/deeper"),
        ("GET", "/debug/pprof/%zz"),
    ] {
        let body: &[u8] = if method == "POST" { b"0x1+0x2" } else { b"" };
        let expected = request(ours.address(), method, target, body);
        let answer = request(axum, method, target, body);
        let row = format!("{method} {target}");
        assert_eq!(
            (answer.status, answer.text()),
            (expected.status, expected.text()),
            "{row}"
        );
        for name in [
            "Content-Type",
            "X-Go-Pprof",
            "Allow",
            "Location",
            "Content-Disposition",
        ] {
            assert_eq!(answer.header(name), expected.header(name), "{row}: {name}");
        }
    }
}

#[test]
fn capture_does_not_block_the_only_worker() {
    http_support::start_sampler();
    let axum = axum_service();
    let capture = std::thread::spawn(move || get(axum, "/debug/pprof/profile?seconds=2"));
    let (start, mut answers) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(1500) {
        assert_eq!(get(axum, "/own").text(), "own");
        answers += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!capture.is_finished() && answers > 10, "{answers} answers");
    let profile = capture.join().unwrap();
    assert_eq!(
        (profile.status, &profile.body[..3]),
        (200, &[0x1f, 0x8b, 8][..])
    );
}

#[test]
fn capture_ends_when_the_client_of_axum_goes_away() {
    http_support::start_sampler();
    let axum = axum_service();
    let mut stream = connect(axum);
    let head = b"GET /debug/pprof/profile?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head).unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    assert!(captures(axum) >= 1);
    drop(stream);
    captures_end(axum);
}

#[test]
fn hyper_service_reads_bodies_and_refuses_oversized_ones() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let post = |body: Vec<u8>| {
        let request = axum::http::Request::post("/debug/pprof/symbol").body(Body::from(body));
        let Ok(answer) = runtime.block_on(pilotlight::hyper::handle(request.unwrap()));
        let (status, body) = (answer.status().as_u16(), Body::new(answer.into_body()));
        let bytes = runtime
            .block_on(axum::body::to_bytes(body, 1 << 20))
            .unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    };
    assert_eq!(post(b"0x1".to_vec()), (200, "num_symbols: 1\n".to_string()));
    assert_eq!(post(vec![b'+'; (4 << 20) + 1]), (413, String::new()));
}
