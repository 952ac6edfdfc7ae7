//! Every limit stops what it is about, and says so; compression in all its forms.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use std::io::Write;

use common::generate::{Rng, bytes, number, profile as random_profile};
use pilotlight_profile::{DecodeError, Limits, Mode, Profile, decode};

fn example() -> Profile {
    let mut rng = Rng::new(42);
    loop {
        let p = random_profile(&mut rng, 2);
        let has_all = p.samples.len() > 20
            && p.mappings.len() > 1
            && p.comments.len() > 1
            && p.label_sets.labels.len() > 1;
        if has_all {
            return p;
        }
    }
}

/// Lowers one limit below what the example has; decoding must fail with its name.
fn assert_limited(what: &str, lower: impl Fn(&mut Limits)) {
    let mut limits = Limits::default();
    lower(&mut limits);
    for mode in [Mode::Strict, Mode::Tolerant] {
        match decode(&example().to_pprof(), mode, &limits) {
            Err(error @ DecodeError::Limit { .. }) => {
                let text = error.to_string();
                assert!(text.contains(&format!("the limit {what} = ")), "{text}");
                assert!(text.contains(&format!("raise `Limits::{what}`")), "{text}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn each_limit_stops_what_it_is_about() {
    let p = example();
    let depth = p.iter_samples().map(|s| s.stack.len()).max().unwrap() as u64;
    let frames = p.iter_samples().map(|s| s.stack.len() as u64).sum::<u64>();
    let labels = p.iter_samples().map(|s| s.labels.len() as u64).sum::<u64>();
    let size = p.to_pprof().len() as u64;
    assert_limited("wire_bytes", |l| l.wire_bytes = size - 1);
    assert_limited("inflated_bytes", |l| l.inflated_bytes = size - 1);
    assert_limited("samples", |l| l.samples = p.samples.len() as u64 - 1);
    assert_limited("sample_types", |l| l.sample_types = 1);
    assert_limited("values", |l| l.values = p.samples.len() as u64 * 2 - 1);
    assert_limited("stack_frames", |l| l.stack_frames = frames - 1);
    let lines = |&location: &u32| p.location(location as usize).lines.len().max(1) as u64;
    let inlined = p
        .iter_samples()
        .flat_map(|s| s.stack)
        .map(lines)
        .sum::<u64>();
    assert_limited("inlined_frames", |l| l.inlined_frames = inlined - 1);
    assert_limited("stack_depth", |l| l.stack_depth = depth - 1);
    assert_limited("labels", |l| l.labels = labels / 4);
    assert_limited("mappings", |l| l.mappings = p.mappings.len() as u64 - 1);
    assert_limited("functions", |l| l.functions = p.functions.len() as u64 - 1);
    assert_limited("locations", |l| l.locations = p.locations.len() as u64 - 1);
    assert_limited("lines", |l| l.lines = p.lines.len() as u64 - 1);
    assert_limited("strings", |l| l.strings = p.strings.len() as u64 - 1);
    assert_limited("comments", |l| l.comments = p.comments.len() as u64 - 1);
}

#[test]
fn exact_limits_are_enough() {
    let p = example();
    let mut limits = Limits::default();
    let lines = |&location: &u32| p.location(location as usize).lines.len().max(1) as u64;
    limits.inlined_frames = p.iter_samples().flat_map(|s| s.stack).map(lines).sum();
    limits.wire_bytes = p.to_pprof().len() as u64;
    limits.inflated_bytes = limits.wire_bytes;
    limits.samples = p.samples.len() as u64;
    limits.sample_types = 2;
    limits.values = limits.samples * 2;
    limits.mappings = p.mappings.len() as u64;
    limits.functions = p.functions.len() as u64;
    limits.locations = p.locations.len() as u64;
    limits.lines = p.lines.len() as u64;
    limits.strings = p.strings.len() as u64;
    limits.comments = p.comments.len() as u64;
    assert!(decode(&p.to_pprof(), Mode::Strict, &limits).is_ok());
    assert!(decode(&p.to_pprof_gz(), Mode::Strict, &limits).is_ok());
}

#[test]
fn many_different_huge_ids_are_limited_too() {
    let ids: Vec<u8> = (0..100).flat_map(|i| number(1, u64::MAX - i)).collect();
    let raw = [bytes(1, b""), bytes(6, b""), bytes(2, &ids)].concat();
    let mut limits = Limits::default();
    limits.locations = 50;
    let refused = decode(&raw, Mode::Tolerant, &limits);
    assert!(matches!(
        refused,
        Err(DecodeError::Limit {
            what: "locations",
            ..
        })
    ));
}

#[test]
fn gzip_of_several_members_is_read_to_the_end() {
    let raw = example().to_pprof();
    let (head, tail) = raw.split_at(raw.len() / 3);
    let wire = [gzip(head), gzip(b""), gzip(tail)].concat();
    let whole = decode(&raw, Mode::Strict, &Limits::default());
    assert_eq!(decode(&wire, Mode::Strict, &Limits::default()), whole);
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(raw).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn cut_or_damaged_gzip_is_an_error_that_says_so() {
    let whole = example().to_pprof_gz();
    for cut in [3, 10, whole.len() / 2, whole.len() - 1] {
        let error = decode(&whole[..cut], Mode::Tolerant, &Limits::default()).unwrap_err();
        let is_damage = matches!(error, DecodeError::Decompress { format: "gzip", .. });
        assert!(is_damage, "{cut}: {error}");
    }
    let mut damaged = whole.clone();
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    let error = decode(&damaged, Mode::Tolerant, &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("fetch it again"), "{error}");
    let junk = [whole, b"junk behind the last member".to_vec()].concat();
    assert!(decode(&junk, Mode::Strict, &Limits::default()).is_err());
}

#[test]
fn nothing_inside_and_nothing_at_all_are_empty() {
    for empty in [Vec::new(), gzip(b"")] {
        let error = decode(&empty, Mode::Tolerant, &Limits::default()).unwrap_err();
        assert_eq!(error, DecodeError::Empty);
    }
}

#[test]
fn keep_alive_blocks_before_the_data_are_read_over() {
    // What a server sends while it still profiles: the gzip header, then empty stored blocks.
    let raw = example().to_pprof();
    let gz = gzip(&raw);
    let (header, body) = gz.split_at(10);
    let wire = [header, &[0, 0, 0, 0xff, 0xff].repeat(30), body].concat();
    assert!(decode(&wire, Mode::Strict, &Limits::default()).is_ok());
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_is_read_with_the_same_limits() {
    let raw = example().to_pprof();
    let wire = zstd::encode_all(&raw[..], 3).unwrap();
    let whole = decode(&raw, Mode::Strict, &Limits::default());
    assert_eq!(decode(&wire, Mode::Strict, &Limits::default()), whole);
    let mut limits = Limits::default();
    limits.inflated_bytes = raw.len() as u64 - 1;
    let refused = decode(&wire, Mode::Strict, &limits);
    assert!(matches!(
        refused,
        Err(DecodeError::Limit {
            what: "inflated_bytes",
            ..
        })
    ));
    let cut = decode(&wire[..wire.len() / 2], Mode::Strict, &Limits::default());
    assert!(matches!(
        cut,
        Err(DecodeError::Decompress { format: "zstd", .. })
    ));
}

#[cfg(not(feature = "zstd"))]
#[test]
fn zstd_is_refused_with_the_feature_to_switch_on() {
    let refused = decode(
        &[0x28, 0xb5, 0x2f, 0xfd, 0],
        Mode::Strict,
        &Limits::default(),
    );
    assert_eq!(refused, Err(DecodeError::NotBuiltIn { feature: "zstd" }));
}

#[test]
fn dense_compression_of_small_profiles_is_no_bomb() {
    // 900 kB that deflate a thousandfold: below `ratio_free_bytes`.
    let many = bytes(2, b"").repeat(450_000);
    let raw = [bytes(6, b""), many].concat();
    let refused = decode(&gzip(&raw), Mode::Tolerant, &Limits::default());
    assert!(
        matches!(refused, Err(DecodeError::Invalid { .. })),
        "{refused:?}"
    );
}
