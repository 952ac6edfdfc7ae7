//! Parca's clients: its agent's Arrow writes by Apache Arrow's Go library, and what its page asks for.

use std::collections::BTreeMap;
use std::process::Command;

use pilotlight_profile::{Limits, Mode, Profile, decode};
use pilotlight_tests::process::{Scratch, go_build};
use pilotlight_tests::{http, server};
use serde_json::json;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A selection as pprof: the value of each stack.
fn samples(port: u16, kind: &str, selector: &str) -> BTreeMap<Vec<String>, i64> {
    let q = http::encode(selector);
    let path = format!("/api/v1/pprof?type={kind}&from=now-1h&until=now&q={q}");
    let limit = std::time::Duration::from_secs(30);
    let answer = http::get_within(port, &path, limit).unwrap();
    assert_eq!(
        answer.status,
        200,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    let decoded = decode(&answer.body, Mode::Strict, &Limits::default());
    let profile = decoded.unwrap().profile;
    // Stacks of other threads, and of the next ten seconds, are samples of their own.
    let mut sums: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for at in 0..profile.samples.len() {
        let stack = profile.stacks.get(profile.samples.stack[at] as usize);
        let frames = stack.iter();
        let frames = frames.map(|&location| frame(&profile, location as usize));
        *sums.entry(frames.collect()).or_default() += profile.samples.values[at];
    }
    sums
}

/// `file[build id] function`, or an address for a function.
fn frame(profile: &Profile, location: usize) -> String {
    let text = |id| profile.strings.text(id).into_owned();
    let mapping = profile
        .mappings
        .get(profile.locations.mapping[location] as usize);
    let mapping = mapping.map_or(String::new(), |mapping| {
        format!("{}[{:.4}] ", text(mapping.file), text(mapping.build_id))
    });
    let line = profile
        .lines
        .get(profile.locations.line_offsets[location] as usize);
    let function = line.map(|line| text(profile.functions[line.function.index()].name));
    let address = profile.locations.address[location];
    format!("{mapping}{:x} {}", address, function.unwrap_or_default())
}

#[test]
fn parcas_agent_writes_arrow_of_both_schemas() {
    let scratch = Scratch::new("parca-write");
    let (_server, port) = server::start(scratch.path(), "data", |_| {});
    let client = go_build("go/parca", scratch.path());
    let address = format!("127.0.0.1:{port}");
    let out = run(Command::new(client).args(["write", &address]));
    assert!(out.contains("v2 ok"), "{out}");
    assert!(
        out.contains("v1 ok, asked for 4 stacks by stacktrace_id"),
        "{out}"
    );
    assert!(
        out.contains("broken rpc error: code = InvalidArgument"),
        "{out}"
    );
    let (period, wait) = (52_631_578, 5_000_000);
    let frames = |list: &[&str]| {
        list.iter()
            .map(|&frame| frame.to_owned())
            .collect::<Vec<_>>()
    };
    let start = "app[aabb] 2000 app+0x2000";
    let leaf = frames(&["app[aabb] 1234 app+0x1234", start]);
    let kernel = frames(&["[kernel.kallsyms][] ffffffff81000010 do_syscall_64", start]);
    let script = frames(&["0 handler", start]);
    for front in ["", "old-"] {
        let of = |service: &str| format!("{{service_name=\"{front}{service}\",node=\"n1\"}}");
        let cpu = "parca_agent:cpu:nanoseconds:cpu:nanoseconds";
        let web = [
            (vec![], period),
            (leaf.clone(), 2 * period),
            (kernel.clone(), period),
        ];
        assert_eq!(samples(port, cpu, &of("web")), BTreeMap::from(web));
        let counted = "parca_agent:samples:count:cpu:nanoseconds";
        let db = [(leaf.clone(), 1), (script.clone(), 1)];
        assert_eq!(samples(port, counted, &of("db")), BTreeMap::from(db));
        let waits = "parca_agent:wallclock:nanoseconds:samples:count";
        let waited = [(kernel.clone(), wait)];
        assert_eq!(samples(port, waits, &of("web")), BTreeMap::from(waited));
    }
}

#[test]
fn what_parcas_page_asks_is_answered_as_arrow() {
    let scratch = Scratch::new("parca-ask");
    let (_server, port) = server::start(scratch.path(), "data", |_| {});
    let client = go_build("go/parca", scratch.path());
    let address = format!("127.0.0.1:{port}");
    let out = run(Command::new(&client).args(["ask", &address]).arg(&client));
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["types"], json!(["process_cpu:cpu:nanoseconds"]));
    assert_eq!(
        (&out["has_data"], &out["values"]),
        (&json!(1), &json!(["1", "2"]))
    );
    assert!(
        out["labels"].to_string().contains("service_name"),
        "{}",
        out["labels"]
    );
    assert_eq!(out["range"], json!([400, 600]));
    assert_eq!(out["pprof"], json!([1000, true]));
    // Name, file, sum, own, children, parent, depth, offset.
    assert_eq!(
        out["flame"],
        json!([
            ["(null)", "(null)", "1000", "0", "[1]", "-1", "0", "0"],
            ["main", "main.go", "1000", "0", "[2,3]", "0", "1", "0"],
            ["leaf", "main.go", "800", "800", "(null)", "1", "2", "0"],
            ["other", "main.go", "200", "200", "(null)", "1", "2", "800"],
        ])
    );
    assert_eq!(out["flame_meta"], json!([1000, "nanoseconds", 3]));
    assert_eq!(
        out["single"],
        json!([
            ["(null)", "600"],
            ["main", "600"],
            ["leaf", "500"],
            ["other", "100"]
        ])
    );
    assert_eq!(
        out["diff"],
        json!([
            ["(null)", "600", "200"],
            ["main", "600", "200"],
            ["leaf", "500", "200"],
            ["other", "100", "0"],
        ])
    );
    // Rows by own value; callers and callees are rows.
    assert_eq!(
        out["table"],
        json!([
            ["leaf", "800", "800", "[2]", "(null)"],
            ["other", "200", "200", "[2]", "(null)"],
            ["main", "1000", "0", "(null)", "[0,1]"],
        ])
    );
    let mut rows: Vec<serde_json::Value> = out["table_diff"].as_array().unwrap().clone();
    rows.sort_by_key(ToString::to_string);
    assert_eq!(
        json!(rows),
        json!([
            ["leaf", "200", "200"],
            ["main", "200", "0"],
            ["other", "0", "0"]
        ])
    );
    let refused = out["callgraph"].as_str().unwrap();
    assert!(refused.contains("Unimplemented"), "{refused}");
    // Wanted; by gRPC; all bytes came; not wanted again.
    assert_eq!(out["debuginfo"], json!([1, 1, true, 0]));
}
