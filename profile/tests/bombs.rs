//! Small files that inflate to enormous ones: an error, in little memory.
//!
//! google/pprof needs 9 GB for these. Peak memory is measured in a child process per bomb, since
//! the high-water mark of a process never falls.
#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::generate::bytes;
use common::go::Scratch;
use pilotlight_profile::{DecodeError, Limits, Mode, decode};

const BOMB: &str = "PILOTLIGHT_TEST_BOMB";
const MAX_GROWTH_KB: u64 = 32 << 10;

/// Not a test of its own: does nothing unless a test below starts it with a bomb.
#[test]
fn child_decodes_one_bomb() {
    let Some(path) = std::env::var_os(BOMB) else {
        return;
    };
    let bytes = std::fs::read(path).unwrap();
    for mode in [Mode::Strict, Mode::Tolerant] {
        let before = memory_kb("VmRSS:");
        let refused = decode(&bytes, mode, &Limits::default());
        let growth = memory_kb("VmHWM:").saturating_sub(before);
        let is_limit = matches!(
            refused,
            Err(DecodeError::InflationRatio { .. } | DecodeError::Limit { .. })
        );
        assert!(is_limit, "{:?}", refused.map(|d| d.profile.samples.len()));
        println!("{mode:?}: peak growth {growth} kB");
        assert!(growth <= MAX_GROWTH_KB, "grew by {growth} kB");
    }
}

fn memory_kb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn check(bomb: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_decodes_one_bomb", "--nocapture"])
        .env(BOMB, bomb)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("peak growth"), "{text}");
    assert!(output.status.success(), "{}: {text}", bomb.display());
}

#[test]
fn bombs_of_the_corpus_are_refused_within_32_mb() {
    let Some(corpus) = common::corpus() else {
        return common::skip("no corpus");
    };
    let bombs = common::files_below(&corpus.join("bombs"));
    assert_eq!(bombs.len(), 4);
    bombs.iter().for_each(|bomb| check(bomb));
}

/// `unit` again and again, `total` bytes in all, behind a valid beginning.
fn repeated(unit: &[u8], total: usize) -> Vec<u8> {
    let mut raw = bytes(6, b"");
    let block = unit.repeat((1 << 16) / unit.len());
    while raw.len() < total {
        raw.extend_from_slice(&block);
    }
    raw
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(raw).unwrap();
    gzip.finish().unwrap()
}

const UNITS: [(&str, &[u8]); 5] = [
    ("empty strings", &[6 << 3 | 2, 0]),
    ("empty samples", &[2 << 3 | 2, 0]),
    ("empty locations", &[4 << 3 | 2, 0]),
    ("empty functions", &[5 << 3 | 2, 0]),
    ("zeros", &[0, 0]),
];

#[test]
fn generated_bombs_are_refused_within_32_mb() {
    let scratch = Scratch::new("bombs");
    for (name, unit) in UNITS {
        let bomb = gzip(&repeated(unit, 64 << 20));
        check(Path::new(&scratch.put(name, &bomb)));
    }
}

#[test]
fn uncompressed_floods_of_entries_are_refused_within_32_mb() {
    let scratch = Scratch::new("floods");
    for (name, unit) in &UNITS[..4] {
        let flood = repeated(unit, 15 << 20);
        check(Path::new(&scratch.put(name, &flood)));
    }
    // One sample with millions of frames, packed and not.
    let packed = bytes(2, &bytes(1, &vec![1; 8 << 20]));
    let unpacked = bytes(2, &[1 << 3, 1].repeat(4 << 20));
    let values = bytes(2, &bytes(2, &vec![1; 8 << 20]));
    let line = bytes(4, &[4 << 3 | 2, 0].repeat(4 << 20));
    for (i, flood) in [packed, unpacked, values, line].into_iter().enumerate() {
        check(Path::new(&scratch.put(&format!("sample {i}"), &flood)));
    }
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_bombs_are_refused_within_32_mb() {
    let scratch = Scratch::new("zstd-bombs");
    for (name, unit) in UNITS {
        let bomb = zstd::encode_all(&repeated(unit, 64 << 20)[..], 19).unwrap();
        check(Path::new(&scratch.put(name, &bomb)));
    }
}
