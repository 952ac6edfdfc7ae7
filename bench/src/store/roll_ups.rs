//! How many rows roll-ups spare a flame graph of a day.

use std::{
    collections::{HashSet, hash_map::DefaultHasher},
    fs,
    hash::{Hash, Hasher},
    io::Read,
    process::Command,
};

use flate2::read::GzDecoder;
use prost::Message;

use super::{
    corpus::{self, Corpus, Shape},
    figure,
};
use crate::{
    child::{Outcome, scratch},
    figure::Goal,
    profile::prost_peer::Profile,
    server::process::example,
};

/// A day of a service of four pods, that ends at no round time.
const DAY: Shape = Shape {
    services: 1,
    pods: 4,
    profiles: 2_880,
    every_s: 30,
    draws: 750,
};

/// Rows that no roll-up of all pods can go below: distinct stacks in each step, with and without the
/// labels of their samples, which roll-ups keep. The generator's profiles name a location and a label
/// by the same ids all day.
fn distinct(corpus: &Corpus, step_s: i64) -> Outcome<(f64, f64)> {
    let (mut labelled, mut stacks) = (HashSet::new(), HashSet::new());
    for push in corpus.pushes.iter().flatten() {
        let mut raw = Vec::new();
        GzDecoder::new(push.body.as_slice()).read_to_end(&mut raw)?;
        for sample in Profile::decode(raw.as_slice())?.sample {
            let mut hash = DefaultHasher::new();
            (push.start_s.div_euclid(step_s), sample.location_id).hash(&mut hash);
            stacks.insert(hash.finish());
            for label in sample.label {
                (label.key, label.str, label.num).hash(&mut hash);
            }
            labelled.insert(hash.finish());
        }
    }
    Ok((labelled.len() as f64, stacks.len() as f64))
}

/// Prints rows as shares of those of the samples.
pub fn run() -> Outcome<()> {
    let corpus = corpus::generated(&DAY)?;
    let folder = scratch("roll-ups")?;
    let (mut list, mut bytes) = (String::new(), Vec::new());
    for push in corpus.pushes.iter().flatten() {
        let (series, len) = (&push.series, push.body.len());
        list += &format!("{series}\t{}\t{len}\n", push.start_s);
        bytes.extend_from_slice(&push.body);
    }
    fs::write(folder.join("list.tsv"), list)?;
    fs::write(folder.join("corpus.bin"), bytes)?;
    let output = Command::new(example("roll_up_rows")?)
        .arg(&folder)
        .output()?;
    fs::remove_dir_all(&folder)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = |name: &str| -> Outcome<f64> {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        let found = pairs.find(|(key, _)| *key == name);
        Ok(found.ok_or("roll_up_rows said nothing of it")?.1.parse()?)
    };
    let all = rows("samples")?;
    println!("# a day of one service: {all} rows");
    // The answer of a day is what the design bounds: a fifth to a tenth.
    for (name, what) in [
        ("roll_up_day_rows_read", "day"),
        ("roll_up_5min_rows", "5min"),
        ("roll_up_1h_rows", "1h"),
    ] {
        figure(name, rows(what)? / all, "x", Goal::AtMost(0.2), "");
    }
    // Whether what a step misses is ours, or as many stacks as the load has in it.
    for (name, step_s) in [("5min", 300), ("1h", 3600)] {
        let (labelled, stacks) = distinct(&corpus, step_s)?;
        println!(
            "# {name}: of all rows {:.2} are distinct stacks and label sets of a step, {:.2} distinct stacks",
            labelled / all,
            stacks / all
        );
        let what = format!("roll_up_{name}_rows_to_least");
        // Two in a million may share a hash.
        figure(&what, rows(name)? / labelled, "x", Goal::AtMost(1.001), "");
    }
    Ok(())
}
