//! Profiles made by code: the same checks as on the corpus, without the corpus.
#![allow(dead_code, reason = "each test binary uses a part")]

use pilotlight_profile::{
    Label, LabelValue, Line, LocationId, Mapping, MappingId, Profile, ProfileBuilder, StrId,
};

/// SplitMix64: small, and the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

const NAMES: &[&[u8]] = &[
    b"main",
    b"core::fmt::write",
    b"runtime.mallocgc",
    b"std::vec::Vec<T>::push",
    b"operator new(unsigned long)",
    b"x",
    b"caf\xe9",
    b"\xff\xfe",
    b"",
];

/// A valid profile with a bit of everything. The strings of small pools repeat, so that merging
/// has something to merge. `types` is the number of value columns.
pub fn profile(rng: &mut Rng, types: usize) -> Profile {
    let mut b = ProfileBuilder::new();
    for (ty, unit) in [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
        ("space", "bytes"),
    ]
    .iter()
    .take(types)
    {
        b.sample_type(ty, unit);
    }
    b.period("cpu", "nanoseconds", 10_000_000 + rng.below(3) as i64);
    b.time(
        1_700_000_000_000_000_000 + rng.below(1 << 40) as i64,
        rng.below(1 << 35) as i64,
    );
    for _ in 0..rng.below(3) {
        let comment = rng.pick(&["one", "two", "three"]);
        b.comment(comment);
    }
    if rng.chance(30) {
        b.default_sample_type("samples");
        b.doc_url("https://example.test/doc");
    }
    let mappings = mappings(&mut b, rng);
    let locations = locations(&mut b, rng, &mappings);
    for _ in 0..rng.below(60) {
        sample(&mut b, rng, &locations, types);
    }
    b.finish()
}

fn mappings(b: &mut ProfileBuilder, rng: &mut Rng) -> Vec<MappingId> {
    let count = rng.below(4);
    (0..count)
        .map(|i| {
            let start = (0x40_0000 + rng.below(8) * 0x1000) << (8 * i);
            let build_id = [&b""[..], b"aa11", b"bb22"][rng.below(3) as usize];
            let file =
                [&b""[..], b"/bin/checkout", b"/lib/libc.so.6", b"[vdso]"][rng.below(4) as usize];
            let mapping = Mapping {
                start,
                limit: start + 0x8000 + rng.below(0x2000),
                offset: rng.below(2) * 0x1000,
                file: b.string(file),
                build_id: b.string(build_id),
                has_functions: rng.chance(50),
                has_filenames: rng.chance(20),
                has_line_numbers: rng.chance(20),
                has_inline_frames: rng.chance(20),
            };
            b.mapping(mapping)
        })
        .collect()
}

fn locations(b: &mut ProfileBuilder, rng: &mut Rng, mappings: &[MappingId]) -> Vec<LocationId> {
    (0..1 + rng.below(30))
        .map(|_| {
            let mapping = (!mappings.is_empty() && rng.chance(80)).then(|| rng.pick(mappings));
            let address = match rng.below(10) {
                0 => 0,
                1 => rng.next(),
                _ => 0x40_1000 + rng.below(64) * 4,
            };
            let count = rng.below(4);
            let lines: Vec<Line> = (0..count)
                .map(|i| {
                    let name = b.string(NAMES[rng.below(NAMES.len() as u64) as usize]);
                    let system_name = if rng.chance(20) {
                        b.string(b"_ZN1xE")
                    } else {
                        name
                    };
                    let filename =
                        b.string([&b"src/main.rs"[..], b"a.go", b""][rng.below(3) as usize]);
                    let start_line = rng.below(3) as i64;
                    Line {
                        function: b.function(name, system_name, filename, start_line),
                        line: rng.below(100) as i64,
                        // Go's reader of 2025 loses other columns when it merges.
                        column: if i + 1 == count {
                            rng.below(3) as i64
                        } else {
                            0
                        },
                    }
                })
                .collect();
            let is_folded = rng.chance(5);
            b.location_with(mapping, address, lines.into_iter(), is_folded)
        })
        .collect()
}

fn sample(b: &mut ProfileBuilder, rng: &mut Rng, locations: &[LocationId], types: usize) {
    let depth = if rng.chance(5) { 0 } else { rng.below(12) };
    let stack: Vec<LocationId> = (0..depth).map(|_| rng.pick(locations)).collect();
    let stack = b.stack(&stack);
    let count = if rng.chance(60) { 0 } else { rng.below(4) };
    let labels: Vec<Label> = (0..count).map(|_| label(b, rng)).collect();
    let labels = b.label_set(&labels);
    let values: Vec<i64> = (0..types)
        .map(|_| match rng.below(10) {
            0 => 0,
            1 => -(rng.below(1000) as i64),
            2 => rng.below(1 << 50) as i64,
            _ => rng.below(1000) as i64,
        })
        .collect();
    b.sample(stack, labels, &values);
}

fn label(b: &mut ProfileBuilder, rng: &mut Rng) -> Label {
    let key = b.string([&b"thread"[..], b"bytes", b"k\xff"][rng.below(3) as usize]);
    let value = if rng.chance(50) {
        LabelValue::Str(b.string([&b"worker-1"[..], b"worker-2", b"\xfe"][rng.below(3) as usize]))
    } else {
        LabelValue::Num {
            value: 1 + rng.below(4) as i64 * 512,
            unit: if rng.chance(50) {
                b.string(b"bytes")
            } else {
                StrId::EMPTY
            },
        }
    };
    Label { key, value }
}

/// Everything that two equal profiles have in common, whatever the order of their tables: sorted
/// samples with frames and labels written out.
pub fn canonical(profile: &Profile) -> Vec<String> {
    let mut samples: Vec<String> = profile
        .iter_samples()
        .map(|sample| {
            let stack = sample
                .stack
                .iter()
                .map(|&l| location_text(profile, l as usize));
            let stack = stack.collect::<Vec<_>>().join(" < ");
            let mut labels: Vec<(Vec<u8>, String)> = sample
                .labels
                .iter()
                .map(|label| {
                    let key = profile.strings.get(label.key).to_vec();
                    let value = match label.value {
                        LabelValue::Str(text) => format!("text {:?}", profile.strings.get(text)),
                        LabelValue::Num { value, unit } => {
                            format!("{value} {:?}", profile.strings.get(unit))
                        }
                    };
                    (key, value)
                })
                .collect();
            labels.sort_by(|a, b| {
                (&a.0, a.1.starts_with("text")).cmp(&(&b.0, b.1.starts_with("text")))
            });
            format!("{:?} {stack} {labels:?}", sample.values)
        })
        .collect();
    samples.sort();
    samples
}

fn location_text(profile: &Profile, index: usize) -> String {
    let location = profile.location(index);
    let mapping = location.mapping.map(|m| profile.mappings[m.index()]);
    let mapping_text = mapping.map(|m| {
        let name = match profile.strings.get(m.build_id) {
            [] => profile.strings.get(m.file),
            build_id => build_id,
        };
        format!("{:?}+{:#x}", name, m.offset)
    });
    let address = location
        .address
        .wrapping_sub(mapping.map_or(0, |m| m.start));
    let lines: Vec<String> = location
        .lines
        .iter()
        .map(|line| {
            let f = profile.functions[line.function.index()];
            let text = |id| profile.strings.get(id);
            let names = (text(f.name), text(f.system_name), text(f.filename));
            format!("{names:?}{}:{}:{}", f.start_line, line.line, line.column)
        })
        .collect();
    format!(
        "{mapping_text:?}{address:#x}{lines:?}{}",
        location.is_folded
    )
}

/// A valid file in the odd forms that the wire format allows: sparse or huge ids, unpacked and
/// mixed lists, tables in any order, unknown fields in between.
pub fn odd_wire(rng: &mut Rng) -> Vec<u8> {
    let spread = |rng: &mut Rng, i: u64| -> u64 { rng.below(1 << 20) + (i << 20) };
    let style = rng.below(4);
    let id_of = |i: u64, rng: &mut Rng| match style {
        0 => i + 1,
        1 => 1000 - i,
        2 => spread(rng, i + 1),
        _ => u64::MAX - i * 12_345,
    };
    let functions: Vec<u64> = (0..10).map(|i| id_of(i, rng)).collect();
    let locations: Vec<u64> = (0..20).map(|i| id_of(i, rng)).collect();
    let mappings: Vec<u64> = (0..3).map(|i| id_of(i, rng)).collect();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for &id in &mappings {
        let mut body = number(1, id);
        body.extend(number(2, id << 12));
        body.extend(number(3, (id << 12) + 0x1000));
        body.extend(number(5, rng.below(6)));
        parts.push(bytes(3, &body));
    }
    for &id in &locations {
        let mut body = number(1, id);
        body.extend(number(2, rng.pick(&mappings)));
        body.extend(number(3, rng.next() >> rng.below(60)));
        for _ in 0..rng.below(3) {
            let function = rng.pick(&functions);
            body.extend(bytes(
                4,
                &[number(1, function), number(2, rng.below(500))].concat(),
            ));
        }
        parts.push(bytes(4, &body));
    }
    for &id in &functions {
        let fields = [
            number(2, rng.below(6)),
            number(4, rng.below(6)),
            number(1, id),
        ];
        parts.push(bytes(5, &fields.concat()));
    }
    for _ in 0..rng.below(50) {
        parts.push(bytes(2, &odd_sample(rng, &locations)));
    }
    for _ in 0..rng.below(5) {
        parts.push(number(99 + rng.below(1 << 40), rng.next()));
        parts.push(bytes(200, b"unknown"));
    }
    for i in (1..parts.len()).rev() {
        parts.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let strings = [
        &b""[..],
        b"cpu",
        b"nanoseconds",
        b"main",
        b"caf\xe9",
        b"worker",
    ];
    let table = strings
        .iter()
        .map(|s| bytes(6, s))
        .collect::<Vec<_>>()
        .concat();
    parts.insert(rng.below(parts.len() as u64 + 1) as usize, table);
    parts.push(bytes(1, &[number(1, 1), number(2, 2)].concat()));
    parts.push(number(9, rng.next()));
    parts.concat()
}

fn odd_sample(rng: &mut Rng, locations: &[u64]) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..rng.below(4) {
        let ids: Vec<u64> = (0..rng.below(6)).map(|_| rng.pick(locations)).collect();
        if rng.chance(50) {
            body.extend(bytes(
                1,
                &ids.iter().flat_map(|&id| varint(id)).collect::<Vec<_>>(),
            ));
        } else {
            body.extend(ids.iter().flat_map(|&id| number(1, id)));
        }
    }
    for _ in 0..rng.below(3) {
        let value = if rng.chance(50) {
            number(2, rng.below(6))
        } else {
            number(3, rng.below(99))
        };
        body.extend(bytes(
            3,
            &[value, number(4, rng.below(3)), number(1, 3)].concat(),
        ));
    }
    let value = rng.next() >> rng.below(64);
    body.extend(if rng.chance(50) {
        number(2, value)
    } else {
        bytes(2, &varint(value))
    });
    body
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

pub fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

pub fn bytes(field: u64, body: &[u8]) -> Vec<u8> {
    [
        varint(field << 3 | 2),
        varint(body.len() as u64),
        body.to_vec(),
    ]
    .concat()
}
