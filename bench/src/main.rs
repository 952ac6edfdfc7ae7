//! Side-by-side measurements against peers: `cargo xtask bench PART`.
//!
//! Every figure is one line `FIGURE part/name value=… goal=… peer=… ok|MISS`. Peers are measured in
//! the same run, in alternating passes; times are CPU times, and the best or the middle of several
//! passes counts, so that a busy machine blurs a figure as little as possible.
//!
//! | part | what | peers |
//! |---|---|---|
//! | `profile` | decode with validity check, encode, four bombs | google/pprof, prost |
//! | `unwind` | ns a frame in a signal handler | frame pointers, framehop, libgcc |
//! | `sdk` | handler, start, report, overhead, accuracy | pprof-rs with its three unwinders |
//! | `agent` | the host agent: ticks, bursts, walks, tables, floods, and whether perf sees the same | OpenTelemetry's eBPF profiler (measured once; beside us: group `otel`), perf |
//! | `sdk await` | a poll under spans and labels | async-backtrace, tracing |
//! | `server` | ingest, acknowledgement, bytes, flame graph | Pyroscope, Parca (measured once) |
//! | `edges` | requests beside 1,000 slow connections | without them |
//! | `store` | a load from socket to blocks, bytes, questions warm and cold, 100,000 blocks, growth | Pyroscope, Parca (measured once, or running ones by URL) |
//! | `symbolize` | lookups in a table, building it, a gigabyte of DWARF, upload to names, differences to LLVM | blazesym, llvm-symbolizer |
//! | `ui` | the page in headless Chromium (`npm run bench` of `ui/web`) | - |
//! | `build` | a cold release build of the binary; minutes of work | - |
//!
//! Peers are built on demand below `target/bench`; `profile` needs Go.

mod agent;
mod agent_bursts;
mod agent_flood;
mod agent_many;
mod agent_oracle;
mod agent_otel;
mod agent_tables;
mod agent_walk;
mod child;
mod cold_build;
mod edges;
mod figure;
mod generator;
mod profile;
mod sdk;
mod server;
mod store;
mod symbolize;
mod ui;
mod unwind;

use std::{path::Path, process::ExitCode};

use child::Outcome;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[String]) -> Outcome<()> {
    match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["profile"] => profile::run(),
        // One measuring process of `profile`.
        ["bomb", path] => profile::measure_bomb(Path::new(path)),
        ["unwind"] => unwind::run(),
        ["sdk", groups @ ..] => sdk::run(groups),
        ["server"] => server::run(),
        ["edges"] => edges::run(),
        ["store", words @ ..] => store::run(words),
        ["symbolize", words @ ..] => symbolize::run(words),
        ["ui"] => ui::run(),
        ["agent", groups @ ..] => agent::run(groups),
        // One measuring process of `agent`.
        ["agent-child", frequency_hz, load] => agent::measure(frequency_hz, load),
        ["agent-bursts", work, every] => agent_bursts::measure(work, every),
        ["agent-burster", work, every, seconds] => agent_bursts::burst(work, every, seconds),
        ["agent-many"] => agent_many::measure(),
        ["agent-walk", depth] => agent_walk::measure(depth),
        ["agent-flood", kind] => agent_flood::measure(kind),
        ["agent-flooder", kind] => agent_flood::flood(kind),
        ["agent-work", depth] => agent_walk::work(depth),
        ["build"] => cold_build::run(),
        _ => Err("usage: bench profile | unwind | sdk [GROUP…] | server \
             | edges | store [FOLDER] [--long] [--pyroscope URL] [--parca URL] \
             | symbolize [GROUP… | OBJECT] | ui | agent [GROUP…] | build"
            .into()),
    }
}
