//! The same files through the three decoders and two encoders, in alternating passes.

use std::{collections::HashSet, fs, hint::black_box, path::Path, process::Command};

use pilotlight_bench_kit::thread_cpu_ns;
use pilotlight_profile::{Limits, Mode, Profile, decode};
use prost::Message;

use super::{corpus::File, prost_peer};
use crate::{
    child::{Dialogue, Outcome, scratch},
    figure::{Figure, Goal, Short},
};

const PASSES: usize = 9;
/// CPU seconds that one pass should take.
const PASS_SECONDS: f64 = 0.25;

/// One program that goes over all files `n` times and answers the CPU seconds.
type Runner<'a> = Box<dyn FnMut(usize) -> Outcome<f64> + 'a>;

pub fn run(set: &str, files: Vec<File>, go_peer: &Path) -> Outcome<()> {
    let folder = scratch(&format!("profiles-{set}"))?;
    write(&folder, &files)?;
    let mut go = Dialogue::start(Command::new(go_peer).arg(&folder))?;
    let files = accepted_by_all(files, &mut go)?;
    let bytes: usize = files.iter().map(|file| file.raw.len()).sum();
    println!(
        "# {set}: {} files, {:.2} MB raw",
        files.len(),
        bytes as f64 / 1e6
    );
    decoding(set, &files, bytes, &mut go)?;
    encoding(set, &files, bytes, &mut go)?;
    unzipping(set, &files, bytes, &mut go)
}

fn write(folder: &Path, files: &[File]) -> Outcome<()> {
    fs::remove_dir_all(folder)?;
    fs::create_dir_all(folder)?;
    for file in files {
        fs::write(folder.join(&file.name), &file.raw)?;
    }
    Ok(())
}

/// A figure must compare the same work, so only files count that every decoder takes.
fn accepted_by_all(files: Vec<File>, go: &mut Dialogue) -> Outcome<Vec<File>> {
    let answer = go.ask("accepted")?;
    let by_go: HashSet<&str> = answer.split(' ').collect();
    let mut kept = Vec::new();
    for file in files {
        let (ours, by_go) = (ours(&file.raw).is_ok(), by_go.contains(file.name.as_str()));
        if ours != by_go {
            println!("# {}: ours {ours}, google/pprof {by_go}", file.source);
        }
        if ours && by_go && prost_peer::Profile::decode(file.raw.as_slice()).is_ok() {
            kept.push(file);
        }
    }
    let names: Vec<&str> = kept.iter().map(|file| file.name.as_str()).collect();
    go.ask(&format!("keep {}", names.join(",")))?;
    Ok(kept)
}

fn decoding(set: &str, files: &[File], bytes: usize, go: &mut Dialogue) -> Outcome<()> {
    let seconds = race([
        Box::new(|n| over(files, n, |file| Ok(ours(&file.raw)?))),
        Box::new(|n| go.ask_number(&format!("decode {n}"))),
        Box::new(|n| {
            over(files, n, |file| {
                Ok(prost_peer::Profile::decode(file.raw.as_slice())?)
            })
        }),
    ])?;
    let [ours, go, prost] = seconds.map(|s| bytes as f64 / s / 1e6);
    let speeds = speeds(
        ours,
        &[("google/pprof", go), ("prost-without-validity", prost)],
    );
    print(
        &format!("profile/{set}_decode_over_google"),
        ours / go,
        goal(set, 8.0),
        &speeds,
    );
    print(
        &format!("profile/{set}_decode_over_prost"),
        ours / prost,
        goal(set, 4.0),
        &speeds,
    );
    Ok(())
}

fn encoding(set: &str, files: &[File], bytes: usize, go: &mut Dialogue) -> Outcome<()> {
    let decoded = files
        .iter()
        .map(|file| ours(&file.raw))
        .collect::<Result<Vec<Profile>, _>>()?;
    let prost: Vec<prost_peer::Profile> = files
        .iter()
        .map(|file| prost_peer::Profile::decode(file.raw.as_slice()))
        .collect::<Result<_, _>>()?;
    let seconds = race([
        Box::new(|n| over(&decoded, n, |profile| Ok(profile.to_pprof()))),
        Box::new(|n| go.ask_number(&format!("encode {n}"))),
        Box::new(|n| over(&prost, n, |profile| Ok(profile.encode_to_vec()))),
    ])?;
    let [ours, go, prost] = seconds.map(|s| bytes as f64 / s / 1e6);
    let speeds = speeds(ours, &[("google/pprof", go), ("prost", prost)]);
    print(
        &format!("profile/{set}_encode_over_google"),
        ours / go,
        goal(set, 4.0),
        &speeds,
    );
    print(
        &format!("profile/{set}_encode_over_prost"),
        ours / prost,
        Goal::None,
        &speeds,
    );
    Ok(())
}

fn unzipping(set: &str, files: &[File], bytes: usize, go: &mut Dialogue) -> Outcome<()> {
    let zipped = files
        .iter()
        .map(File::gzipped)
        .collect::<Outcome<Vec<Vec<u8>>>>()?;
    let seconds = race([
        Box::new(|n| over(&zipped, n, |gz| Ok(ours(gz)?))),
        Box::new(|n| go.ask_number(&format!("gunzip {n}"))),
    ])?;
    let [ours, go] = seconds.map(|s| bytes as f64 / s / 1e6);
    let speeds = speeds(ours, &[("google/pprof", go)]);
    print(
        &format!("profile/{set}_gunzip_decode_over_google"),
        ours / go,
        Goal::None,
        &speeds,
    );
    Ok(())
}

fn ours(bytes: &[u8]) -> Result<Profile, pilotlight_profile::DecodeError> {
    decode(bytes, Mode::Strict, &Limits::default()).map(|decoded| decoded.profile)
}

/// CPU seconds of `n` times `work` over all items, results dropped within.
fn over<I, R>(items: &[I], n: usize, work: impl Fn(&I) -> Outcome<R>) -> Outcome<f64> {
    let before = thread_cpu_ns();
    for _ in 0..n {
        for item in items {
            drop(black_box(work(black_box(item))?));
        }
    }
    Ok((thread_cpu_ns() - before) as f64 / 1e9)
}

/// CPU seconds of one round over all files, the fastest of several passes that take turns.
fn race<const N: usize>(mut runners: [Runner<'_>; N]) -> Outcome<[f64; N]> {
    let mut rounds = [1; N];
    for (runner, rounds) in runners.iter_mut().zip(&mut rounds) {
        runner(1)?;
        let once = runner(1)?;
        *rounds = ((PASS_SECONDS / once.max(1e-6)) as usize).clamp(1, 2_000);
    }
    let mut best = [f64::INFINITY; N];
    for _ in 0..PASSES {
        for ((runner, rounds), best) in runners.iter_mut().zip(rounds).zip(&mut best) {
            *best = best.min(runner(rounds)? / rounds as f64);
        }
    }
    Ok(best)
}

/// The goals are about real files; generated ones are for information.
fn goal(set: &str, at_least: f64) -> Goal {
    if set == "real" {
        Goal::AtLeast(at_least)
    } else {
        Goal::None
    }
}

fn speeds(ours: f64, peers: &[(&str, f64)]) -> String {
    let peers = peers
        .iter()
        .map(|(name, speed)| format!("{name}:{}MB/s", Short(*speed)));
    peers
        .chain([format!("ours:{}MB/s", Short(ours))])
        .collect::<Vec<_>>()
        .join(",")
}

fn print(name: &str, value: f64, goal: Goal, peer: &str) {
    Figure {
        name,
        value,
        unit: "x",
        goal,
        peer,
    }
    .print();
}
