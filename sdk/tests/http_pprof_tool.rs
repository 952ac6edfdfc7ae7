//! The endpoint as `go tool pprof` meets it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use std::hint::black_box;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pilotlight_profile::{Mapping, ProfileBuilder};

use http_support::{get, go_tool_pprof, request, server};

/// Never inlined, so that it keeps its name.
#[inline(never)]
fn burn_in_tests(stop: &AtomicBool) -> u64 {
    let mut state = 1;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            state = black_box(inlined_step(state));
        }
    }
    state
}

#[inline(always)]
fn inlined_step(state: u64) -> u64 {
    let mut mixed = state;
    for shift in 1..16 {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    }
    mixed
}

/// Nothing is inlined into it, so each of its addresses has its name alone.
#[inline(never)]
fn plain_function(x: u64) -> u64 {
    x * 3 + 1
}

/// Keeps one core busy while `work` runs.
fn while_busy<T>(work: impl FnOnce() -> T) -> T {
    http_support::start_sampler();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let burner = scope.spawn(|| burn_in_tests(&stop));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        burner.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn url(server: &pilotlight::http::ServerHandle, seconds: u32) -> String {
    format!(
        "http://{}/debug/pprof/profile?seconds={seconds}",
        server.address()
    )
}

/// Cumulative share in percent of the function whose name contains `name`.
fn share(top: &str, name: &str) -> f64 {
    let row = top
        .lines()
        .find(|line| line.contains(name) && line.contains('%'));
    let row = row.unwrap_or_else(|| panic!("no {name} in\n{top}"));
    row.split_whitespace()
        .nth(4)
        .unwrap()
        .trim_end_matches('%')
        .parse()
        .unwrap()
}

#[test]
fn top_shows_functions_by_name_inlined_ones_included() {
    let ours = server(|_| {});
    let top = while_busy(|| go_tool_pprof(&["-top", "-nodefraction=0", &url(&ours, 2)])).unwrap();
    assert!(top.contains("Type: cpu"), "{top}");
    assert!(share(&top, "burn_in_tests") > 80.0, "{top}");
    assert!(share(&top, "inlined_step") > 50.0, "{top}");
    assert!(
        top.lines()
            .any(|line| line.contains("inlined_step (inline)")),
        "{top}"
    );
}

#[test]
fn names_come_without_any_help_of_the_tool() {
    let ours = server(|_| {});
    for mode in ["none", "remote"] {
        let symbolize = format!("-symbolize={mode}");
        let top = while_busy(|| go_tool_pprof(&[&symbolize, "-top", &url(&ours, 1)])).unwrap();
        assert!(share(&top, "burn_in_tests") > 50.0, "{mode}: {top}");
    }
}

#[test]
fn symbol_names_functions_by_get_and_by_post() {
    http_support::start_sampler();
    let ours = server(|_| {});
    let pc = plain_function as *const () as u64;
    let asked = format!("{pc:#x}+0x1");
    let expected = format!("num_symbols: 1\n{pc:#x} ");
    let got = get(ours.address(), &format!("/debug/pprof/symbol?{asked}")).text();
    let posted = request(
        ours.address(),
        "POST",
        "/debug/pprof/symbol",
        asked.as_bytes(),
    )
    .text();
    assert_eq!(got, posted);
    assert!(
        got.starts_with(&expected) && got.contains("plain_function"),
        "{got}"
    );
    assert_eq!(got.lines().count(), 2, "{got}");
}

#[test]
fn keep_alive_blocks_are_read_as_one_gzip_file() {
    let ours = server(|options| options.keep_alive = Duration::from_millis(250));
    let (top, raw) = while_busy(|| {
        let raw = std::thread::spawn({
            let address = ours.address();
            move || get(address, "/debug/pprof/profile?seconds=7")
        });
        (
            go_tool_pprof(&["-top", &url(&ours, 7)]).unwrap(),
            raw.join().unwrap(),
        )
    });
    assert!(share(&top, "burn_in_tests") > 80.0, "{top}");
    let blocks = raw.body[10..]
        .chunks_exact(5)
        .take_while(|c| c == &[0, 0, 0, 0xff, 0xff])
        .count();
    assert!((20..=29).contains(&blocks), "{blocks} empty blocks");
    assert_eq!(raw.header("Content-Type"), Some("application/octet-stream"));
    assert_eq!(raw.header("Content-Encoding"), None);
}

#[test]
fn two_clients_at_once_both_get_the_full_time() {
    let ours = server(|_| {});
    let (first, second) = while_busy(|| {
        let first = std::thread::spawn({
            let url = url(&ours, 3);
            move || go_tool_pprof(&["-top", &url])
        });
        std::thread::sleep(Duration::from_millis(700));
        (
            go_tool_pprof(&["-top", &url(&ours, 3)]),
            first.join().unwrap(),
        )
    });
    for top in [first.unwrap(), second.unwrap()] {
        let total = top
            .lines()
            .find(|line| line.starts_with("Duration: "))
            .unwrap();
        let seconds: f64 = total["Duration: ".len()..]
            .split('s')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!((2.9..4.0).contains(&seconds), "{top}");
        assert!(share(&top, "burn_in_tests") > 80.0, "{top}");
    }
}

/// Serves a profile that knows only addresses, and hands `symbol` on to `ours`.
fn unsymbolized(ours: SocketAddr, pc: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (method, target, body) = http_support::read_request(&mut reader);
            let answer = match method.as_str() {
                "POST" => request(ours, &method, &target, &body).body,
                _ => address_profile(pc),
            };
            let head = format!(
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            let stream = reader.get_mut();
            stream
                .write_all(&[head.as_bytes(), &answer].concat())
                .unwrap();
        }
    });
    address
}

fn address_profile(pc: u64) -> Vec<u8> {
    let mut builder = ProfileBuilder::new();
    builder.sample_type("cpu", "nanoseconds");
    let file = builder.string(b"/bin/service");
    let page = pc & !0xfff;
    let mapping = builder.mapping(Mapping {
        start: page,
        limit: page + 0x2000,
        file,
        ..Mapping::default()
    });
    let location = builder.location(Some(mapping), pc, &[]);
    let stack = builder.stack(&[location]);
    builder.sample(stack, Default::default(), &[1_000_000_000]);
    builder.finish().to_pprof_gz()
}

#[test]
fn remote_symbolization_of_bare_addresses_works() {
    http_support::start_sampler();
    let ours = server(|_| {});
    let pc = plain_function as *const () as u64;
    let source = format!(
        "http://{}/debug/pprof/profile",
        unsymbolized(ours.address(), pc)
    );
    let top = go_tool_pprof(&["-symbolize=remote", "-top", &source]).unwrap();
    assert!(share(&top, "plain_function") > 99.0, "{top}");
}
