//! Differences to LLVM's frames: `symbolize/tests/truth` at ten times its addresses.

use crate::child::{Outcome, repository};
use crate::figure::{Figure, Goal};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

const ADDRESSES: &str = "10000";
const BINARIES: f64 = 20.0;

/// Prints how many binaries were compared, and what differs that may not.
pub fn run() -> Outcome<()> {
    let output = Command::new("cargo")
        .current_dir(repository())
        .env("PILOTLIGHT_TRUTH_ADDRESSES", ADDRESSES)
        .args(["test", "--release", "--quiet", "-p", "pilotlight-symbolize"])
        .args([
            "--features",
            "tables",
            "--test",
            "truth",
            "--",
            "--nocapture",
        ])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut binaries, mut kinds) = (0_usize, BTreeMap::new());
    for line in text.lines().filter_map(|line| line.split_once("TRUTH ")) {
        println!("# {}", line.1);
        binaries += 1;
        for (kind, count) in counts(line.1) {
            *kinds.entry(kind).or_insert(0_u64) += count;
        }
    }
    let all: u64 = kinds.values().sum();
    let refused = |kind: &&String| kind.starts_with('!');
    let differences: u64 = kinds
        .iter()
        .filter(|(kind, _)| refused(kind))
        .map(|(_, n)| n)
        .sum();
    let allowed: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| {
            format!(
                "{}:{:.2}%",
                kind.replace(' ', "-"),
                *count as f64 * 100.0 / all.max(1) as f64
            )
        })
        .collect();
    let print = |name, value, goal, peer: &str| {
        Figure::print_of("symbolize", name, value, "", goal, peer);
    };
    print(
        "truth_binaries",
        binaries as f64,
        Goal::AtLeast(BINARIES),
        "",
    );
    print(
        "truth_addresses",
        all as f64,
        Goal::AtLeast(BINARIES * 10_000.0),
        "",
    );
    print(
        "truth_differences",
        differences as f64,
        Goal::AtMost(0.0),
        &allowed.join(","),
    );
    if output.status.success() == (differences == 0) {
        Ok(())
    } else {
        Err(format!("the test ended with {}", output.status).into())
    }
}

/// `name kind=count; kind=count`.
fn counts(line: &str) -> impl Iterator<Item = (String, u64)> {
    let parts = line
        .split_once(": ")
        .map_or("", |(_, rest)| rest)
        .split("; ");
    parts.filter_map(|part| {
        let (kind, count) = part.rsplit_once('=')?;
        Some((kind.to_owned(), count.parse().ok()?))
    })
}
