//! Recordings as async-profiler writes them, made here.

use pilotlight_profile::{Limits, to_collapsed};
use prost::Message;

use super::super::kind;
use super::*;

/// Types are rows of (number, name, fields of (name, type, how)).
type Types<'a> = &'a [(i64, &'a str, &'a [(&'a str, i64, &'a str)])];

const TYPES: Types = &[
    (2, "long", &[]),
    (3, "int", &[]),
    (4, "java.lang.String", &[]),
    (5, "jdk.types.Symbol", &[("string", 4, "")]),
    (6, "java.lang.Class", &[("name", 5, "pool")]),
    (
        7,
        "jdk.types.Method",
        &[("type", 6, "pool"), ("name", 5, "pool")],
    ),
    (
        8,
        "jdk.types.StackFrame",
        &[("method", 7, "pool"), ("lineNumber", 3, "")],
    ),
    (9, "jdk.types.StackTrace", &[("frames", 8, "list")]),
    (10, "jdk.types.ThreadState", &[("name", 4, "")]),
    (
        20,
        "jdk.ExecutionSample",
        &[
            ("startTime", 2, ""),
            ("stackTrace", 9, "pool"),
            ("state", 10, "pool"),
            ("contextId", 2, ""),
        ],
    ),
    (
        21,
        "profiler.WallClockSample",
        &[
            ("startTime", 2, ""),
            ("stackTrace", 9, "pool"),
            ("state", 10, "pool"),
            ("samples", 3, ""),
        ],
    ),
    (
        22,
        "profiler.LiveObject",
        &[
            ("startTime", 2, ""),
            ("stackTrace", 9, "pool"),
            ("allocationSize", 2, ""),
        ],
    ),
    (
        23,
        "jdk.ActiveSetting",
        &[("id", 2, ""), ("name", 4, ""), ("value", 4, "")],
    ),
];

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(3);
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn event(ty: u64, body: &[u8]) -> Vec<u8> {
    let mut inner = Vec::new();
    number(&mut inner, ty);
    inner.extend_from_slice(body);
    // async-profiler reserves the same bytes for all sizes.
    let size = inner.len() as u64 + 4;
    let padded = [
        size as u8 | 0x80,
        (size >> 7) as u8 | 0x80,
        (size >> 14) as u8 | 0x80,
        0,
    ];
    [&padded[..], &inner].concat()
}

fn numbers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|&value| number(&mut out, value));
    out
}

struct Texts(Vec<String>);

impl Texts {
    fn of(&mut self, text: &str) -> u64 {
        let known = self.0.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        }) as u64
    }

    fn element(&mut self, name: &str, said: &[(&str, &str)], children: u64) -> Vec<u8> {
        let mut out = numbers(&[self.of(name), said.len() as u64]);
        for (key, value) in said {
            out.extend(numbers(&[self.of(key), self.of(value)]));
        }
        number(&mut out, children);
        out
    }
}

fn described(types: Types) -> Vec<u8> {
    let mut texts = Texts(Vec::new());
    let mut tree = texts.element("root", &[], 1);
    tree.extend(texts.element("metadata", &[], types.len() as u64));
    for (id, name, fields) in types {
        let said = [("id", &*id.to_string()), ("name", name)];
        tree.extend(texts.element("class", &said, fields.len() as u64));
        for (name, ty, how) in *fields {
            let ty = ty.to_string();
            let mut said = vec![("name", *name), ("class", &*ty)];
            match *how {
                "pool" => said.push(("constantPool", "true")),
                "list" => said.push(("dimension", "1")),
                _ => {}
            }
            tree.extend(texts.element("field", &said, 0));
        }
    }
    let mut body = numbers(&[1, 1, 1, texts.0.len() as u64]);
    texts.0.iter().for_each(|word| text(&mut body, word));
    body.extend(tree);
    event(0, &body)
}

/// Stacks 1 (`app/Main.run`, called by `[kernel]`) and 2 (`app/Main.run` alone).
fn pools() -> Vec<u8> {
    let mut body = numbers(&[1, 1, 0]);
    body.push(1);
    number(&mut body, 5);
    body.extend(numbers(&[5, 3]));
    for (at, name) in ["", "app/Main", "run"].iter().enumerate() {
        number(&mut body, at as u64);
        text(&mut body, name);
    }
    // Class 0 has no name: native code.
    body.extend(numbers(&[6, 2, 0, 0, 1, 1]));
    body.extend(numbers(&[7, 2, 1, 1, 2, 2, 0, 1]));
    body.extend(numbers(&[9, 2, 1, 2, 1, 12, 2, 0, 2, 1, 1, 12]));
    body.extend(numbers(&[10, 2, 1]));
    text(&mut body, "STATE_RUNNABLE");
    number(&mut body, 2);
    text(&mut body, "STATE_SLEEPING");
    event(1, &body)
}

fn chunk(types: Types, events: &[Vec<u8>]) -> Vec<u8> {
    let events = events.concat();
    let (types, pools) = (described(types), pools());
    let types_at = 68 + events.len() as u64;
    let pools_at = types_at + types.len() as u64;
    let size = pools_at + pools.len() as u64;
    let mut out = b"FLR\0\0\x02\0\0".to_vec();
    for word in [
        size,
        pools_at,
        types_at,
        5_000_000_000,
        10_000_000_000,
        0,
        1_000_000_000,
    ] {
        out.extend(word.to_be_bytes());
    }
    out.extend(1_u32.to_be_bytes());
    [&out[..], &events, &types, &pools].concat()
}

fn setting(of: u64, name: &str, value: &str) -> Vec<u8> {
    let mut body = numbers(&[of]);
    text(&mut body, name);
    text(&mut body, value);
    event(23, &body)
}

fn stacks(profile: &Profile, value: usize) -> String {
    let mut out = Vec::new();
    to_collapsed(profile, value, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(file: &[u8], labels: &Labels) -> Vec<(Kind, Profile)> {
    profiles(file, None, labels, &Limits::default()).unwrap()
}

#[test]
fn samples_of_the_core_of_the_clock_and_live_objects() {
    let file = chunk(
        TYPES,
        &[
            setting(20, "interval", "5000000"),
            event(20, &numbers(&[1, 1, 1, 0])),
            event(20, &numbers(&[2, 2, 1, 0])),
            // Asleep: no time on a core.
            event(20, &numbers(&[3, 2, 2, 0])),
            // Four equal samples in one event.
            event(21, &numbers(&[4, 2, 2, 4])),
            event(22, &numbers(&[5, 1, 4096])),
        ],
    );
    // Two chunks in one file.
    let made = read(&[&file[..], &file].concat(), &Labels::default());
    let kinds: Vec<_> = made.iter().map(|(kind, _)| kind.value.0).collect();
    assert_eq!(
        kinds,
        [["cpu", "wall", "live_objects", "live_bytes"]; 2].concat()
    );
    let (_, cpu) = &made[0];
    assert_eq!(
        (cpu.time_ns, cpu.duration_ns),
        (5_000_000_000, 10_000_000_000)
    );
    assert_eq!(
        stacks(cpu, 1),
        "app/Main;app/Main.run 5000000\napp/Main.run 5000000\n"
    );
    assert_eq!(stacks(&made[1].1, 0), "app/Main.run 4\n");
    assert_eq!(made[3].1.total(0), 4096);
}

#[test]
fn by_the_clock_when_the_profiler_was_started_so() {
    let samples = [
        setting(20, "event", "wall"),
        event(20, &numbers(&[1, 2, 1, 0])),
        event(20, &numbers(&[2, 2, 2, 0])),
    ];
    let made = read(&chunk(TYPES, &samples), &Labels::default());
    assert_eq!([made[0].0, made[1].0], [kind::WALL, kind::CPU]);
    assert_eq!([made[0].1.total(0), made[1].1.total(0)], [2, 1]);
}

#[test]
fn a_context_is_the_labels_that_come_beside() {
    // contexts {7: {1: 2}}, strings {1: "endpoint", 2: "/buy"}
    let beside = b"\x0a\x0a\x08\x07\x12\x06\x0a\x04\x08\x01\x10\x02\
        \x12\x0c\x08\x01\x12\x08endpoint\x12\x08\x08\x02\x12\x04/buy";
    let labels = Labels::decode(&beside[..]).unwrap();
    assert_eq!(labels.of(7), [("endpoint", "/buy")]);
    let samples = [
        event(20, &numbers(&[1, 2, 1, 7])),
        event(20, &numbers(&[2, 2, 1, 0])),
    ];
    let made = read(&chunk(TYPES, &samples), &labels);
    let profile = &made[0].1;
    assert_eq!(profile.samples.len(), 2);
    let label = profile.sample(0).labels[0];
    assert_eq!(profile.strings.get(label.key), b"endpoint");
}

#[test]
fn types_that_hold_themselves_and_pools_that_go_round_end() {
    let endless: Types = &[
        (4, "java.lang.String", &[]),
        (20, "jdk.ExecutionSample", &[("a", 20, ""), ("b", 20, "")]),
    ];
    let file = chunk(endless, &[event(20, &[])]);
    let error = profiles(&file, None, &Labels::default(), &Limits::default()).unwrap_err();
    assert!(error.contains("type 5 is not described"), "{error}");
    let nothing: Vec<_> = TYPES
        .iter()
        .map(|&(id, name, fields)| match id {
            20 => (20, name, &[("a", 20, ""), ("b", 20, "")][..]),
            _ => (id, name, fields),
        })
        .collect();
    let file = chunk(&nothing, &[event(20, &[])]);
    let error = profiles(&file, None, &Labels::default(), &Limits::default()).unwrap_err();
    assert!(
        error.contains("types within types without an end"),
        "{error}"
    );
}
