//! `bench agent`, the walk itself: what a tick costs whatever it meets, and what each frame adds.
//!
//! The programs walked have stacks of a known number of frames, each frame another function, and turn over more memory
//! than the nearest caches hold between two ticks, as real programs do.

use crate::child::{Outcome, readings};
use crate::figure::{Figure, Goal};
use pilotlight_bench_kit::{Rng, SITES, at_sites};
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Sampler, SamplerOptions};
use std::hint::black_box;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

const SHALLOW: usize = 16;
const DEEP: usize = 128;
const SECONDS: u64 = 6;
/// More than the second cache of a core.
const TURNED_OVER_BYTES: usize = 4 << 20;

/// Prints what two depths come to.
pub fn run() -> Outcome<()> {
    let program = std::env::current_exe()?;
    let of_depth = |depth: usize| -> Outcome<(f64, f64)> {
        let run = readings(&program, &["agent-walk", &depth.to_string()])?;
        Ok((run.get("frames")?, run.get("ns")?))
    };
    let (few, few_ns) = of_depth(SHALLOW)?;
    let (many, many_ns) = of_depth(DEEP)?;
    let each_ns = (many_ns - few_ns) / (many - few).max(1.0);
    let figure =
        |name, value, unit, goal, peer| Figure::print_of("agent", name, value, unit, goal, peer);
    figure("walk_frames_shallow", few, "", Goal::None, "");
    figure("walk_ns_shallow", few_ns, "ns", Goal::AtMost(10_300.0), "");
    figure("walk_frames_deep", many, "", Goal::None, "");
    figure("walk_ns_deep", many_ns, "ns", Goal::None, "");
    figure("walk_ns_a_frame", each_ns, "ns", Goal::None, "");
    figure(
        "walk_ns_fixed",
        few_ns - few * each_ns,
        "ns",
        Goal::None,
        "",
    );
    Ok(())
}

/// One measuring process: samples programs whose stacks are `depth` frames deep.
pub fn measure(depth: &str) -> Outcome<()> {
    let cpus = std::thread::available_parallelism()?.get();
    let program = std::env::current_exe()?;
    let start = |_| Command::new(&program).args(["agent-work", depth]).spawn();
    let workers: Vec<Child> = (0..cpus).map(start).collect::<Result<_, _>>()?;
    let outcome = sample(&workers);
    for mut worker in workers {
        let _ = worker.kill();
        let _ = worker.wait();
    }
    outcome
}

fn sample(workers: &[Child]) -> Outcome<()> {
    let options = SamplerOptions {
        frequency_hz: 97,
        ..SamplerOptions::default()
    };
    let _statistics = pilotlight_host_agent::bpf::enable_run_time_statistics()?;
    let mut sampler = BpfSampler::start(&options, Arc::new(Processes::new()))?;
    std::thread::sleep(Duration::from_secs(3));
    sampler.drain()?;
    let tick = |sampler: &BpfSampler| {
        let programs = sampler.programs();
        let tick = programs.iter().find(|program| program.name == "on_tick");
        tick.map_or((0, 0), |tick| (tick.run_time_ns, tick.runs))
    };
    let before = tick(&sampler);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let after = tick(&sampler);
    let batch = sampler.drain()?;
    let pids: Vec<u32> = workers.iter().map(Child::id).collect();
    let of_workers = batch
        .samples
        .iter()
        .filter(|s| pids.contains(&s.process.pid));
    let (mut frames, mut samples) = (0, 0);
    for sample in of_workers {
        frames += sample.count * (sample.user.len() + sample.kernel.len()) as u64;
        samples += sample.count;
    }
    println!("frames {}", frames as f64 / samples.max(1) as f64);
    println!(
        "ns {}",
        (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
    );
    Ok(())
}

/// The program that is walked; it ends with its parent.
pub fn work(depth: &str) -> Outcome<()> {
    let depth: usize = depth.parse()?;
    // SAFETY: a system call of plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut memory = vec![1u8; TURNED_OVER_BYTES];
    // As many different stacks as a busy program has.
    let paths: Vec<Vec<u16>> = (0..64)
        .map(|_| (0..depth).map(|_| rng.below(SITES) as u16).collect())
        .collect();
    loop {
        for path in &paths {
            at_sites(path, &mut || {
                for _ in 0..8 {
                    memory
                        .iter_mut()
                        .step_by(64)
                        .for_each(|byte| *byte = byte.wrapping_mul(3));
                }
                black_box(&memory);
            });
        }
    }
}
