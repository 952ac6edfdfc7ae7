//! The server itself: connections, limits, garbage, captures whose client goes away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use http_support::{
    captures, captures_end, connect, exchange, get, parse, read_answer, request, server,
};

const CMDLINE: &[u8] = b"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn works(address: SocketAddr) {
    assert_eq!(get(address, "/debug/pprof/cmdline").status, 200);
}

/// Xorshift: garbage that is the same in every run.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn malformed_requests_get_an_error_and_the_server_lives() {
    let ours = server(|options| options.read_timeout = Duration::from_millis(300));
    let cases: [(&[u8], u16); 12] = [
        (b"GET /\r\n\r\n", 400),
        (b"GARBAGE\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\0\0\0\0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
        (b"GET \xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
            400,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            400,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            411,
        ),
        (b"GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n", 403),
    ];
    for (bytes, status) in cases {
        let answer = parse(&exchange(ours.address(), bytes));
        let sent = String::from_utf8_lossy(bytes);
        assert_eq!(
            (answer.status, answer.header("Connection")),
            (status, Some("close")),
            "{sent}"
        );
    }
    works(ours.address());
}

#[test]
fn random_bytes_and_mutated_requests_do_not_stop_the_server() {
    let ours = server(|options| {
        options.read_timeout = Duration::from_millis(20);
        options.idle_timeout = Duration::from_millis(20);
    });
    let mut next = noise(42);
    for round in 0..600 {
        let mut bytes = if round % 2 == 0 {
            CMDLINE.to_vec()
        } else {
            vec![0; next() as usize % 600]
        };
        let changes = if round % 2 == 0 { 3 } else { bytes.len() };
        for _ in 0..changes {
            let at = next() as usize % bytes.len().max(1);
            bytes[at] = next() as u8;
        }
        let mut stream = connect(ours.address());
        // The server may have hung up already.
        let _ = stream.write_all(&bytes);
        if round % 3 == 0 {
            let _ = stream.read(&mut [0; 64]);
        }
    }
    works(ours.address());
}

#[test]
fn oversized_heads_and_bodies_are_refused() {
    let ours = server(|options| options.max_body = 1000);
    let head = [CMDLINE, b""].concat();
    let long = [
        &head[..head.len() - 2],
        b"X: ",
        &[b'a'; 20_000],
        b"\r\n\r\n",
    ]
    .concat();
    assert_eq!(parse(&exchange(ours.address(), &long)).status, 431);
    let target = "/debug/pprof/symbol";
    for size in [1001, 8 << 20] {
        let body = vec![b'1'; size];
        assert_eq!(request(ours.address(), "POST", target, &body).status, 413);
    }
    assert_eq!(
        request(ours.address(), "POST", target, &[b'1'; 1000]).status,
        200
    );
}

#[test]
fn connections_stay_open_and_requests_may_be_pipelined_or_come_in_pieces() {
    let ours = server(|_| {});
    let mut stream = connect(ours.address());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    stream.write_all(&[CMDLINE, CMDLINE].concat()).unwrap();
    for _ in 0..2 {
        assert_eq!(read_answer(&mut reader, false).unwrap().status, 200);
    }
    for byte in CMDLINE {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_answer(&mut reader, false).unwrap().status, 200);
    stream.write_all(b"POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").unwrap();
    let mut continued = [0; 25];
    reader.read_exact(&mut continued).unwrap();
    assert_eq!(&continued, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"0x1").unwrap();
    assert_eq!(
        read_answer(&mut reader, false).unwrap().body,
        b"num_symbols: 1\n"
    );
}

#[test]
fn old_clients_get_an_end_of_connection() {
    http_support::start_sampler();
    let ours = server(|_| {});
    let answer = exchange(ours.address(), b"GET /debug/pprof/cmdline HTTP/1.0\r\n\r\n");
    assert_eq!(parse(&answer).header("Connection"), Some("close"));
    let answer = exchange(
        ours.address(),
        b"GET /debug/pprof/profile?seconds=1 HTTP/1.0\r\n\r\n",
    );
    let answer = parse(&answer);
    assert_eq!(
        (answer.status, answer.header("Transfer-Encoding")),
        (200, None)
    );
    assert_eq!(&answer.body[..3], &[0x1f, 0x8b, 8]);
}

#[test]
fn too_many_connections_are_refused_until_silent_ones_time_out() {
    let ours = server(|options| {
        options.max_connections = 4;
        options.idle_timeout = Duration::from_millis(1500);
    });
    let silent: Vec<_> = (0..4).map(|_| connect(ours.address())).collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut refused = Vec::new();
    connect(ours.address()).read_to_end(&mut refused).unwrap();
    let refused = parse(&refused);
    assert_eq!(
        (refused.status, refused.text().as_str()),
        (503, "too many profiling connections")
    );
    std::thread::sleep(Duration::from_millis(1800));
    works(ours.address());
    drop(silent);
}

#[test]
fn slow_headers_cannot_hold_a_connection() {
    let ours = server(|options| options.read_timeout = Duration::from_millis(400));
    let mut stream = connect(ours.address());
    let start = Instant::now();
    for byte in CMDLINE {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"", "after {:?}", start.elapsed());
    works(ours.address());
}

#[test]
fn capture_ends_when_its_client_goes_away() {
    http_support::start_sampler();
    let ours = server(|_| {});
    let mut stream = connect(ours.address());
    let head = b"GET /debug/pprof/profile?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head).unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    assert!(captures(ours.address()) >= 1);
    drop(stream);
    captures_end(ours.address());
}

#[test]
fn stopping_ends_captures_and_frees_the_port() {
    http_support::start_sampler();
    let ours = server(|_| {});
    let address = ours.address();
    let mut stream = connect(address);
    stream
        .write_all(b"GET /debug/pprof/profile?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    let idle = connect(address);
    drop(ours);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "an aborted capture must not look whole"
    );
    drop((stream, idle));
    TcpListener::bind(address).expect("the port is free");
}
