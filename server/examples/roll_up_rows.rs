//! Rows that a flame graph of a service reads, from the samples and with roll-ups:
//! `roll_up_rows FOLDER`, with `list.tsv` (series, start in seconds, bytes of the gzipped pprof) and
//! `corpus.bin` (these, one behind the other). Prints `NAME ROWS` lines.

use std::path::PathBuf;

use pilotlight_profile::{Limits, Mode, decode};
use pilotlight_server::block::{self, Block, Layout};
use pilotlight_server::segment::{Labels, Part, PartHeader, Pushed, SegmentBuilder};

const SECOND: i64 = 1_000_000_000;
const STEPS: [i64; 2] = [300 * SECOND, 3600 * SECOND];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let folder: PathBuf = std::env::args_os()
        .nth(1)
        .ok_or("usage: roll_up_rows FOLDER")?
        .into();
    let (parts, first_ns, until_ns) = read(&folder)?;
    let layout = Layout::default();
    let raw = block::from_parts(parts, &layout, 0)?;
    let dropped = ["pod".to_owned()];
    let rolled = |step_ns| block::roll_up_of(&raw, &layout, step_ns, &dropped);
    let (short, long) = (rolled(STEPS[0])?, rolled(STEPS[1])?);
    let (mut from, mut until) = (first_ns, until_ns);
    println!("samples {}", rows(&raw, from, until)?);
    println!("5min {}", rows(&short, i64::MIN, i64::MAX)?);
    println!("1h {}", rows(&long, i64::MIN, i64::MAX)?);
    // Of each form is read what no coarser one answers (`query/choose.rs`).
    let mut read = 0;
    for (finer, step_ns) in [&raw, &short].into_iter().zip(STEPS) {
        let first = (from + step_ns - 1).div_euclid(step_ns) * step_ns;
        let last = until.div_euclid(step_ns) * step_ns;
        read += rows(finer, from, first)? + rows(finer, last, until)?;
        (from, until) = (first, last);
    }
    println!("day {}", read + rows(&long, from, until)?);
    Ok(())
}

/// Rows of the profiles whose times lie in a window.
fn rows(block: &Block, from_ns: i64, until_ns: i64) -> Result<u64, Failure> {
    let mut sum = 0;
    for (header, part) in block.parts.iter().zip(&block.files.parts) {
        let span = block::span(block::profile_chunks(part));
        let bytes = block.symbols[span.start as usize..span.end as usize].to_vec();
        let profiles = block::read_profiles(header, part, bytes)?;
        let inside = profiles.rows.iter();
        let inside = inside.filter(|row| (from_ns..until_ns).contains(&row.time_ns));
        sum += inside.map(|row| u64::from(row.rows)).sum::<u64>();
    }
    Ok(sum)
}

type Read = (Vec<(PartHeader, Part)>, i64, i64);

fn read(folder: &std::path::Path) -> Result<Read, Failure> {
    let corpus = std::fs::read(folder.join("corpus.bin"))?;
    let (mut at, mut builder) = (0, SegmentBuilder::default());
    let (mut first_ns, mut until_ns) = (i64::MAX, i64::MIN);
    for line in std::fs::read_to_string(folder.join("list.tsv"))?.lines() {
        let mut words = line.split('\t');
        let mut word = || words.next().ok_or("a line of list.tsv is too short");
        let labels = labels(word()?);
        let time_ns = word()?.parse::<i64>()? * SECOND;
        let len: usize = word()?.parse()?;
        let decoded = decode(&corpus[at..at + len], Mode::Tolerant, &Limits::default())?;
        at += len;
        (first_ns, until_ns) = (first_ns.min(time_ns), until_ns.max(time_ns + SECOND));
        let pushed = Pushed {
            labels,
            name: "process_cpu".to_owned(),
            time_ns,
            duration_ns: 10 * SECOND,
            id: 0,
        };
        builder.add_profile(&decoded.profile, &pushed);
    }
    Ok((builder.finish(), first_ns, until_ns))
}

/// Of `{a="b",c="d"}`, sorted.
fn labels(text: &str) -> Labels {
    let words: Vec<&str> = text.split('"').collect();
    let pairs = words.chunks_exact(2).map(|pair| {
        let name = pair[0].trim_matches(['{', ',', '=']);
        (name.to_owned(), pair[1].to_owned())
    });
    let mut labels: Labels = pairs.collect();
    labels.sort();
    labels
}
