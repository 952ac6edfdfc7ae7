//! Bytes and nanoseconds a sample of block layouts, on a folder that `loadgen` made.
//!
//! `layouts FOLDER`: `corpus.bin` and `manifest.jsonl` of `loadgen`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool for measuring"
)]

use std::path::PathBuf;

use parquet::basic::Encoding;
use pilotlight_profile::{Limits, Mode, decode};
use pilotlight_server::block::{self, Layout, Rows};
use pilotlight_server::segment::{Pushed, SegmentBuilder};
use serde_json::Value;

fn main() {
    let folder: PathBuf = std::env::args_os().nth(1).expect("a folder").into();
    let corpus = std::fs::read(folder.join("corpus.bin")).unwrap();
    let meta: Value =
        serde_json::from_slice(&std::fs::read(folder.join("meta.json")).unwrap()).unwrap();
    let mut builder = SegmentBuilder::default();
    for line in std::fs::read_to_string(folder.join("manifest.jsonl"))
        .unwrap()
        .lines()
    {
        let record: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| record[key].as_u64().unwrap() as usize;
        let labels = meta["series"][number("s")]["labels"].as_object().unwrap();
        let labels = labels
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()));
        let (from, len) = (number("off"), number("len"));
        let profile = decode(
            &corpus[from..from + len],
            Mode::Tolerant,
            &Limits::default(),
        )
        .unwrap()
        .profile;
        let pushed = Pushed {
            labels: labels.collect(),
            name: "process_cpu".to_owned(),
            time_ns: number("t") as i64,
            duration_ns: 10_000_000_000,
            id: 0,
        };
        builder.add_profile(&profile, &pushed);
    }
    let parts = builder.finish();
    let samples: u64 = parts.iter().map(|(header, _)| header.samples).sum();
    println!("{} services, {samples} samples", parts.len());
    let base = Layout::default();
    let dictionary = Encoding::RLE_DICTIONARY;
    let split = Encoding::BYTE_STREAM_SPLIT;
    let delta = Encoding::DELTA_BINARY_PACKED;
    for (name, layout) in [
        ("default", base),
        ("zstd 1", Layout { level: 1, ..base }),
        ("zstd 9", Layout { level: 9, ..base }),
        (
            "pages of 16 k",
            Layout {
                page_rows: 1 << 14,
                ..base
            },
        ),
        (
            "stack split",
            Layout {
                stack: split,
                ..base
            },
        ),
        (
            "stack dictionary",
            Layout {
                stack: dictionary,
                ..base
            },
        ),
        (
            "stack plain",
            Layout {
                stack: Encoding::PLAIN,
                ..base
            },
        ),
        (
            "value delta",
            Layout {
                value: delta,
                ..base
            },
        ),
        (
            "value split",
            Layout {
                value: split,
                ..base
            },
        ),
    ] {
        measure(name, &layout, &parts, 0, samples);
    }
    for (name, step_ns) in [("5 min", 300_000_000_000), ("1 h", 3_600_000_000_000)] {
        measure(&format!("roll-up {name}"), &base, &parts, step_ns, samples);
        let dropped = ["node".to_owned(), "pod".to_owned()];
        let rolled = block::roll_up(parts.clone(), &base, step_ns, &dropped).unwrap();
        let groups = rolled.files.parts.iter().flat_map(|part| &part.groups);
        let rows: u64 = groups.map(|group| group.rows).sum();
        println!(
            "roll-up {name} of services: {:.3} rows/sample, {:.3} B/sample",
            rows as f64 / samples as f64,
            rolled.samples.len() as f64 / samples as f64
        );
    }
}

type Parts = Vec<(
    pilotlight_server::segment::PartHeader,
    pilotlight_server::segment::Part,
)>;

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn measure(name: &str, layout: &Layout, parts: &Parts, step_ns: i64, samples: u64) {
    let copy = parts.clone();
    let begun = cpu_seconds();
    let block = block::from_parts(copy, layout, step_ns).unwrap();
    let write = (cpu_seconds() - begun) * 1e9 / samples as f64;
    let mut columns = [0_u64; 8];
    let mut rows = 0;
    for group in block.files.parts.iter().flat_map(|part| &part.groups) {
        rows += group.rows;
        for (sum, chunk) in columns.iter_mut().zip(&group.chunks) {
            *sum += chunk.len;
        }
    }
    let (mut best, mut total) = (f64::MAX, 0);
    for _ in 0..3 {
        // The kernel counts in ticks of milliseconds.
        let begun = cpu_seconds();
        for _ in 0..20 {
            total = scan(&block);
        }
        best = best.min((cpu_seconds() - begun) * 1e9 / rows as f64 / 20.0);
    }
    let each = columns
        .iter()
        .map(|&bytes| format!("{:.3}", bytes as f64 / samples as f64));
    println!(
        "{name:28} {:.3} B/sample, symbols {:.3}, {:.2} rows/sample, columns {}, write {write:.0} ns, scan {best:.1} ns, sum {total}",
        block.samples.len() as f64 / samples as f64,
        block.symbols.len() as f64 / samples as f64,
        rows as f64 / samples as f64,
        each.collect::<Vec<_>>().join(" "),
    );
}

fn scan(block: &block::Block) -> i64 {
    let mut total = 0;
    for part in &block.files.parts {
        let mut sums = vec![0_i64; 200_000];
        for group in &part.groups {
            let chunks = Rows::wanted(group, false, &[1]).into_iter().map(|chunk| {
                let range = chunk.offset as usize..(chunk.offset + chunk.len) as usize;
                (chunk, block.samples[range].to_vec())
            });
            let mut rows = Rows::open(group, false, 1, chunks.collect()).unwrap();
            rows.each(group.rows, |rows| {
                for (&stack, &value) in rows.stacks.iter().zip(&rows.columns[0]) {
                    sums[stack as usize] += value;
                }
                Ok(())
            })
            .unwrap();
        }
        total += sums.iter().sum::<i64>();
    }
    total
}
