//! Any bytes: decoding must not panic and must stay inside its limits; what is decoded must survive
//! encoding, and merging with itself must double it.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pilotlight_profile::{
    Label, LabelValue, Limits, Mapping, Mode, Profile, ProfileBuilder, Tree, decode, merge,
    to_collapsed, top,
};

fuzz_target!(
    init: write_seeds(),
    |data: &[u8]| {
        let limits = Limits::default();
        for mode in [Mode::Strict, Mode::Tolerant] {
            if let Ok(decoded) = decode(data, mode, &limits) {
                check(&decoded.profile, mode);
            }
        }
    }
);

fn check(profile: &Profile, mode: Mode) {
    // What tolerant mode repaired is valid, too.
    let encoded = profile.to_pprof();
    let again = match decode(&encoded, Mode::Strict, &Limits::default()) {
        Ok(again) => again.profile,
        Err(error) => panic!("{mode:?}: what was decoded does not decode again: {error}"),
    };
    // Encoding drops labels whose text is an empty string other than string 0.
    let stable = decode(&again.to_pprof(), Mode::Strict, &Limits::default());
    assert_eq!(stable.map(|d| d.profile).as_ref(), Ok(&again));
    assert_eq!(profile.samples.values, again.samples.values);
    assert_eq!(profile.stacks, again.stacks);
    assert_eq!(profile.locations, again.locations);
    assert_eq!(profile.lines, again.lines);
    assert_eq!(profile.strings, again.strings);
    assert_eq!(profile.functions, again.functions);
    check_merge(profile);
    check_views(profile);
}

fn check_merge(profile: &Profile) {
    let doubled = merge(&[profile, profile]).expect("a profile fits itself");
    for column in 0..profile.sample_types.len() {
        let twice = profile.total(column).wrapping_mul(2);
        assert_eq!(doubled.total(column), twice);
    }
    let encoded = doubled.to_pprof();
    assert!(decode(&encoded, Mode::Strict, &Limits::default()).is_ok());
}

fn check_views(profile: &Profile) {
    let Some(column) = profile.value_index(None) else {
        return;
    };
    let tree = Tree::from_profile(profile, column);
    assert_eq!(tree.total(), profile.total(column));
    let rows = top(profile, column);
    let own = rows
        .iter()
        .fold(0, |sum: i64, row| sum.wrapping_add(row.self_value));
    let stackless = tree.nodes.self_value[0];
    assert_eq!(own.wrapping_add(stackless), profile.total(column));
    to_collapsed(profile, column, &mut std::io::sink()).expect("a sink takes everything");
}

/// Puts a few valid files where cargo-fuzz looks for its corpus.
fn write_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/decode");
    if std::fs::create_dir_all(&folder).is_err() {
        return;
    }
    for samples in [0, 1, 2, 30] {
        let profile = seed(samples);
        let _ = std::fs::write(folder.join(format!("seed-{samples}")), profile.to_pprof());
        let _ = std::fs::write(
            folder.join(format!("seed-{samples}.gz")),
            profile.to_pprof_gz(),
        );
    }
}

fn seed(samples: u64) -> Profile {
    let mut b = ProfileBuilder::new();
    b.sample_type("samples", "count");
    b.sample_type("cpu", "nanoseconds");
    b.period("cpu", "nanoseconds", 10_000_000);
    b.time(1_700_000_000_000_000_000, 10_000_000_000);
    b.comment("seed");
    let mapping = Mapping {
        start: 0x40_0000,
        limit: 0x50_0000,
        file: b.string(b"/bin/checkout"),
        build_id: b.string(b"aa11"),
        ..Mapping::default()
    };
    let mapping = b.mapping(mapping);
    let locations: Vec<_> = (0..samples)
        .map(|i| {
            let name = b.string(format!("function {i}").as_bytes());
            let file = b.string(b"main.rs");
            let function = b.function(name, name, file, 3);
            let lines = [(function, i as i64), (function, 9)];
            b.location(
                Some(mapping),
                0x40_0000 + i * 300,
                &lines[..1 + (i % 2) as usize],
            )
        })
        .collect();
    let (key, text) = (b.string(b"thread"), b.string(b"worker"));
    let unit = b.string(b"bytes");
    for i in 0..samples as usize {
        let value = match i % 2 {
            0 => LabelValue::Str(text),
            _ => LabelValue::Num { value: 64, unit },
        };
        let labels = b.label_set(&[Label { key, value }]);
        let stack = b.stack(&locations[i / 2..=i]);
        b.sample(stack, labels, &[1, 10_000_000]);
    }
    b.finish()
}
