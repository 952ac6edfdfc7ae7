//! How many rows roll-ups spare a flame graph of a day.

use std::{fs, process::Command};

use super::{
    corpus::{self, Shape},
    figure,
};
use crate::{
    child::{Outcome, scratch},
    figure::Goal,
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
    Ok(())
}
