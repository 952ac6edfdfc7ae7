//! Debug information: from addresses to names, and how files get in.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;
#[path = "debuginfo/gdb.rs"]
mod gdb;
#[path = "debuginfo/parca.rs"]
mod parca;
#[path = "debuginfo/parca_query.rs"]
mod parca_query;
#[path = "debuginfo/parca_words.rs"]
mod parca_words;
#[path = "debuginfo/shared.rs"]
mod shared;
#[path = "debuginfo/sources.rs"]
mod sources;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Local, SECOND, T0, WINDOW, config, get, push, try_request};
use pilotlight_profile::{LabelSetId, Mapping, ProfileBuilder};
use pilotlight_server::describe;
use pilotlight_symbolize::Object;
use serde_json::{Value, json};

const SOURCE: &str = "\
static inline __attribute__((always_inline)) int square(int n) {
    return n * n;
}
__attribute__((noinline)) int leaf(int n) {
    return square(n) + 1;
}
int main(int argc, char **argv) {
    return leaf(argc);
}
";

/// A small program, built here: whole, stripped, and its debug information alone.
struct Built {
    whole: PathBuf,
    stripped: PathBuf,
    debug: PathBuf,
    build_id: String,
}

fn tool(name: &str, arguments: &[&str]) {
    let done = Command::new(name).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{name}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {said}");
}

fn build(folder: &Path, source: &str) -> Built {
    let path = |name: &str| folder.join(name);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(path("app.c"), source).unwrap();
    let (c, whole, stripped) = (path("app.c"), path("app"), path("app.stripped"));
    let debug = path("app.debug");
    let (c, w, s, d) = (text(&c), text(&whole), text(&stripped), text(&debug));
    tool("cc", &["-g", "-O1", "-Wl,--build-id=sha1", "-o", &w, &c]);
    tool("objcopy", &["--strip-all", &w, &s]);
    tool("objcopy", &["--only-keep-debug", &w, &d]);
    let build_id = describe(&whole).unwrap().build_id;
    assert_eq!(build_id.len(), 40);
    Built {
        whole,
        stripped,
        debug,
        build_id,
    }
}

/// File offset of an instruction of `leaf` that is the inlined `square`'s, and one of `main`.
fn offsets(built: &Built) -> (u64, u64) {
    let all = code_of(built);
    let at = |wanted: &str| {
        let is = |(_, innermost, _): &&(u64, String, String)| innermost == wanted;
        all.iter().find(is).unwrap().0
    };
    (at("square"), at("main"))
}

/// File offsets of all named code: its innermost function and its outermost one.
fn code_of(built: &Built) -> Vec<(u64, String, String)> {
    let object = Object::parse(std::fs::read(&built.whole).unwrap()).unwrap();
    let text = object.segments().iter().find(|s| s.executable).unwrap();
    let all = text.svma..text.svma + text.memory_size;
    let named = |svma| {
        let frames = object.frames(svma);
        let (first, last) = (frames.first()?, frames.last()?);
        let offset = svma - text.svma + text.file_offset;
        Some((offset, first.function.clone(), last.function.clone()))
    };
    all.filter_map(named).collect()
}

/// A profile of addresses only: `main` called what stands at `square`, for 3 s.
fn addresses(built: &Built, build_id: &str) -> Vec<u8> {
    let (square, main) = offsets(built);
    stacks(built, build_id, &[[square, main]])
}

/// A profile of stacks of file offsets, innermost first, 3 s each.
fn stacks(built: &Built, build_id: &str, stacks: &[[u64; 2]]) -> Vec<u8> {
    let object = Object::parse(std::fs::read(&built.whole).unwrap()).unwrap();
    let text = object.segments().iter().find(|s| s.executable).unwrap();
    let page = text.file_offset & !0xfff;
    let start = 0x7f12_3456_0000;
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(T0, 10 * SECOND);
    let file = out.string(b"/srv/bin/app");
    let build_id = out.string(build_id.as_bytes());
    let size = (text.file_offset - page + text.file_size).next_multiple_of(4096);
    let mapping = out.mapping(Mapping {
        start,
        limit: start + size,
        offset: page,
        file,
        build_id,
        ..Mapping::default()
    });
    for stack in stacks {
        let path = stack.map(|at| out.location(Some(mapping), start + at - page, &[]));
        let stack = out.stack(&path);
        out.sample(stack, LabelSetId(0), &[3 * SECOND]);
    }
    out.finish().to_pprof_gz()
}

fn names(address: SocketAddr) -> Vec<String> {
    let path =
        format!("/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&{WINDOW}");
    let tree = get(address, &path).json();
    let names = tree["name"].as_array().unwrap().iter();
    let of = |at: &Value| {
        tree["names"][at.as_u64().unwrap() as usize]
            .as_str()
            .unwrap()
            .to_owned()
    };
    names.map(of).collect()
}

fn missing(address: SocketAddr) -> Value {
    get(address, &format!("/api/v1/debuginfo?{WINDOW}")).json()
}

fn post(address: SocketAddr, path: &str, body: &[u8]) -> (u16, Value) {
    let answer = try_request(address, "POST", path, "", body).unwrap();
    (answer.status, answer.json())
}

fn start(address: SocketAddr, announced: &Value) -> (u16, Value) {
    post(
        address,
        "/api/v1/debuginfo/uploads",
        announced.to_string().as_bytes(),
    )
}

fn announce(path: &Path) -> Value {
    let mut announced = serde_json::to_value(describe(path).unwrap()).unwrap();
    announced["name"] = "app".into();
    announced
}

fn upload(address: SocketAddr, path: &Path) -> Value {
    let (status, started) = start(address, &announce(path));
    assert!(status < 300, "{started}");
    let Some(id) = started["upload"].as_str() else {
        return started;
    };
    let bytes = std::fs::read(path).unwrap();
    let at = format!("/api/v1/debuginfo/uploads/{id}");
    let (status, sent) = post(address, &format!("{at}?offset=0"), &bytes);
    assert_eq!((status, &sent["offset"]), (200, &json!(bytes.len())));
    let (status, done) = post(address, &format!("{at}/finish"), b"");
    assert_eq!(status, 200, "{done}");
    done
}

/// Within the ten seconds that are promised; several times that on a machine under load.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    since.elapsed()
}

#[test]
fn older_data_gets_names_when_its_debuginfo_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    let profile = addresses(&built, &built.build_id);
    assert_eq!(
        push(server.address, r#"{service_name="s"}"#, &profile).status,
        200
    );
    let (square, main) = offsets(&built);
    let address = |reason: &str, at: u64| format!("app[{reason}]+{at:#x}");
    let without = |reason: &str| {
        vec![
            String::new(),
            address(reason, main),
            address(reason, square),
        ]
    };
    assert_eq!(names(server.address), without("no-debuginfo"));
    let binary = missing(server.address);
    assert_eq!(binary["total"], 3 * SECOND);
    let binary = &binary["binaries"][0];
    assert_eq!(binary["binary"], "app");
    assert_eq!(binary["build_id"], built.build_id);
    assert_eq!(
        (&binary["frames"], &binary["value"]),
        (&json!(2), &json!(3 * SECOND))
    );
    assert_eq!(binary["reason"], "no-debuginfo");
    assert!(
        binary["what_to_do"]
            .as_str()
            .unwrap()
            .contains(&built.build_id)
    );

    // Another build of the same program does not help, and says so.
    let other = SOURCE.replace("+ 1", "+ 2");
    let other = build(&folder.path().join("2"), &other);
    assert_eq!(upload(server.address, &other.whole)["state"], "stored");
    assert_eq!(names(server.address), without("wrong-id"));

    assert_eq!(upload(server.address, &built.debug)["quality"], "dwarf");
    let named = ["", "main", "leaf", "square"];
    let took = wait_for("names", || names(server.address) == named);
    eprintln!("names after {took:?}");
    assert_eq!(missing(server.address)["binaries"], json!([]));
    let path = format!("/api/v1/function?function=main&type=cpu&step=1m&{WINDOW}");
    let points = get(server.address, &path).json()["points"].clone();
    let total = points[0]["total"].as_i64();
    assert_eq!(total, Some(3 * SECOND), "row by row, too: {points}");
    let path = format!("/api/v1/pprof?type=cpu&{WINDOW}");
    let pprof = get(server.address, &path).body;
    let pprof = pilotlight_profile::decode(
        &pprof,
        pilotlight_profile::Mode::Strict,
        &pilotlight_profile::Limits::default(),
    );
    let profile = pprof.unwrap().profile;
    let lines = profile.location(0).lines.to_vec();
    let line = |at: usize| {
        let function = &profile.functions[lines[at].function.index()];
        let file = profile.strings.text(function.filename).into_owned();
        (
            profile.strings.text(function.name).into_owned(),
            lines[at].line,
            file.ends_with("app.c"),
        )
    };
    assert_eq!(line(0), ("square".to_owned(), 2, true));
    assert_eq!(line(1), ("leaf".to_owned(), 5, true));
    let found = get(
        server.address,
        &format!("/buildid/{}/debuginfo", built.build_id),
    );
    assert_eq!(found.status, 200);
    assert!(found.body == std::fs::read(&built.debug).unwrap());
    let code = get(
        server.address,
        &format!("/buildid/{}/executable", built.build_id),
    );
    assert_eq!(code.status, 404, "only debug information was sent");
    server.stop();

    // All of it stands in the folder.
    let server = Local::start(config(&folder.path().join("data")));
    wait_for("names after a restart", || names(server.address) == named);
    server.stop();
}

#[test]
fn a_function_of_a_stripped_file_is_one_frame() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    let code = code_of(&built);
    let of = |outermost: &str| -> Vec<u64> {
        let code = code.iter().filter(|(_, _, of)| of == outermost);
        code.map(|(offset, ..)| *offset).collect()
    };
    let (leaf, main) = (of("leaf"), of("main"));
    // Each byte of the one was called by a byte of the other.
    let paths: Vec<[u64; 2]> = leaf
        .iter()
        .zip(main.iter().cycle())
        .map(|(&leaf, &main)| [leaf, main])
        .collect();
    assert!(paths.len() > 3);
    let profile = stacks(&built, &built.build_id, &paths);
    assert_eq!(
        push(server.address, r#"{service_name="s"}"#, &profile).status,
        200
    );
    assert_eq!(upload(server.address, &built.stripped)["state"], "stored");
    let address = |at: u64| format!("app[not-in-debuginfo]+{at:#x}");
    let wanted = [String::new(), address(main[0]), address(leaf[0])];
    wait_for("functions", || names(server.address) == wanted);
    let total = missing(server.address)["total"].clone();
    assert_eq!(total, paths.len() as i64 * 3 * SECOND, "they stay nameless");
    server.stop();
}

#[test]
fn a_better_file_replaces_a_worse_and_a_wrong_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    let at = server.address;
    let ask = |quality: &str| {
        let body = json!({ "files": [
            { "build_id": built.build_id, "quality": quality },
            { "build_id": "00ff", "quality": "dynsym" },
        ]});
        let (_, answer) = post(at, "/api/v1/debuginfo/wanted", body.to_string().as_bytes());
        assert_eq!(answer["files"][1]["wanted"], true);
        answer["files"][0]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask("dynsym"), "first");
    assert_eq!(upload(at, &built.stripped)["quality"], "dynsym");
    assert_eq!(ask("dwarf"), "better");
    assert_eq!(upload(at, &built.debug)["state"], "stored");
    assert_eq!(ask("dwarf"), "have_as_good");
    assert_eq!(
        upload(at, &built.whole),
        json!({ "state": "not_needed", "reason": "have_as_good" })
    );
    let files = get(at, "/api/v1/debuginfo/files").json();
    let qualities: Vec<_> = files["files"].as_array().unwrap().iter().collect();
    assert_eq!(qualities.len(), 2, "names, and code: {files}");

    // What is claimed must be what the file says.
    let mut announced = announce(&built.whole);
    announced["build_id"] = "00112233445566778899aabbccddeeff00112233".into();
    let (_, started) = start(at, &announced);
    let id = started["upload"].as_str().unwrap();
    let path = format!("/api/v1/debuginfo/uploads/{id}");
    post(
        at,
        &format!("{path}?offset=0"),
        &std::fs::read(&built.whole).unwrap(),
    );
    let (status, error) = post(at, &format!("{path}/finish"), b"");
    let error = error["error"].as_str().unwrap();
    assert_eq!(status, 422);
    assert!(
        error.contains("does not have the build id 0011") && error.contains(&built.build_id),
        "{error}"
    );
    let (status, _) = post(at, &format!("{path}/finish"), b"");
    assert_eq!(status, 404, "an upload that failed is gone");
    server.stop();
}

#[test]
fn an_upload_goes_on_after_a_crash_and_is_checked_before_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let mut settings = config(&folder.path().join("data"));
    settings.debuginfo.max_file_bytes = 1 << 20;
    let server = Local::start(settings.clone());
    let bytes = std::fs::read(&built.whole).unwrap();
    let announced = announce(&built.whole);
    let (status, started) = start(server.address, &announced);
    assert_eq!((status, &started["offset"]), (200, &json!(0)));
    let path = format!(
        "/api/v1/debuginfo/uploads/{}",
        started["upload"].as_str().unwrap()
    );
    let (half, rest) = bytes.split_at(bytes.len() / 2);
    assert_eq!(
        post(server.address, &format!("{path}?offset=0"), half).0,
        200
    );
    let (status, error) = post(server.address, &format!("{path}/finish"), b"");
    assert_eq!(status, 400, "{error}");
    server.stop();

    let server = Local::start(settings);
    let at = server.address;
    let (_, again) = start(at, &announced);
    assert_eq!(
        again["upload"], started["upload"],
        "the same words, the same upload"
    );
    assert_eq!(again["offset"], half.len());
    let (status, conflict) = post(at, &format!("{path}?offset=7"), rest);
    assert_eq!((status, &conflict["offset"]), (409, &json!(half.len())));
    assert_eq!(
        post(at, &format!("{path}?offset={}", half.len()), rest).0,
        200
    );
    let (status, error) = post(at, &format!("{path}?offset={}", bytes.len()), b"x");
    assert_eq!(status, 413, "{error}");
    assert_eq!(
        post(at, &format!("{path}/finish"), b"").1["state"],
        "stored"
    );

    // Bytes that changed on the way, a file that is none, and one that is too large.
    let mut changed = announced.clone();
    changed["build_id"] = "ff".into();
    changed["sha256"] = "0".repeat(64).into();
    let (_, started) = start(at, &changed);
    let path = format!(
        "/api/v1/debuginfo/uploads/{}",
        started["upload"].as_str().unwrap()
    );
    post(at, &path, &bytes);
    let (status, error) = post(at, &format!("{path}/finish"), b"");
    assert!(
        status == 422 && error["error"].as_str().unwrap().contains("SHA-256"),
        "{error}"
    );
    changed["size_bytes"] = (2 << 20).into();
    assert_eq!(start(at, &changed).0, 413);
    changed["sha256"] = "zz".into();
    assert_eq!(start(at, &changed).0, 400);
    let (status, error) = post(at, "/api/v1/debuginfo/wanted", b"{");
    assert!(
        status == 400 && error["error"].as_str().unwrap().contains("build_id"),
        "{error}"
    );
    server.stop();
}

/// Costs of names at read, printed: `PILOTLIGHT_MEASURE=1`, with --nocapture. The program is this test.
#[test]
fn naming_a_service_of_addresses() {
    let full = std::env::var_os("PILOTLIGHT_MEASURE").is_some();
    let folder = tempfile::tempdir().unwrap();
    let whole = if full {
        PathBuf::from("/proc/self/exe").canonicalize().unwrap()
    } else {
        build(folder.path(), SOURCE).whole
    };
    let stacks = if full { 20_000 } else { 50 };
    let server = Local::start(config(&folder.path().join("data")));
    let body = many_addresses(&whole, stacks, 30);
    let pushed = push(server.address, r#"{service_name="bare"}"#, &body);
    assert_eq!(pushed.status, 200);
    let ask = |service: &str| {
        let q = common::escape(&format!("{{service_name=\"{service}\"}}"));
        let path = format!("/api/v1/tree.json?type=cpu&{WINDOW}&q={q}&max_nodes=100");
        let since = Instant::now();
        let answer = get(server.address, &path).json();
        (since.elapsed(), answer["meta"]["unknown"].as_i64().unwrap())
    };
    let (bare_first, unknown) = ask("bare");
    assert!(unknown > 0);
    let (bare, _) = ask("bare");
    let since = Instant::now();
    upload(server.address, &whole);
    let most = if full { unknown / 2 } else { unknown - 1 };
    let named_first = std::cell::Cell::new(Duration::ZERO);
    wait_for("names", || {
        let (took, unknown) = ask("bare");
        named_first.set(took);
        unknown <= most
    });
    let arrived = since.elapsed();
    let (named, _) = ask("bare");
    // The same with the names in the profile, as if a merge had written them down.
    let path = format!(
        "/api/v1/pprof?type=cpu&{WINDOW}&q={}",
        common::escape("{service_name=\"bare\"}")
    );
    let resolved = get(server.address, &path).body;
    assert_eq!(
        push(server.address, r#"{service_name="written"}"#, &resolved).status,
        200
    );
    let (written_first, _) = ask("written");
    let (written, _) = ask("written");
    eprintln!(
        "addresses {bare_first:?} then {bare:?}; named first {:?} then {named:?} \
         (upload to names {arrived:?}); names stored {written_first:?} then {written:?}; \
         bytes pushed {} and {}",
        named_first.get(),
        body.len(),
        resolved.len()
    );
    server.stop();
}

/// Stacks of addresses all over the code of a program, drawn by a fixed rule.
fn many_addresses(path: &Path, stacks: u64, depth: u64) -> Vec<u8> {
    let object = Object::parse(std::fs::read(path).unwrap()).unwrap();
    let text = object.segments().iter().find(|s| s.executable).unwrap();
    let build_id = describe(path).unwrap().build_id;
    let page = text.file_offset & !0xfff;
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(T0, 10 * SECOND);
    let (file, build_id) = (out.string(b"/srv/bin/app"), out.string(build_id.as_bytes()));
    let start = 0x7f12_3456_0000;
    let mapping = out.mapping(Mapping {
        start,
        limit: start + (text.file_offset - page + text.file_size).next_multiple_of(4096),
        offset: page,
        file,
        build_id,
        ..Mapping::default()
    });
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..stacks {
        let mut path = Vec::new();
        for level in (0..depth).rev() {
            // Few callers near the root, many leaves.
            let at = draw(1 + level * level * 20) * 97 % text.file_size;
            let address = start + text.file_offset - page + at;
            path.push(out.location(Some(mapping), address, &[]));
        }
        let stack = out.stack(&path);
        out.sample(stack, LabelSetId(0), &[10_000_000]);
    }
    out.finish().to_pprof_gz()
}
