//! The block format: what is written is read again, here and by other engines; fixtures of version 1
//! stay readable; damage is found.
//!
//! `PILOTLIGHT_WRITE_FIXTURES=1 cargo test -p pilotlight-server --test block_format` writes the
//! fixtures anew; do that only for a new version, beside those of the old ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pilotlight_profile::{Label, LabelSetId, LabelValue, ProfileBuilder};
use pilotlight_server::block::{
    self, Block, BlockRow, Files, Layout, MANIFEST, Rows, SAMPLES, SYMBOLS, Sidecar,
};
use pilotlight_server::segment::{
    Damage, Header, Part, PartHeader, Pushed, SegmentBuilder, Symbols, TypeSet,
};

const T0: i64 = 1_767_225_600_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

type Parts = Vec<(PartHeader, Part)>;

/// `profiles` profiles of two services, three pods each, cpu and heap, some samples with labels.
fn parts(seed: u64, profiles: usize) -> Parts {
    let mut rng = Rng(seed);
    let mut builder = SegmentBuilder::default();
    for n in 0..profiles {
        let heap = rng.below(3) == 0;
        let service = ["cart \"ä\"", "shop"][rng.below(2) as usize];
        let pod = format!("p{}", rng.below(3));
        let labels = [("pod", pod.as_str()), ("service_name", service)];
        let pushed = Pushed {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
            name: if heap { "memory" } else { "process_cpu" }.to_owned(),
            time_ns: T0 + n as i64 / 2 * 10 * SECOND + rng.below(SECOND as u64) as i64,
            duration_ns: 10 * SECOND,
            id: u128::from(rng.below(u64::MAX)) + 1,
        };
        builder.add_profile(&profile(&mut rng, heap), &pushed);
    }
    builder.finish()
}

fn profile(rng: &mut Rng, heap: bool) -> pilotlight_profile::Profile {
    let mut out = ProfileBuilder::new();
    let types: &[(&str, &str)] = if heap {
        &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_space", "bytes"),
        ]
    } else {
        &[("cpu", "nanoseconds")]
    };
    types
        .iter()
        .for_each(|(kind, unit)| out.sample_type(kind, unit));
    out.period("cpu", "nanoseconds", 10_000_000);
    let key = out.string(b"thread");
    for _ in 0..1 + rng.below(30) {
        let mut path = Vec::new();
        for _ in 0..rng.below(6) {
            let name = out.string(format!("f{}", rng.below(12)).as_bytes());
            let function = out.function(name, name, name, 1);
            path.push(out.location(None, 0, &[(function, 7)]));
        }
        let stack = out.stack(&path);
        let set = match rng.below(4) {
            0 => {
                let value = LabelValue::Str(out.string(format!("t{}", rng.below(2)).as_bytes()));
                out.label_set(&[Label { key, value }])
            }
            _ => LabelSetId(0),
        };
        let values: Vec<i64> = types.iter().map(|_| rng.below(1000) as i64 + 1).collect();
        out.sample(stack, set, &values);
    }
    out.finish()
}

/// Names from the root to a node.
fn path(symbols: &Symbols, mut node: u32) -> String {
    let mut names = Vec::new();
    while node != 0 {
        for line in symbols
            .locations
            .lines(symbols.node_locations[node as usize])
        {
            let name = symbols.functions[line.function as usize].name;
            names.push(String::from_utf8_lossy(symbols.strings.get(name)).into_owned());
        }
        node = symbols.parents[node as usize];
    }
    names.reverse();
    names.join(";")
}

fn label_text(symbols: &Symbols, set: u32) -> String {
    let labels = symbols.label_set(set).iter();
    let texts = labels.map(|label| String::from_utf8_lossy(symbols.strings.get(label.text)));
    texts.collect::<Vec<_>>().join(",")
}

/// (series, profile id of the column, step, stack, labels) → sum: all that a block may answer.
type Answer = BTreeMap<(String, String, i64, String, String), i64>;

fn answer_of_parts(parts: &Parts, step_ns: i64) -> Answer {
    let mut answer = Answer::new();
    for (header, part) in parts {
        for row in &part.profiles.rows {
            let set = &header.type_sets[row.type_set as usize];
            let sets = part.row_label_sets(row);
            for column in 0..set.values.len() {
                let values = part.row_values(row, column);
                for (at, &stack) in part.row_stacks(row).iter().enumerate() {
                    let labels = sets.get(at).map_or(0, |&set| set);
                    let key = (
                        block::series_text(&header.series[row.series as usize].labels),
                        set.id(column),
                        row.time_ns.div_euclid(step_ns),
                        path(&part.symbols, stack),
                        label_text(&part.symbols, labels),
                    );
                    *answer.entry(key).or_default() += values[at];
                }
            }
        }
    }
    answer
}

fn sidecar(header: &PartHeader, block: &Block, index: usize) -> Result<Sidecar, Damage> {
    let files = &block.files.parts[index];
    let range = block::span(&files.symbols);
    let bytes = &block.symbols[range.start as usize..range.end as usize];
    block::read_sidecar(header, files, bytes.to_vec())
}

/// Calls `visit` with each profile and its rows: stacks, label sets, values.
fn each_profile(
    block: &Block,
    mut visit: impl FnMut(&PartHeader, &Sidecar, &BlockRow, &Rows),
) -> Result<(), Damage> {
    for (index, header) in block.parts.iter().enumerate() {
        let sidecar = sidecar(header, block, index)?;
        let files = &block.files.parts[index];
        let mut profiles = sidecar.profiles.rows.iter().peekable();
        let mut end = 0;
        for group in &files.groups {
            end += group.rows;
            let width = header.type_sets[group.type_set as usize].values.len();
            let values: Vec<usize> = (0..width).collect();
            let chunks = Rows::wanted(group, true, &values).into_iter().map(|chunk| {
                let range = chunk.offset as usize..(chunk.offset + chunk.len) as usize;
                (chunk, block.samples[range].to_vec())
            });
            let mut rows = Rows::open(group, true, width, chunks.collect())?;
            while let Some(row) = profiles.next_if(|row| row.first_row < end) {
                rows.read(row.rows as usize)?;
                visit(header, &sidecar, row, &rows);
            }
        }
    }
    Ok(())
}

fn answer_of_block(block: &Block, step_ns: i64) -> Result<Answer, Damage> {
    let mut answer = Answer::new();
    each_profile(block, |header, sidecar, row, rows| {
        let set: &TypeSet = &header.type_sets[row.type_set as usize];
        for (column, values) in rows.columns.iter().enumerate() {
            for (at, &value) in values.iter().enumerate() {
                let node = sidecar.stack_nodes[rows.stacks[at] as usize];
                let key = (
                    block::series_text(&header.series[row.series as usize].labels),
                    set.id(column),
                    row.time_ns.div_euclid(step_ns),
                    path(&sidecar.symbols, node),
                    label_text(&sidecar.symbols, rows.label_sets[at] as u32),
                );
                *answer.entry(key).or_default() += value;
            }
        }
    })?;
    Ok(answer)
}

fn header_of(block: &Block) -> Header {
    Header {
        level: 1,
        created_ns: T0,
        replaces: vec!["a.plseg".to_owned()],
        parts: block.parts.clone(),
        file_len: 0,
    }
}

#[test]
fn a_block_answers_what_its_segments_answered() {
    for seed in 0..20 {
        let parts = parts(seed, 1 + seed as usize * 5);
        let block = block::from_parts(parts.clone(), &Layout::default(), 0).unwrap();
        assert_eq!(
            answer_of_block(&block, 1).unwrap(),
            answer_of_parts(&parts, 1),
            "seed {seed}"
        );
        let rows: u64 = block
            .files
            .parts
            .iter()
            .flat_map(|p| &p.groups)
            .map(|g| g.rows)
            .sum();
        let samples: u64 = parts.iter().map(|(header, _)| header.samples).sum();
        assert!(rows <= samples && rows > 0);
    }
}

#[test]
fn merged_blocks_answer_what_they_answered_and_a_push_counts_once() {
    for seed in 0..10 {
        let all: Vec<Parts> = (0..4).map(|n| parts(seed * 4 + n, 30)).collect();
        let block =
            |parts: &Parts| block::from_parts(parts.clone(), &Layout::default(), 0).unwrap();
        let mut expected = Answer::new();
        for parts in &all {
            for (key, value) in answer_of_parts(parts, 1) {
                *expected.entry(key).or_default() += value;
            }
        }
        // The first one comes twice, as a retry that nobody noticed.
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| block(&all[at]));
        let low = block::from_blocks(&[a, b], &Layout::default(), 0).unwrap();
        let merged =
            block::from_blocks(&[low, c, block(&all[0]), d], &Layout::default(), 0).unwrap();
        assert_eq!(
            answer_of_block(&merged, 1).unwrap(),
            expected,
            "seed {seed}"
        );
        let profiles: u64 = merged
            .parts
            .iter()
            .flat_map(|p| &p.series)
            .map(|s| s.profiles)
            .sum();
        assert_eq!(profiles, 120);
    }
}

#[test]
fn a_roll_up_answers_the_same_in_fewer_rows() {
    let step = 300 * SECOND;
    let parts = parts(3, 400);
    let raw = block::from_parts(parts.clone(), &Layout::default(), 0).unwrap();
    let rolled = block::from_parts(parts.clone(), &Layout::default(), step).unwrap();
    assert_eq!(
        answer_of_block(&rolled, step).unwrap(),
        answer_of_parts(&parts, step)
    );
    let rows = |block: &Block| -> u64 {
        block
            .files
            .parts
            .iter()
            .flat_map(|part| &part.groups)
            .map(|group| group.rows)
            .sum()
    };
    assert!(
        rows(&rolled) < rows(&raw),
        "{} {}",
        rows(&rolled),
        rows(&raw)
    );
    let (mut profiles, mut totals) = (0, 0);
    each_profile(&rolled, |_, sidecar, row, rows| {
        profiles += u64::from(row.profiles);
        let total = sidecar.profiles.totals[row.first_total as usize];
        assert_eq!(total, rows.columns[0].iter().sum::<i64>());
        totals += total;
    })
    .unwrap();
    assert_eq!(profiles, 400);
    assert!(totals > 0);
}

#[test]
fn a_roll_up_without_a_label_sums_over_it() {
    let step = 300 * SECOND;
    let parts = parts(3, 400);
    let dropped = ["pod".to_owned()];
    let mut stripped = parts.clone();
    for entry in stripped
        .iter_mut()
        .flat_map(|(header, _)| &mut header.series)
    {
        assert!(entry.labels.iter().any(|(name, _)| name == "pod"));
        entry.labels.retain(|(name, _)| name != "pod");
    }
    let expected = answer_of_parts(&stripped, step);
    let rolled = block::roll_up(parts.clone(), &Layout::default(), step, &dropped).unwrap();
    assert_eq!(answer_of_block(&rolled, step).unwrap(), expected);
    // The same from a block, whose rows are read forwards.
    let raw = block::from_parts(parts, &Layout::default(), 0).unwrap();
    let again = block::roll_up_of(&raw, &Layout::default(), step, &dropped).unwrap();
    assert_eq!(answer_of_block(&again, step).unwrap(), expected);
    let series = |block: &Block| {
        block
            .parts
            .iter()
            .map(|part| part.series.len())
            .sum::<usize>()
    };
    assert!(
        series(&raw) > series(&again),
        "{} {}",
        series(&raw),
        series(&again)
    );
}

#[test]
fn stacks_are_numbered_by_frequency_and_rows_are_sorted() {
    let block = block::from_parts(parts(5, 60), &Layout::default(), 0).unwrap();
    let mut counts: BTreeMap<String, BTreeMap<i32, u64>> = BTreeMap::new();
    let mut last = BTreeMap::new();
    each_profile(&block, |header, _, row, rows| {
        let here = (row.type_set, row.series, row.time_ns);
        let before = last.insert(header.service.clone(), here);
        assert!(before.is_none_or(|before| before <= here));
        let keys: Vec<(i32, i32)> = rows
            .stacks
            .iter()
            .copied()
            .zip(rows.label_sets.iter().copied())
            .collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        for &stack in &rows.stacks {
            *counts
                .entry(header.service.clone())
                .or_default()
                .entry(stack)
                .or_default() += 1;
        }
    })
    .unwrap();
    for counts in counts.values() {
        let first = counts[&0];
        let last = counts.values().next_back().unwrap();
        assert!(
            first >= *last,
            "stack 0 has {first} rows, the last one {last}"
        );
    }
}

#[test]
fn the_manifest_comes_back_as_it_was() {
    let block = block::from_parts(parts(1, 9), &Layout::default(), 0).unwrap();
    let (mut header, mut files) = (header_of(&block), block.files.clone());
    files.step_ns = 300 * SECOND;
    files.of = "b.plblk".to_owned();
    let bytes = block::encode_manifest(&header, &files);
    header.file_len = (bytes.len() + block.samples.len() + block.symbols.len()) as u64;
    assert_eq!(block::decode_manifest(&bytes).unwrap(), (header, files));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(block::decode_manifest(&changed).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(
            block::decode_manifest(&bytes[..len]).is_err(),
            "cut at {len}"
        );
    }
}

#[test]
fn a_changed_bit_is_found_or_is_harmless() {
    let parts = parts(7, 6);
    let block = block::from_parts(parts.clone(), &Layout::default(), 0).unwrap();
    let good = answer_of_parts(&parts, 1);
    let (mut found, mut harmless) = (0, 0);
    let mut check = |changed: &Block| match answer_of_block(changed, 1) {
        Ok(answer) => {
            assert_eq!(answer, good);
            harmless += 1;
        }
        Err(_) => found += 1,
    };
    // A bit of every seventh byte; of every one where there is time.
    let step = if std::env::var_os("PILOTLIGHT_LONG").is_some() {
        1
    } else {
        7
    };
    for at in (0..block.samples.len()).step_by(step) {
        let mut samples = block.samples.clone();
        samples[at] ^= 1 << (at % 8);
        check(&with_files(&block, samples, block.symbols.clone()));
    }
    for at in (0..block.symbols.len()).step_by(step) {
        let mut symbols = block.symbols.clone();
        symbols[at] ^= 1 << (at % 8);
        check(&with_files(&block, block.samples.clone(), symbols));
    }
    assert!(found > 100, "{found} found, {harmless} harmless");
}

fn with_files(block: &Block, samples: Vec<u8>, symbols: Vec<u8>) -> Block {
    Block {
        samples,
        symbols,
        parts: block.parts.clone(),
        files: block.files.clone(),
    }
}

#[test]
fn wrong_bytes_under_a_right_checksum_do_no_harm() {
    let block = block::from_parts(parts(2, 3), &Layout::default(), 0).unwrap();
    let mut rng = Rng(9);
    for _ in 0..400 {
        let mut changed = with_files(&block, block.samples.clone(), block.symbols.clone());
        let at = rng.below(changed.samples.len() as u64) as usize;
        changed.samples[at] ^= 1 << rng.below(8);
        let at = rng.below(changed.symbols.len() as u64) as usize;
        changed.symbols[at] ^= 1 << rng.below(8);
        seal(&mut changed);
        // An error, or an answer of something else; never a panic, an endless loop or a flood.
        let _ = std::panic::catch_unwind(|| answer_of_block(&changed, 1).map(drop));
    }
}

/// Makes all checksums right.
fn seal(block: &mut Block) {
    let (samples, symbols) = (&block.samples, &block.symbols);
    for part in &mut block.files.parts {
        for chunk in part.groups.iter_mut().flat_map(|group| &mut group.chunks) {
            let end = (chunk.offset + chunk.len) as usize;
            chunk.crc = crc32fast::hash(&samples[chunk.offset as usize..end]);
        }
        for chunk in &mut part.symbols {
            let end = (chunk.offset + chunk.len) as usize;
            chunk.crc = crc32fast::hash(&symbols[chunk.offset as usize..end]);
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn write_fixtures() {
    let block = block::from_parts(parts(11, 8), &Layout::default(), 0).unwrap();
    let bytes = block::encode_manifest(&header_of(&block), &block.files);
    let put = |name: &str, bytes: &[u8]| fs::write(fixture(name), bytes).unwrap();
    put(&format!("block1{MANIFEST}"), &bytes);
    put(&format!("block1{SAMPLES}"), &block.samples);
    put(&format!("block1{SYMBOLS}"), &block.symbols);
    put(&format!("block1-cut{MANIFEST}"), &bytes[..bytes.len() - 1]);
    let mut flipped = bytes.clone();
    flipped[60] ^= 4;
    put(&format!("block1-flipped{MANIFEST}"), &flipped);
    let mut later = bytes;
    later[4] = 3;
    put(&format!("block1-later{MANIFEST}"), &later);
    let mut samples = block.samples.clone();
    let chunk = block.files.parts[0].groups[0].chunks[4];
    samples[(chunk.offset + chunk.len / 2) as usize] ^= 1;
    put(&format!("block1-flipped{SAMPLES}"), &samples);
}

/// A roll-up without `pod`: its manifest is of version 2, both Parquet files are of version 1.
fn block_2() -> (Block, Vec<u8>) {
    let dropped = ["pod".to_owned()];
    let made = block::roll_up(parts(11, 8), &Layout::default(), 300 * SECOND, &dropped);
    let mut block = made.unwrap();
    block.files.step_ns = 300 * SECOND;
    block.files.of = format!("block1{MANIFEST}");
    block.files.dropped = dropped.to_vec();
    let manifest = block::encode_manifest(&header_of(&block), &block.files);
    (block, manifest)
}

#[test]
fn the_fixture_of_version_2_is_read() {
    let name = |end: &str| fixture(&format!("block2{end}"));
    if std::env::var_os("PILOTLIGHT_WRITE_FIXTURES").is_some_and(|version| version == "2") {
        let (block, manifest) = block_2();
        fs::write(name(MANIFEST), manifest).unwrap();
        fs::write(name(SAMPLES), block.samples).unwrap();
        fs::write(name(SYMBOLS), block.symbols).unwrap();
    }
    let manifest = fs::read(name(MANIFEST)).unwrap();
    assert_eq!(manifest[4], 2);
    let (header, files) = block::decode_manifest(&manifest).unwrap();
    assert_eq!(files.dropped, ["pod"]);
    let read = Block {
        samples: fs::read(name(SAMPLES)).unwrap(),
        symbols: fs::read(name(SYMBOLS)).unwrap(),
        parts: header.parts,
        files,
    };
    let (made, _) = block_2();
    assert_eq!(read.files, made.files);
    let step = 300 * SECOND;
    assert_eq!(
        answer_of_block(&read, step).unwrap(),
        answer_of_block(&made, step).unwrap()
    );
    for bit in 0..manifest.len() * 8 {
        let mut damaged = manifest.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(block::decode_manifest(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn fixtures_of_version_1_are_read_and_damaged_ones_named() {
    if std::env::var_os("PILOTLIGHT_WRITE_FIXTURES").is_some_and(|version| version == "1") {
        write_fixtures();
    }
    let read = |name: &str| fs::read(fixture(name)).unwrap();
    let open = |manifest: &str, samples: &str| -> Result<Block, Damage> {
        let (header, files): (Header, Files) = block::decode_manifest(&read(manifest))?;
        Ok(Block {
            samples: read(samples),
            symbols: read("block1.symbols.parquet"),
            parts: header.parts,
            files,
        })
    };
    let good = open("block1.plblk", "block1.samples.parquet").unwrap();
    assert_eq!(
        answer_of_block(&good, 1).unwrap(),
        answer_of_parts(&parts(11, 8), 1)
    );
    for (manifest, says) in [
        ("block1-cut.plblk", "its header says"),
        ("block1-flipped.plblk", "checksum of header"),
        ("block1-later.plblk", "version 3 is not known"),
    ] {
        let error = open(manifest, "block1.samples.parquet")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(says), "{manifest}: {error}");
    }
    let damaged = open("block1.plblk", "block1-flipped.samples.parquet").unwrap();
    let error = answer_of_block(&damaged, 1).unwrap_err();
    assert_eq!(error, Damage::Checksum("samples"));
}

/// Reads both files with two other engines; the program prints one line a group.
const OTHER_ENGINES: &str = r#"
import sys, duckdb, pandas
samples, symbols = sys.argv[1], sys.argv[2]
for row in duckdb.sql(f"""
    select service, profile, series, epoch_ns(time), sum(value_0), sum(value_1), count(*)
    from read_parquet('{samples}') group by all""").fetchall():
    print("duckdb", *row, sep="\t")
frame = pandas.read_parquet(samples)
keys = ["service", "profile", "series", "time"]
for key, rows in frame.groupby(keys):
    print("pandas", *key[:3], key[3].value, rows.value_0.sum(), rows.value_1.sum(), len(rows), sep="\t")
# Functions of the leaves: the lists are indexed by the ids.
for row in duckdb.sql(f"""
    with s as (select * from read_parquet('{symbols}')), leaf as (
      select r.service, r.value_0,
             s.node_location[s.stack_node[r.stack::int + 1]::int + 1]::int + 1 as place
      from read_parquet('{samples}') r join s using (service))
    select leaf.service, s.string[s.function_name[s.line_function[
             s.location_line_end[place - 1]::int + 1]::int + 1]::int + 1], sum(value_0)
    from leaf join s using (service) where place > 1 group by all""").fetchall():
    print("leaf", row[0], bytes(row[1]).decode(), row[2], sep="\t")
"#;

/// A Python that has the engines: `PILOTLIGHT_PYTHON`, or what `cargo xtask tools` installs.
fn python() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../pytools/bin/python");
    let python = std::env::var_os("PILOTLIGHT_PYTHON").map_or(installed, PathBuf::from);
    let mut probe = Command::new(&python);
    probe.args(["-c", "import duckdb, pandas, pyarrow"]);
    probe
        .output()
        .is_ok_and(|out| out.status.success())
        .then_some(python)
}

#[test]
fn duckdb_and_pandas_read_the_same_sums() {
    let Some(python) = python() else {
        println!("SKIP: no Python with duckdb, pandas and pyarrow; cargo xtask tools says how");
        return;
    };
    let block = block::from_parts(parts(13, 200), &Layout::default(), 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (samples, symbols) = (
        folder.path().join("s.parquet"),
        folder.path().join("y.parquet"),
    );
    fs::write(&samples, &block.samples).unwrap();
    fs::write(&symbols, &block.symbols).unwrap();
    let mut run = Command::new(python);
    let out = run
        .args(["-c", OTHER_ENGINES])
        .args([&samples, &symbols])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).unwrap();
    let mut expected = Vec::new();
    let mut leaves: BTreeMap<(String, String), i64> = BTreeMap::new();
    each_profile(&block, |header, sidecar, row, rows| {
        let sum = |column: usize| {
            rows.columns
                .get(column)
                .map_or(0, |c| c.iter().sum::<i64>())
        };
        expected.push(format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}",
            header.service,
            block::profile_text(&header.type_sets[row.type_set as usize]),
            block::series_text(&header.series[row.series as usize].labels),
            row.time_ns,
            sum(0),
            sum(1),
            row.rows
        ));
        for (&stack, &value) in rows.stacks.iter().zip(&rows.columns[0]) {
            let path = path(&sidecar.symbols, sidecar.stack_nodes[stack as usize]);
            let leaf = path.rsplit(';').next().unwrap_or_default().to_owned();
            if !leaf.is_empty() {
                *leaves.entry((header.service.clone(), leaf)).or_default() += value;
            }
        }
    })
    .unwrap();
    expected.sort();
    for engine in ["duckdb", "pandas"] {
        let lines = text.lines().filter_map(|line| line.strip_prefix(engine));
        let mut lines: Vec<&str> = lines.map(|line| &line[1..]).collect();
        lines.sort_unstable();
        assert_eq!(lines, expected, "{engine}");
    }
    let mut found: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("leaf\t"))
        .collect();
    found.sort_unstable();
    let leaves = leaves
        .iter()
        .map(|((service, name), sum)| format!("{service}\t{name}\t{sum}"));
    let mut leaves: Vec<String> = leaves.collect();
    leaves.sort();
    assert_eq!(found, leaves);
}
