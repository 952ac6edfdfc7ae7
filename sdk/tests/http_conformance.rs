//! The status table of Go's net/http/pprof, row by row, against a running Go program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use std::net::SocketAddr;

use http_support::{Answer, Go, get, request, server};

/// What must be equal besides status and headers.
#[derive(Clone, Copy, PartialEq)]
enum Compare {
    Body,
    /// The body is the program's own.
    HeadersOnly,
}
use Compare::{Body, HeadersOnly};

/// Headers that mean something to clients. (Lengths and dates follow from the rest.)
const HEADERS: [&str; 6] = [
    "Content-Type",
    "X-Content-Type-Options",
    "X-Go-Pprof",
    "Content-Disposition",
    "Allow",
    "Location",
];

fn compare(go: SocketAddr, ours: SocketAddr, rows: &[(&str, &str, Compare)]) {
    for &(method, target, what) in rows {
        let expected = request(go, method, target, b"");
        let answer = request(ours, method, target, b"");
        let row = format!("{method} {target}");
        assert_eq!(answer.status, expected.status, "{row}");
        assert_eq!(headers(&answer), headers(&expected), "{row}");
        if what == Body {
            assert_eq!(answer.text(), expected.text(), "{row}");
        }
    }
}

fn headers(answer: &Answer) -> Vec<(&'static str, Option<&str>)> {
    HEADERS
        .iter()
        .map(|&name| (name, answer.header(name)))
        .collect()
}

#[test]
fn pages_and_texts_equal_those_of_go() {
    let (go, ours) = (Go::start(), server(|_| {}));
    let long = format!("/debug/pprof/symbol?{}", "1".repeat(5000));
    compare(
        go.address,
        ours.address(),
        &[
            ("GET", "/debug/pprof/", HeadersOnly),
            ("HEAD", "/debug/pprof/", Body),
            ("GET", "/debug/pprof/cmdline", HeadersOnly),
            ("HEAD", "/debug/pprof/cmdline", Body),
            ("GET", "/debug/pprof/symbol", Body),
            ("GET", "/debug/pprof/symbol?0x0+0+zz+_1+0x", Body),
            ("GET", &long, Body),
            ("HEAD", "/debug/pprof/symbol?0x1", Body),
        ],
    );
}

#[test]
fn error_rows_equal_those_of_go() {
    let (go, ours) = (Go::start(), server(|_| {}));
    compare(
        go.address,
        ours.address(),
        &[
            ("GET", "/debug/pprof/nope", Body),
            ("HEAD", "/debug/pprof/nope", Body),
            ("GET", "/debug/pprof/nope?debug=1", Body),
            ("GET", "/debug/pprof/nope?seconds=x", Body),
            ("GET", "/debug/pprof/nope/deeper", Body),
            ("GET", "/debug/pprof/heap?seconds=x", Body),
            ("GET", "/debug/pprof/heap?seconds=0", Body),
            ("GET", "/debug/pprof/allocs?seconds=-1", Body),
            ("GET", "/debug/pprof/mutex?seconds=1.5", Body),
            ("GET", "/debug/pprof/block?seconds=1&debug=1", Body),
            ("POST", "/debug/pprof/heap", Body),
            ("GET", "/debug/pprof/%6eope", Body),
            ("GET", "/debug/pprof/Profile", Body),
            ("POST", "/debug/pprof/nope", Body),
            ("POST", "/debug/pprof/", Body),
            ("POST", "/debug/pprof/profile", Body),
            ("PUT", "/debug/pprof/profile", Body),
            ("DELETE", "/debug/pprof/cmdline", Body),
            ("OPTIONS", "/debug/pprof/profile", Body),
            ("GET", "/debug/pprof", Body),
            ("GET", "/debug/pprof?a=1&b=2", Body),
            ("GET", "/debug", Body),
            ("GET", "/nope", Body),
            ("POST", "/nope", Body),
            ("GET", "/debug/pprofx", Body),
        ],
    );
}

#[test]
fn profile_rows_equal_those_of_go() {
    http_support::start_sampler();
    let (go, ours) = (Go::start(), server(|_| {}));
    compare(
        go.address,
        ours.address(),
        &[
            ("GET", "/debug/pprof/profile?seconds=1", HeadersOnly),
            ("GET", "/debug/pprof/profile?debug=1&seconds=1", HeadersOnly),
            ("GET", "/debug/pprof/%70rofile?seconds=1", HeadersOnly),
            ("HEAD", "/debug/pprof/profile?seconds=1", Body),
        ],
    );
}

#[test]
fn symbol_takes_post_where_go_refuses_it() {
    let (go, ours) = (Go::start(), server(|_| {}));
    let target = "/debug/pprof/symbol";
    assert_eq!(request(go.address, "POST", target, b"0x1").status, 405);
    let answer = request(ours.address(), "POST", target, b"0x1");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "num_symbols: 1\n")
    );
    let refused = request(ours.address(), "PUT", target, b"0x1");
    assert_eq!(
        (refused.status, refused.header("Allow")),
        (405, Some("GET, HEAD, POST"))
    );
}

#[test]
fn bad_escapes_in_paths_are_refused_as_in_go() {
    let (go, ours) = (Go::start(), server(|_| {}));
    for target in ["/debug/pprof/%zz", "/debug/pprof/%4"] {
        assert_eq!(get(go.address, target).status, 400);
        assert_eq!(get(ours.address(), target).status, 400);
    }
}

#[test]
fn cmdline_holds_the_arguments_joined_by_nul() {
    let ours = server(|_| {});
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(
        get(ours.address(), "/debug/pprof/cmdline").text(),
        arguments.join("\0")
    );
}

#[test]
fn index_lists_each_profile_and_says_that_it_is_on() {
    http_support::start_sampler();
    let page = get(server(|_| {}).address(), "/debug/pprof/").text();
    for name in ["cmdline", "profile", "symbol"] {
        let row = format!("<td><a href='{name}?debug=1'>{name}</a></td><td>on</td><td>nothing");
        assert!(page.contains(&row), "{page}");
    }
}

#[test]
fn root_of_the_listener_leads_to_the_index() {
    let ours = server(|_| {});
    let answer = get(ours.address(), "/");
    assert_eq!(
        (answer.status, answer.header("Location")),
        (307, Some("/debug/pprof/"))
    );
}
