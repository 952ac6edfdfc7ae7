//! Stores made of copies of real blocks: a start over a gigabyte, what a sample costs a scan, and
//! how much faster all CPUs are than one.

use std::{fs, path::Path, process::Command, thread};

use super::{
    corpus::{self, Corpus},
    figure, ingest,
    questions::{ask, tree},
};
use crate::{
    child::{Outcome, build, scratch},
    figure::Goal,
    server::{
        http::Client,
        process::{Server, example},
    },
};

const GIGABYTE: u64 = 1_000_000_000;
/// Some tens of millions of samples.
const SCANNED_BYTES: u64 = 40_000_000;
/// The best of so many counts: whatever else runs on the machine takes one of its CPUs at times.
const REPEATS: usize = 25;

/// Prints them.
pub fn run() -> Outcome<()> {
    let corpus = corpus::generated(&corpus::SMALL)?;
    let server = Server::start()?;
    ingest::push(&server, &corpus)?;
    let from = server.data.clone();
    drop(server);
    reopen(&from)?;
    speedup(&from, &corpus)
}

fn reopen(from: &Path) -> Outcome<()> {
    let data = copied(from, "server-gigabyte", GIGABYTE)?;
    let mut server = Server::still_over_data(data.clone())?;
    server.wait_for_index()?;
    server.kill_and_restart()?;
    let ready = server.ready_seconds;
    figure("ready_1gb", ready, "s", Goal::AtMost(2.0), "");
    drop(server);
    fs::remove_dir_all(&data)?;
    Ok(())
}

fn speedup(from: &Path, corpus: &Corpus) -> Outcome<()> {
    let cpus = thread::available_parallelism()?.get();
    if cpus < 2 {
        println!("# parallel_speedup: this machine has one CPU");
        return Ok(());
    }
    let data = copied(from, "server-parallel", SCANNED_BYTES)?;
    let target = tree(corpus, Some(8192));
    let mut samples = 0.0;
    let mut wall = |server: Server| -> Outcome<f64> {
        let mut client = Client::connect(server.port)?;
        let rows = target.replacen("/tree?", "/tree.json?", 1);
        samples = ingest::number_behind(&mut client, &rows, "\"samples\":")? as f64;
        ask(&server, &mut client, &target)?;
        let mut best = f64::INFINITY;
        for _ in 0..REPEATS {
            best = best.min(ask(&server, &mut client, &target)?.1);
        }
        Ok(best)
    };
    let one = wall(Server::still_on_one_cpu(data.clone())?)?;
    let all = wall(Server::still_over_data(data.clone())?)?;
    println!("# a scan of {samples} samples on one CPU {one:.0} ms, on {cpus} {all:.0} ms");
    let each = one * 1e6 / samples;
    let peers = "DuckDB(research):19ns,DataFusion(research):25ns";
    figure("scan_ns_a_sample", each, "ns", Goal::AtMost(10.0), peers);
    let goal = Goal::AtLeast(0.7 * cpus.min(4) as f64);
    figure("parallel_speedup", one / all, "x", goal, "");
    fs::remove_dir_all(&data)?;
    Ok(())
}

fn copied(from: &Path, name: &str, bytes: u64) -> Outcome<std::path::PathBuf> {
    let data = scratch(name)?;
    fs::remove_dir_all(&data)?;
    let mut copy = Command::new(example("many_blocks")?);
    build(copy.arg(&data).arg(bytes.to_string()).arg(from))?;
    Ok(data)
}
