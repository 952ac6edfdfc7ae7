//! `bench agent`: what the host agent's sampler by BPF costs, on a machine that idles and on one that is busy.
//!
//! The peer's figures are those of OpenTelemetry's eBPF profiler as measured on a machine of this kind (research), at
//! its own frequencies; group `otel` starts it.

use crate::child::{Outcome, Readings, readings};
use crate::figure::{Figure, Goal};
use pilotlight_bench_kit::{process_cpu_ns, rss_kib, thread_cpu_ns};
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Sampler, SamplerOptions};
use std::sync::Arc;
use std::time::Duration;

const SECONDS: u64 = 10;

/// Prints the figures of the part, or of the named `groups` of it. Needs root.
pub fn run(groups: &[&str]) -> Outcome<()> {
    type Group = (&'static str, fn() -> Outcome<()>);
    const ALL: [Group; 8] = [
        ("ticks", ticks),
        ("bursts", crate::agent_bursts::run),
        ("tables", crate::agent_tables::run),
        ("walks", crate::agent_walk::run),
        ("floods", crate::agent_flood::run),
        ("many", crate::agent_many::run),
        ("otel", crate::agent_otel::run),
        ("oracle", crate::agent_oracle::run),
    ];
    let names = ALL.map(|(name, _)| name);
    if let Some(unknown) = groups.iter().find(|group| !names.contains(group)) {
        return Err(format!("no group {unknown:?} in {names:?}").into());
    }
    for (name, run) in ALL {
        if groups.is_empty() || groups.contains(&name) {
            run()?;
        }
    }
    Ok(())
}

fn ticks() -> Outcome<()> {
    for frequency_hz in ["19", "97"] {
        for load in ["idle", "busy"] {
            let program = std::env::current_exe()?;
            let run = readings(&program, &["agent-child", frequency_hz, load])?;
            print(&run, frequency_hz, load)?;
        }
    }
    Ok(())
}

fn print(run: &Readings, frequency_hz: &str, load: &str) -> Outcome<()> {
    let of = |name: &str| format!("{name}_{frequency_hz}hz_{load}");
    let figure = |name: &str, value, unit, goal, peer| {
        Figure::print_of("agent", &of(name), value, unit, goal, peer)
    };
    let share = |name| {
        Ok::<f64, Box<dyn std::error::Error>>(run.get(name)? / (SECONDS as f64 * 1e9) * 100.0)
    };
    // A third of 12 % of a core on a machine full of compilers.
    figure(
        "cpu",
        share("cpu_ns")? + share("bpf_ns")?,
        "%",
        Goal::AtMost(4.0),
        "otel(research):12%_97hz_compilers",
    );
    figure(
        "bpf_cpu",
        share("bpf_ns")?,
        "%",
        Goal::AtMost(0.2),
        "otel(research):0.60%_97hz",
    );
    let runs = run.get("runs")?;
    figure(
        "ns_a_tick",
        run.get("bpf_ns")? / runs.max(1.0),
        "ns",
        Goal::AtMost(10_300.0),
        "otel(research):30900ns",
    );
    let frames = run.get("frames")?;
    // What a tick took in the study that the design stands on, where stacks had 15.3 frames.
    figure(
        "ns_a_tick_and_frame",
        run.get("bpf_ns")? / runs.max(1.0) / frames.max(1.0),
        "ns",
        Goal::AtMost(10_300.0 / 15.3),
        "spike(research):673ns",
    );
    figure("frames_a_tick", frames, "", Goal::None, "otel(research):nc");
    figure(
        "rss_without_tables",
        run.get("rss_bytes")? / 1e6,
        "MB",
        Goal::AtMost(64.0),
        "otel(research):64-150MB",
    );
    // What an idle machine lacks is idle: perf does not see it either, and work in bursts is seen (group `bursts`).
    let completeness = match load {
        "idle" => Goal::None,
        _ => Goal::AtLeast(99.5),
    };
    figure(
        "completeness",
        runs / run.get("expected")? * 100.0,
        "%",
        completeness,
        "",
    );
    figure(
        "accounted",
        run.get("accounted")? * 100.0,
        "%",
        Goal::AtLeast(99.5),
        "",
    );
    figure(
        "verified_instructions",
        run.get("verified")?,
        "",
        Goal::AtMost(20_000.0),
        "otel(research):nc",
    );
    figure(
        "start_cpu",
        run.get("start_ns")? / 1e6,
        "ms",
        Goal::AtMost(100.0),
        "otel(research):3400ms",
    );
    figure(
        "bytes_a_row",
        run.get("bytes_a_row")?,
        "B",
        Goal::AtMost(5.0),
        "otel(research):8-16B",
    );
    figure("rows", run.get("rows")?, "", Goal::None, "");
    Ok(())
}

/// One measuring process: samples the whole machine for a while and says what it took.
pub fn measure(frequency_hz: &str, load: &str) -> Outcome<()> {
    let options = SamplerOptions {
        frequency_hz: frequency_hz.parse()?,
        ..SamplerOptions::default()
    };
    let workers = match load {
        "busy" => start_work()?,
        _ => Vec::new(),
    };
    let processes = Arc::new(Processes::new());
    let before_ns = thread_cpu_ns();
    let engine = pilotlight_host_agent::bpf::load(&options)?;
    let start_ns = thread_cpu_ns() - before_ns;
    drop(engine);
    let _statistics = pilotlight_host_agent::bpf::enable_run_time_statistics()?;
    let mut sampler = BpfSampler::start(&options, Arc::clone(&processes))?;
    wait_for_tables(&mut sampler)?;
    let programs = |sampler: &BpfSampler| -> (u64, u64) {
        let programs = sampler.programs();
        let sum = programs.iter().map(|p| p.run_time_ns).sum();
        let tick = programs.iter().find(|p| p.name == "on_tick");
        (sum, tick.map_or(0, |p| p.runs))
    };
    let (cpu_ns, (bpf_ns, runs)) = (process_cpu_ns(), programs(&sampler));
    let began = std::time::Instant::now();
    std::thread::sleep(Duration::from_secs(SECONDS));
    let batch = sampler.drain()?;
    let elapsed = began.elapsed().as_secs_f64();
    let (cpu_after_ns, (bpf_after_ns, runs_after)) = (process_cpu_ns(), programs(&sampler));
    let tables = sampler.tables();
    let sampled: u64 = batch.samples.iter().map(|sample| sample.count).sum();
    let lost = batch.losses.total();
    let cpus = std::thread::available_parallelism()?.get() as f64;
    let frames = batch
        .samples
        .iter()
        .map(|sample| sample.count * (sample.user.len() + sample.kernel.len()) as u64);
    println!(
        "frames {}",
        frames.sum::<u64>() as f64 / sampled.max(1) as f64
    );
    println!("cpu_ns {}", cpu_after_ns - cpu_ns);
    println!("bpf_ns {}", bpf_after_ns - bpf_ns);
    println!("runs {}", runs_after - runs);
    println!(
        "expected {}",
        f64::from(options.frequency_hz) * elapsed * cpus
    );
    println!(
        "accounted {}",
        sampled as f64 / (sampled + lost).max(1) as f64
    );
    println!(
        "rss_bytes {}",
        (rss_kib()? * 1024).saturating_sub(tables.held_bytes)
    );
    println!(
        "verified {}",
        sampler
            .programs()
            .iter()
            .map(|p| p.verified_instructions)
            .sum::<u32>()
    );
    println!("start_ns {start_ns}");
    println!(
        "bytes_a_row {}",
        tables.used_bytes as f64 / tables.rows.max(1) as f64
    );
    println!("rows {}", tables.rows);
    for mut worker in workers {
        let _ = worker.kill();
        let _ = worker.wait();
    }
    Ok(())
}

/// Until the tables of what runs already are made.
fn wait_for_tables(sampler: &mut BpfSampler) -> Outcome<()> {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let mut before = u64::MAX;
    loop {
        std::thread::sleep(Duration::from_secs(3));
        sampler.drain()?;
        let rows = sampler.tables().rows;
        if rows == before || std::time::Instant::now() > until {
            return Ok(());
        }
        before = rows;
    }
}

/// One busy process a CPU, each with deep stacks of native code.
pub fn start_work() -> Outcome<Vec<std::process::Child>> {
    let cpus = std::thread::available_parallelism()?.get();
    let program = "import json\nwhile True:\n json.loads(json.dumps(list(range(2000))))\n";
    let start = |_| {
        std::process::Command::new("python3")
            .args(["-c", program])
            .spawn()
    };
    Ok((0..cpus).map(start).collect::<Result<_, _>>()?)
}
