//! Selections read by the real `go tool pprof`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use pilotlight_profile::{LabelSetId, Mapping, ProfileBuilder};

use crate::common::{Local, SECOND, T0, config, get, profile, push, try_request};

const SERVICE: &str = "{service_name=\"checkout\"}";

/// A named binary, and one of whose two locations one has no name.
fn with_mappings(time_ns: i64, scale: i64) -> Vec<u8> {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(time_ns, 10 * SECOND);
    let mut mapping = |start: u64, file: &str, id: &str| {
        let (file, build_id) = (out.string(file.as_bytes()), out.string(id.as_bytes()));
        out.mapping(Mapping {
            start,
            limit: start + 0x8000,
            offset: 0x1000,
            file,
            build_id,
            has_functions: false,
            has_filenames: false,
            has_line_numbers: false,
            has_inline_frames: false,
        })
    };
    let app = mapping(0x40_0000, "/srv/app", "aabbcc");
    let lib = mapping(0x7f00_0000, "/lib/libpartly.so", "ddeeff");
    let mut named = |mapping, address, name: &str| {
        let name = out.string(name.as_bytes());
        let function = out.function(name, name, name, 1);
        out.location(Some(mapping), address, &[(function, 7)])
    };
    let main = named(app, 0x40_0123, "main");
    let known = named(lib, 0x7f00_0010, "known");
    let bare = out.location(Some(lib), 0x7f00_0020, &[]);
    for (leaf, count) in [(known, 3), (bare, 2)] {
        let stack = out.stack(&[leaf, main]);
        let values = [count * scale, count * scale * 10_000_000];
        out.sample(stack, LabelSetId(0), &values);
    }
    out.finish().to_pprof_gz()
}

fn pprof(scratch: &Path, arguments: &[&str]) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(arguments)
        .env("PPROF_TMPDIR", scratch)
        .env("PPROF_BINARY_PATH", scratch)
        .output()
        .expect("go is needed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn url(address: SocketAddr, kind: &str, more: &str) -> String {
    // As one types it: neither the tool nor the server wants it escaped.
    format!("http://{address}/debug/pprof/{kind}?query={SERVICE}{more}")
}

fn flat(top: &str, name: &str) -> String {
    let row = top.lines().find(|line| line.ends_with(name));
    let row = row.unwrap_or_else(|| panic!("{name} is not in\n{top}"));
    row.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn go_tool_pprof_reads_a_selection_with_its_real_mappings() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    for (at, scale) in [(T0, 1), (T0 + 100 * SECOND, 4)] {
        let body = with_mappings(at, scale);
        assert_eq!(push(server.address, SERVICE, &body).status, 200);
    }
    let until = format!("&until={}", T0 / SECOND + 150);
    let all = url(
        server.address,
        "profile",
        &format!("&from=1767225000{until}"),
    );
    let raw = pprof(folder.path(), &["-raw", "-symbolize=none", &all]);
    let lines: Vec<&str> = raw.lines().map(str::trim).collect();
    let has = |line: &str| assert!(lines.contains(&line), "{line} is not in\n{raw}");
    has("cpu/nanoseconds[dflt] samples/count");
    has("1: 0x400000/0x408000/0x1000 /srv/app aabbcc [FN][FL][LN]");
    has("2: 0x7f000000/0x7f008000/0x1000 /lib/libpartly.so ddeeff");
    let bare = "0x7f000020 M=2 libpartly.so+0x1020 :0:0 s=0";
    assert!(
        lines.iter().any(|line| line.ends_with(bare)),
        "{bare} is not in\n{raw}"
    );

    let top = pprof(folder.path(), &["-top", "-unit=ms", &all]);
    assert!(top.contains("of 250ms total"), "{top}");
    assert_eq!(flat(&top, " known"), "150ms");
    let counted = pprof(
        folder.path(),
        &["-top", "-sample_index=samples", "-symbolize=none", &all],
    );
    assert_eq!(flat(&counted, " known"), "15");

    // The last minute before until.
    let last = url(server.address, "cpu", &until);
    let top = pprof(folder.path(), &["-top", "-unit=ms", "-seconds=60", &last]);
    assert_eq!(flat(&top, " known"), "120ms");

    let first = url(
        server.address,
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        &format!("&from=1767225000&until={}", T0 / SECOND + 50),
    );
    let second = url(
        server.address,
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        &format!("&from={}{until}", T0 / SECOND + 50),
    );
    let diff = pprof(
        folder.path(),
        &["-top", "-unit=ms", "-diff_base", &first, &second],
    );
    assert_eq!(flat(&diff, " known"), "90ms", "{diff}");
    server.stop();
}

#[test]
fn what_go_tool_pprof_cannot_have_it_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let body = profile(T0, &[(&["main"], 10_000_000)]);
    assert_eq!(push(server.address, SERVICE, &body).status, 200);
    for (path, status, word) in [
        (
            "heap?query={}&from=1767225000&until=1767325600",
            404,
            "heap",
        ),
        ("cpu?query={service_name", 400, "parameter query"),
        ("cpu?query={}&seconds=-1", 400, "seconds"),
    ] {
        let path = path.replace('{', "%7B").replace('}', "%7D");
        let answer = get(server.address, &format!("/debug/pprof/{path}"));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.head.to_lowercase().contains("x-go-pprof: 1"));
        assert!(answer.head.contains("text/plain") && answer.text().contains(word));
    }
    for path in ["/symbol", "/pprof/symbol", "/debug/pprof/symbol"] {
        let answer = try_request(server.address, "POST", path, "", b"0x400123+0x400124").unwrap();
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "num_symbols: 1\n")
        );
    }
    server.stop();
}
