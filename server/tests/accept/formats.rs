//! Every format of Pyroscope's `/ingest`, and what its parameters mean.

use std::io::Read as _;
use std::net::SocketAddr;

use pilotlight_profile::{Mode, decode};
use serde_json::Value;

use crate::common::{Local, SECOND, T0, WINDOW, config, escape, get, profile, try_request};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Whenever fixtures were made.
const ALWAYS: &str = "from=1767225000&until=2500000000";

fn ingest(address: SocketAddr, params: &str, content: &str, body: &[u8]) -> (u16, String) {
    let path = format!("/ingest?{params}");
    let headers = format!("Content-Type: {content}\r\n");
    let answer = try_request(address, "POST", &path, &headers, body).unwrap();
    (answer.status, answer.text())
}

fn times() -> String {
    let from = T0 / SECOND;
    format!("from={from}&until={}", from + 10)
}

/// Folded stacks of a selection.
fn folded(address: SocketAddr, window: &str, kind: &str, q: &str) -> Vec<(String, i64)> {
    let path = format!("/api/v1/tree.json?type={kind}&{window}&q={}", escape(q));
    let tree = get(address, &path).json();
    let list = |key: &str| tree[key].as_array().cloned().unwrap_or_default();
    let mut path: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let numbers = |key: &str| -> Vec<i64> { list(key).iter().filter_map(Value::as_i64).collect() };
    let names = list("names");
    let columns = numbers("depth").into_iter().zip(numbers("name"));
    for ((depth, name), own) in columns.zip(numbers("self")) {
        path.truncate(depth as usize);
        path.push(names[name as usize].as_str().unwrap().to_owned());
        if own != 0 {
            all.push((path[1..].join(";"), own));
        }
    }
    all.sort();
    all
}

fn stacks(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    let owned = expected
        .iter()
        .map(|&(stack, value)| (stack.to_owned(), value));
    owned.collect()
}

fn node(name: &str, value: u8, children: u8) -> Vec<u8> {
    let mut out = vec![name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.extend([value, children]);
    out
}

const SPEEDSCOPE: &str = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json",
 "shared":{"frames":[{"name":"main"},{"name":"leaf","file":"leaf.js","line":7}]},
 "profiles":[{"type":"UNIT","name":"x","unit":"milliseconds","startValue":0,"endValue":50,REST}]}"#;

fn speedscope(unit: &str, rest: &str) -> Vec<u8> {
    SPEEDSCOPE
        .replace("UNIT", unit)
        .replace("REST", rest)
        .into_bytes()
}

#[test]
fn every_format_of_pyroscopes_older_push_gives_the_same_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let tree = [node("", 0, 1), node("main", 2, 1), node("leaf", 3, 0)].concat();
    let trie = [node("", 0, 1), node("main", 2, 1), node(";leaf", 3, 0)].concat();
    let evented = r#""events":[{"type":"O","frame":0,"at":0},{"type":"O","frame":1,"at":10},
        {"type":"C","frame":1,"at":40},{"type":"C","frame":0,"at":50}]"#;
    let sampled = r#""samples":[[0],[0,1]],"weights":[20,30]"#;
    let pprof = profile(
        T0,
        &[(&["main"], 20_000_000), (&["main", "leaf"], 30_000_000)],
    );
    let binary = "application/octet-stream";
    let cases: [(&str, &str, &str, Vec<u8>); 11] = [
        ("groups", "", binary, b"main 2\nmain;leaf 3\n".to_vec()),
        (
            "folded",
            "format=folded",
            binary,
            b"main 2\nmain;leaf 3".to_vec(),
        ),
        (
            "lines",
            "format=lines",
            binary,
            b"main\nmain\nmain;leaf\nmain;leaf\nmain;leaf\n".to_vec(),
        ),
        ("tree", "format=tree", binary, tree.clone()),
        ("treetype", "", "binary/octet-stream+tree", tree),
        ("trie", "format=trie", binary, trie.clone()),
        ("trietype", "", "binary/octet-stream+trie", trie),
        (
            "evented",
            "format=speedscope",
            binary,
            speedscope("evented", evented),
        ),
        (
            "sampled",
            "format=speedscope",
            binary,
            speedscope("sampled", sampled),
        ),
        ("pprof", "format=pprof", binary, pprof.clone()),
        (
            "form",
            "",
            "multipart/form-data; boundary=xx",
            [
                b"--xx\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"p\"\r\n\r\n",
                &pprof[..],
                b"\r\n--xx--\r\n",
            ]
            .concat(),
        ),
    ];
    for (name, format, content, body) in cases {
        let params = format!(
            "name={}&{format}&{}&sampleRate=100",
            escape(&format!("{name}{{region=eu}}")),
            times()
        );
        assert_eq!(
            ingest(at, &params, content, &body),
            (200, String::new()),
            "{name}"
        );
        let q = format!("{{service_name=\"{name}\",region=\"eu\"}}");
        let expected = stacks(&[("main", 20_000_000), ("main;leaf", 30_000_000)]);
        assert_eq!(folded(at, WINDOW, CPU, &q), expected, "{name}");
        // A retry counts once.
        assert_eq!(ingest(at, &params, content, &body).0, 200);
        assert_eq!(folded(at, WINDOW, CPU, &q), expected, "{name}, twice");
    }
    server.stop();
}

#[test]
fn the_suffix_of_the_name_units_rate_and_spy_say_what_the_numbers_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let cases = [
        (
            "a.alloc_space",
            "units=bytes",
            "memory:alloc_space:bytes:space:bytes",
            7,
        ),
        (
            "a.inuse_objects",
            "units=objects&aggregationType=average",
            "memory:inuse_objects:count:space:bytes",
            7,
        ),
        (
            "a.wall",
            "sampleRate=20",
            "wall:wall:nanoseconds:wall:nanoseconds",
            350_000_000,
        ),
        ("a.itimer", "", CPU, 70_000_000),
        (
            "a.mutex_duration",
            "units=lock_nanoseconds",
            "mutex:delay:nanoseconds:mutex:count",
            7,
        ),
        (
            "a.block_count",
            "units=lock_samples",
            "block:contentions:count:block:count",
            7,
        ),
        (
            "a",
            "units=goroutines",
            "goroutines:goroutines:count:goroutines:count",
            7,
        ),
        (
            "a",
            "units=objects",
            "memory:alloc_objects:count:space:bytes",
            7,
        ),
    ];
    for (name, units, kind, value) in cases {
        let params = format!("name={name}&{units}&spyName=rbspy&{}", times());
        assert_eq!(
            ingest(at, &params, "text/plain", b"main 7\n"),
            (200, String::new())
        );
        let q = "{service_name=\"a\",pyroscope_spy=\"rbspy\"}";
        assert_eq!(
            folded(at, WINDOW, kind, q),
            stacks(&[("main", value)]),
            "{name} {units}"
        );
    }
    server.stop();
}

#[test]
fn what_is_not_of_its_format_is_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let cases: [(&str, &[u8], u16, &str); 9] = [
        (
            "name=a&format=tree",
            b"\x09a",
            422,
            "not a tree: the tree ends too early, at byte 1",
        ),
        (
            "name=a&format=trie",
            b"\x00\x00\x00!",
            422,
            "not a trie: 1 bytes after",
        ),
        (
            "name=a&format=speedscope",
            b"{}",
            422,
            "not a file of speedscope: missing field",
        ),
        (
            "name=a&format=jfr",
            b"FLX",
            422,
            "not a flight recording: it does not begin with FLR",
        ),
        (
            "name=a&format=jfr",
            b"FLR\0\0\x02\0\0\0\0\0\0\0\0\xff\xff",
            422,
            "a chunk of 65535 bytes in 16",
        ),
        ("name=a", b"main x", 422, "line 1 does not end in a number"),
        ("name=a&format=perf", b"main 1", 415, "none of pprof, jfr"),
        (
            "name=a&units=cows",
            b"main 1",
            400,
            "\\\"cows\\\" is none of samples",
        ),
        ("format=lines", b"main", 400, "parameter name is missing"),
    ];
    for (params, body, status, text) in cases {
        let answer = ingest(at, params, "", body);
        assert_eq!(answer.0, status, "{params}: {}", answer.1);
        assert!(answer.1.contains(text), "{params}: {}", answer.1);
    }
    server.stop();
}

fn fixture() -> Vec<u8> {
    let packed = std::fs::read("tests/fixtures/jfr/hot.jfr.gz").unwrap();
    let mut file = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut file)
        .unwrap();
    file
}

/// The same as `jfr print` says of the file.
#[test]
fn a_recording_of_the_jdk_becomes_a_profile_of_each_kind() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let file = fixture();
    let params = "name=java%7Bregion%3Deu%7D&format=jfr";
    assert_eq!(ingest(at, params, "", &file), (200, String::new()));
    let q = "{service_name=\"java\",region=\"eu\"}";
    let total = |kind: &str| -> i64 {
        folded(at, ALWAYS, kind, q)
            .iter()
            .map(|(_, value)| value)
            .sum()
    };
    // 89 samples; nothing says how far apart, so 10 ms.
    let cpu = folded(at, ALWAYS, CPU, q);
    assert_eq!(cpu, stacks(&[("Hot.main;Hot.burn;Hot.spin", 890_000_000)]));
    let memory = |name: &str| total(&format!("memory:{name}:space:bytes"));
    assert_eq!(memory("alloc_in_new_tlab_objects:count"), 239);
    assert_eq!(memory("alloc_in_new_tlab_bytes:bytes"), 83_373_816);
    assert_eq!(memory("alloc_outside_tlab_objects:count"), 20);
    assert_eq!(memory("alloc_outside_tlab_bytes:bytes"), 14_000_320);
    assert_eq!(total("mutex:contentions:count:mutex:count"), 10);
    let delay = total("mutex:delay:nanoseconds:mutex:count");
    assert!((delay - 885_594_057).abs() < 100, "{delay}");
    let parked = folded(at, ALWAYS, "block:delay:nanoseconds:block:count", q);
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert!((parked[0].1 - 150_455_869).abs() < 100, "{parked:?}");
    assert!(
        parked[0]
            .0
            .ends_with("LockSupport.parkNanos;jdk/internal/misc/Unsafe.park"),
        "{parked:?}"
    );
    let line = get(
        at,
        &format!("/api/v1/pprof?type={CPU}&{ALWAYS}&q={}", escape(q)),
    );
    let pprof = decode(&line.body, Mode::Strict, &Default::default())
        .unwrap()
        .profile;
    assert!(
        pprof.lines.iter().any(|line| line.line == 5),
        "Hot.spin stands in line 5"
    );
    // The sender's own rate holds, and the packed file is the same as the plain one.
    let packed = std::fs::read("tests/fixtures/jfr/hot.jfr.gz").unwrap();
    assert_eq!(
        ingest(at, "name=other&format=jfr&sampleRate=50", "", &packed).0,
        200
    );
    let cpu = folded(at, ALWAYS, CPU, "{service_name=\"other\"}");
    assert_eq!(cpu[0].1, 1_780_000_000);
    server.stop();
}

/// The same as async-profiler's own `jfrconv --collapsed`, with and without `--total`, says of the file.
#[test]
fn a_recording_of_async_profiler_has_the_sums_of_its_own_converter() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let file = std::fs::read("tests/fixtures/jfr/async-profiler.jfr.gz").unwrap();
    assert_eq!(ingest(at, "name=java&format=jfr", "", &file).0, 200);
    let q = "{service_name=\"java\"}";
    let of = |kind: &str| folded(at, ALWAYS, kind, q);
    let total = |kind: &str| of(kind).iter().map(|(_, value)| value).sum::<i64>();
    // 74 samples, 10 ms apart.
    let cpu = of(CPU);
    assert_eq!(total(CPU), 740_000_000);
    let spin = ("Hot.main;Hot.burn;Hot.spin".to_owned(), 720_000_000);
    assert!(cpu.contains(&spin), "{cpu:?}");
    // 1,338 samples, 50 ms apart.
    assert_eq!(
        total("wall:wall:nanoseconds:wall:nanoseconds"),
        66_900_000_000
    );
    let memory = |name: &str| total(&format!("memory:{name}:space:bytes"));
    assert_eq!(memory("alloc_in_new_tlab_objects:count"), 345);
    assert_eq!(memory("alloc_in_new_tlab_bytes:bytes"), 98_321_376);
    assert_eq!(total("mutex:contentions:count:mutex:count"), 8);
    let delay = total("mutex:delay:nanoseconds:mutex:count");
    assert!((delay - 879_057_594).abs() < 100, "{delay}");
    server.stop();
}

#[test]
fn damaged_recordings_are_refused_and_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    let file = fixture();
    for seed in 0..150_usize {
        let mut bytes = file.clone();
        for n in 0..1 + seed % 4 {
            let place = (seed * 7919 + n * 104_729) * 31 % bytes.len();
            bytes[place] ^= 1 << (seed % 8);
        }
        if seed % 3 == 0 {
            bytes.truncate(68 + seed * 700);
        }
        let (status, text) = ingest(at, &format!("name=broken{seed}&format=jfr"), "", &bytes);
        assert!(
            matches!(status, 200 | 422 | 413 | 400),
            "{seed}: {status} {text}"
        );
    }
    assert_eq!(ingest(at, "name=good&format=jfr", "", &file).0, 200);
    server.stop();
}
