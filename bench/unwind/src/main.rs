//! One measuring process of `bench unwind`: `repeat DEPTH` or `random DEPTH`.
//!
//! Each reading is one stack unwound inside a real signal handler, timed by the vDSO clock there.
//! The methods take turns in blocks of signals. Prints `method_what value` lines.

mod counting;
mod frame_pointer;
#[cfg(feature = "unwinders")]
mod framehop_peer;
mod handler;
#[cfg(feature = "unwinders")]
mod libgcc;
#[cfg(feature = "unwinders")]
mod table;

use std::{error::Error, process::ExitCode};

use handler::{Harness, Method, Reading};
use pilotlight_bench_kit::{Rng, SITES, at_depth, at_sites, middle_mean, send_to_self};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const ROUNDS: usize = 24;
const BLOCK: usize = 32;
/// The "2,000 random call sites".
const LIVE_SITES: usize = 2_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pattern, depth] = words.as_slice() else {
        return Err("usage: repeat DEPTH | random DEPTH".into());
    };
    let depth: usize = depth.parse()?;
    let harness = Harness::install()?;
    let methods = methods()?;
    let mut readings: Vec<Vec<Reading>> = methods.iter().map(|_| Vec::new()).collect();
    match pattern.as_str() {
        "repeat" => at_depth(depth, &mut || {
            for_each_signal(&methods, &harness, &mut readings, || {
                send_to_self(libc::SIGPROF)
            });
        }),
        "random" => random(depth, &methods, &harness, &mut readings),
        other => return Err(format!("no pattern {other:?}").into()),
    };
    let mut nothing: Vec<f64> = readings[0].iter().map(|r| r.nanoseconds).collect();
    let nothing_ns = middle_mean(&mut nothing);
    for (method, readings) in methods.iter().zip(&readings).skip(1) {
        print(method, readings, nothing_ns);
    }
    Ok(())
}

/// Costs of the harness itself.
const NOTHING: Method = Method {
    name: "nothing",
    walk: |_, _| 0,
};

/// All that this build can measure, [`NOTHING`] first.
fn methods() -> Result<Vec<Method>, Box<dyn Error>> {
    #[cfg(not(feature = "unwinders"))]
    return Ok(vec![
        NOTHING,
        Method {
            name: "frame_pointer",
            walk: frame_pointer::walk,
        },
    ]);
    #[cfg(feature = "unwinders")]
    {
        table::prepare()?;
        framehop_peer::prepare()?;
        Ok(vec![
            NOTHING,
            Method {
                name: "table",
                walk: table::walk,
            },
            Method {
                name: "framehop",
                walk: framehop_peer::walk,
            },
            Method {
                name: "libgcc",
                walk: libgcc::walk,
            },
        ])
    }
}

fn random(
    depth: usize,
    methods: &[Method],
    harness: &Harness,
    readings: &mut [Vec<Reading>],
) -> u64 {
    let mut rng = Rng::new(depth as u64);
    let mut path = vec![0u16; depth];
    const { assert!(LIVE_SITES <= SITES) };
    for_each_signal(methods, harness, readings, || {
        path.fill_with(|| rng.below(LIVE_SITES) as u16);
        at_sites(&path, &mut || send_to_self(libc::SIGPROF));
    });
    0
}

fn for_each_signal(
    methods: &[Method],
    harness: &Harness,
    readings: &mut [Vec<Reading>],
    mut signal: impl FnMut(),
) {
    for _ in 0..ROUNDS {
        for (method, readings) in methods.iter().zip(readings.iter_mut()) {
            for _ in 0..BLOCK {
                harness.arm(method);
                signal();
                readings.push(harness.reading());
            }
        }
    }
}

/// Net times: those of a walk that does nothing are taken off.
fn print(method: &Method, readings: &[Reading], nothing_ns: f64) {
    let frames = readings.iter().map(|r| r.frames).min().unwrap_or(0);
    let mut per_frame: Vec<f64> = readings
        .iter()
        .map(|r| (r.nanoseconds - nothing_ns) / r.frames.max(1) as f64)
        .collect();
    let allocations: u64 = readings.iter().map(|r| r.allocations).sum();
    println!("{}_ns {}", method.name, middle_mean(&mut per_frame));
    println!("{}_frames {frames}", method.name);
    println!("{}_allocations {allocations}", method.name);
}
