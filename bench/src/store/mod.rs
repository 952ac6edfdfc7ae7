//! `bench store [FOLDER] [--only PARTS] [--long] [--pyroscope URL] [--parca URL]`: what a load costs from socket to
//! Parquet blocks, what it takes on disk, what questions cost, warm, cold and after a kill, how long
//! starts over 100,000 blocks and over a gigabyte take, what roll-ups spare, how scans use CPUs, and
//! how all of it grows. FOLDER is made by `loadgen`; without
//! it the bench's own generator makes a smaller load. PARTS is a list, with commas, of `load`,
//! `many_blocks`, `copies`, `roll_ups` and `scaling`. Peers were measured once on `loadgen`'s 4,320
//! profiles and are marked `(research)`; with an URL the same requests go to a running one.

mod copies;
mod corpus;
mod disk;
mod ingest;
mod many_blocks;
mod peers;
mod questions;
mod roll_ups;
mod scaling;

use std::path::Path;

use self::{
    corpus::Corpus,
    questions::{ask, tree},
};
use crate::{
    child::Outcome,
    figure::{Figure, Goal},
    server::{http::Client, process::Server},
};

/// What to measure.
#[derive(Default)]
struct Options<'a> {
    folder: Option<&'a str>,
    /// With commas; all, where there is none.
    only: Option<&'a str>,
    long: bool,
    pyroscope: Option<&'a str>,
    parca: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a str]) -> Outcome<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--only" => options.only = words.next().copied(),
                "--long" => options.long = true,
                "--pyroscope" => options.pyroscope = words.next().copied(),
                "--parca" => options.parca = words.next().copied(),
                word if word.starts_with("--") => {
                    return Err(format!("unknown option {word} of bench store").into());
                }
                folder => options.folder = Some(folder),
            }
        }
        Ok(options)
    }
}

/// Prints all figures of the part.
pub fn run(words: &[&str]) -> Outcome<()> {
    let options = Options::read(words)?;
    // None needs another: what fails costs only its own figures.
    let parts: [(&str, &dyn Fn() -> Outcome<()>); 5] = [
        ("load", &|| load(&options)),
        ("many_blocks", &many_blocks::run),
        ("copies", &copies::run),
        ("roll_ups", &roll_ups::run),
        ("scaling", &|| scaling::run(options.long)),
    ];
    let names = parts.map(|(name, _)| name);
    let wanted: Vec<&str> = options
        .only
        .map_or(names.to_vec(), |only| only.split(',').collect());
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(name)) {
        return Err(format!(
            "bench store has no part {unknown}; it has {}",
            names.join(", ")
        )
        .into());
    }
    let mut failed = Vec::new();
    for (name, part) in parts {
        if !wanted.contains(&name) {
            continue;
        }
        if let Err(error) = part() {
            println!("# {name} failed: {error}");
            failed.push(name);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("without figures: {}", failed.join(", ")).into()),
    }
}

fn load(options: &Options) -> Outcome<()> {
    let corpus = match options.folder {
        Some(folder) => corpus::read(Path::new(folder))?,
        None => corpus::generated(&corpus::SMALL)?,
    };
    let count: usize = corpus.pushes.iter().map(Vec::len).sum();
    println!("# {count} profiles, {} samples", corpus.samples);
    peers::run(&corpus, options.pyroscope, options.parca)?;
    one_load(&corpus)
}

fn one_load(corpus: &Corpus) -> Outcome<()> {
    let mut server = Server::start()?;
    ingest::run(&server, corpus)?;
    disk::run(&server, corpus)?;
    let warm = questions::run(&server, corpus)?;
    let peak = server.peak_rss_mib()?;
    let peers = "pyroscope(research):815MB,parca(research):5280MB";
    figure("rss_peak", peak, "MiB", Goal::AtMost(256.0), peers);
    disk::forget_pages(&server.data)?;
    server.kill_and_restart()?;
    let ready = server.ready_seconds;
    let peers = "pyroscope(research):3.6s";
    figure("ready_after_kill", ready, "s", Goal::AtMost(0.5), peers);
    let mut client = Client::connect(server.port)?;
    disk::forget_pages(&server.data)?;
    let (cold, _) = ask(&server, &mut client, &tree(corpus, Some(8192)))?;
    figure("cold_to_warm", cold / warm, "x", Goal::AtMost(2.0), "");
    ingest::idle(&server, corpus)
}

fn figure(name: &str, value: f64, unit: &str, goal: Goal, peer: &str) {
    Figure::print_of("store", name, value, unit, goal, peer);
}
