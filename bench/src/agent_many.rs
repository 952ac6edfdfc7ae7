//! `bench agent`, many large programs that begin at once: what the agent takes at its peak, while it makes tables of
//! compilers and of a file of a gigabyte.

use crate::child::{Outcome, readings, scratch};
use crate::figure::{Figure, Goal};
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Sampler, SamplerOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of each program.
const EACH: usize = 6;
const GIGABYTE: u64 = 1 << 30;
/// Of a hostile host too.
const PEAK_MB: f64 = 250.0;

/// Prints the peak. Needs root; programs that are not here are left out.
pub fn run() -> Outcome<()> {
    let program = std::env::current_exe()?;
    let run = readings(&program, &["agent-many"])?;
    let figure = |name, value, unit, goal| Figure::print_of("agent", name, value, unit, goal, "");
    let peak = run.get("peak_kib")? * 1024.0 / 1e6;
    figure("many_peak_rss", peak, "MB", Goal::AtMost(PEAK_MB));
    let rest = run.get("rss_kib")? * 1024.0 / 1e6;
    figure("many_rss_afterwards", rest, "MB", Goal::AtMost(PEAK_MB));
    let tables = run.get("table_bytes")? / 1e6;
    figure("many_kernel_tables", tables, "MB", Goal::None);
    figure("many_rows", run.get("rows")?, "", Goal::None);
    figure("many_programs", run.get("programs")?, "", Goal::None);
    Ok(())
}

/// One measuring process.
pub fn measure() -> Outcome<()> {
    let mut sampler = BpfSampler::start(&SamplerOptions::default(), Arc::new(Processes::new()))?;
    let mut programs = start_all()?;
    let rows = wait_for_tables(&mut sampler);
    for program in &mut programs {
        let _ = program.kill();
        let _ = program.wait();
    }
    println!("rows {}", rows?);
    println!("programs {}", programs.len());
    println!("table_bytes {}", sampler.tables().held_bytes);
    let status = std::fs::read_to_string("/proc/self/status")?;
    for (name, key) in [("peak_kib", "VmHWM:"), ("rss_kib", "VmRSS:")] {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next());
        println!("{name} {}", kib.unwrap_or_default());
    }
    Ok(())
}

/// Compilers that read a program which never ends to work for a while, and a shell of a gigabyte.
fn start_all() -> Outcome<Vec<Child>> {
    let huge = huge()?;
    let huge = huge.to_str().ok_or("a path that is no text")?;
    let busy = "while :; do :; done";
    let lines: [&[&str]; 5] = [
        &["rustc", "--crate-type=lib", "-o", "/dev/null", "-"],
        &["clang-19", "-x", "c", "-c", "-o", "/dev/null", "-"],
        &["node", "-e", "for (;;) JSON.parse('[1,2]')"],
        &["python3", "-c", "while True: pass"],
        &[huge, "-c", busy],
    ];
    let mut started = Vec::new();
    for words in lines.iter().cycle().take(lines.len() * EACH) {
        let mut command = Command::new(words[0]);
        let command = command.args(&words[1..]).stdin(Stdio::piped());
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        started.extend(quiet.spawn());
    }
    Ok(started)
}

/// The shell, with nothing behind it up to its size.
fn huge() -> Outcome<PathBuf> {
    let path = scratch("agent-many")?.join("huge");
    std::fs::copy("/bin/sh", &path)?;
    let file = std::fs::File::options().write(true).open(&path)?;
    file.set_len(GIGABYTE)?;
    Ok(path)
}

/// Until no more rows come; how many there are.
fn wait_for_tables(sampler: &mut BpfSampler) -> Outcome<u64> {
    let until = Instant::now() + Duration::from_secs(60);
    let (mut before, mut still) = (0, 0);
    while still < 3 && Instant::now() < until {
        std::thread::sleep(Duration::from_secs(2));
        sampler.drain()?;
        let rows = sampler.tables().rows;
        still = if rows == before { still + 1 } else { 0 };
        before = rows;
    }
    Ok(before)
}
