//! Hostile connections against `serve`: each is ended or answered, and nobody else notices.
#![cfg(feature = "serve")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use pilotlight_wire::serve::{Edge, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Seen = Arc<Mutex<Vec<String>>>;

/// A server that notes each path it was asked for; it reads the body first.
async fn server(edge: Edge) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let noted = noted.clone();
        async move {
            let path = request.uri().path().to_owned();
            let _ = request.into_body().collect().await;
            noted.lock().unwrap().push(path);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hi"))))
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, edge, service, std::future::pending()));
    (address, seen)
}

fn brief() -> Edge {
    let mut edge = Edge::default();
    edge.head_timeout = Duration::from_millis(500);
    edge
}

async fn said(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// What the server says until it closes; fails when it does not close.
async fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    let closed = tokio::time::timeout(Duration::from_secs(30), closed).await;
    // A reset is an end too.
    let _ = closed.expect("the server keeps the connection");
    answer
}

const WHOLE: &[u8] = b"GET /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_thousand_slow_heads_end_and_others_are_answered_meanwhile() {
    let (address, seen) = server(brief()).await;
    let mut slow = Vec::new();
    for n in 0..1000 {
        // The last two would wait for ever in a server that only limits heads.
        let beginning: &[u8] = match n % 3 {
            0 => b"GET /slow HTTP/1.1\r\nHost: ",
            1 => b"PRI * HTT",
            _ => b"",
        };
        slow.push(said(address, beginning).await);
    }
    for _ in 0..50 {
        let answer = until_closed(said(address, WHOLE).await).await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }
    for stream in slow {
        until_closed(stream).await;
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 50);
    assert!(seen.iter().all(|path| path == "/whole"));
}

#[tokio::test]
async fn more_connections_than_there_may_be_wait_and_are_served_when_others_end() {
    let mut edge = brief();
    edge.max_connections = 2;
    let (address, _) = server(edge).await;
    let _idle = [said(address, b"").await, said(address, b"").await];
    let answer = until_closed(said(address, WHOLE).await).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let (address, seen) = server(Edge::default()).await;
    let mut head = b"GET / HTTP/1.1\r\nHost: x\r\nX: ".to_vec();
    head.extend(std::iter::repeat_n(b'a', 200 << 10));
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may close while we write.
    let _ = stream.write_all(&head).await;
    let answer = until_closed(stream).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert!(seen.lock().unwrap().is_empty());
}

/// Each hides a second request in the body of the first from one reader and not from another. A server
/// may refuse, or read the one request that RFC 9112 says; it must never see two.
#[tokio::test]
async fn no_request_is_smuggled_in() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let vectors = [
        format!(
            "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            5 + hidden.len()
        ),
        format!(
            "Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!(
            "Content-Length: {}\r\nContent-Length: 0\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!("Content-Length: +0\r\n\r\n{hidden}"),
        format!("Content-Length: 0, {}\r\n\r\n{hidden}", hidden.len()),
        format!("Content-Length : 0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n-0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n{hidden}"),
        format!("X: a\r\n Content-Length: 0\r\n\r\n{hidden}"),
        format!("Content-Length: 0\u{0}\r\n\r\n{hidden}"),
    ];
    for vector in &vectors {
        let (address, seen) = server(brief()).await;
        let request = format!("POST /first HTTP/1.1\r\nHost: x\r\n{vector}");
        let answer = until_closed(said(address, request.as_bytes()).await).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let hidden = seen.lock().unwrap().iter().any(|path| path == "/hidden");
        assert!(!hidden, "{vector:?}: {answer}");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes
}

/// `GET / http x`, from the static table of RFC 7541.
const GET: &[u8] = &[0x82, 0x84, 0x86, 0x01, 0x01, b'x'];

/// Writes until the server closes; how many frames that took.
async fn flood(address: SocketAddr, mut next: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let mut stream = said(address, &preface()).await;
    let (mut read, mut write) = stream.split();
    let drain = async {
        let mut buffer = [0; 4096];
        while read.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
    };
    let send = async {
        for n in 0..1_000_000 {
            if write.write_all(&next(n)).await.is_err() {
                return Some(n);
            }
        }
        None
    };
    tokio::select! {
        () = drain => Some(0),
        sent = send => sent,
    }
}

#[tokio::test]
async fn floods_of_http2_frames_end_the_connection_only() {
    let (address, _) = server(Edge::default()).await;
    let reset = |n: u32| {
        let stream = 2 * n + 1;
        let mut frames = frame(1, 0x5, stream, GET);
        frames.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
        frames
    };
    let ended = flood(address, reset).await;
    assert!(ended.is_some(), "rapid resets");
    let continued = |n: u32| match n {
        0 => frame(1, 0, 1, GET),
        _ => frame(9, 0, 1, &[0x40, 0x01, b'a', 0x01, b'b'].repeat(1000)),
    };
    assert!(flood(address, continued).await.is_some(), "continuations");
    let oversized = |n: u32| frame(1, 0x5, 2 * n + 1, &vec![0x82; 1 << 20]);
    assert!(
        flood(address, oversized).await.is_some(),
        "oversized frames"
    );
    let answer = until_closed(said(address, WHOLE).await).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}
