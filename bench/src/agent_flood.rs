//! `bench agent`, floods: what a process that maps memory without end takes of an agent that samples the whole machine.

use crate::child::{Outcome, readings};
use crate::figure::{Figure, Goal};
use pilotlight_bench_kit::process_cpu_ns;
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Sampler, SamplerOptions};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECONDS: u64 = 6;
/// Mappings that are held at a time, each at another place.
const SPREAD: usize = 500;

/// Prints what each kind of flood takes. Needs root.
pub fn run() -> Outcome<()> {
    let program = std::env::current_exe()?;
    // A page of a file again and again; many of them; many without a file.
    for kind in ["file", "spread", "anonymous"] {
        let run = readings(&program, &["agent-flood", kind])?;
        let figure = |name: &str, value, unit, goal| {
            Figure::print_of(
                "agent",
                &format!("flood_{name}_{kind}"),
                value,
                unit,
                goal,
                "otel(research):nc",
            );
        };
        figure("cpu", run.get("cpu")? * 100.0, "%", Goal::AtMost(2.0));
        figure("bpf_cpu", run.get("bpf")? * 100.0, "%", Goal::None);
        figure("mappings", run.get("mappings")?, "/s", Goal::None);
        figure("samples", run.get("samples")?, "", Goal::None);
    }
    Ok(())
}

/// One measuring process: samples the machine while another maps without end.
pub fn measure(kind: &str) -> Outcome<()> {
    let program = std::env::current_exe()?;
    let mut flooder = Command::new(&program)
        .args(["agent-flooder", kind])
        .spawn()?;
    let outcome = sample();
    let _ = flooder.kill();
    let _ = flooder.wait();
    outcome
}

fn sample() -> Outcome<()> {
    let _statistics = pilotlight_host_agent::bpf::enable_run_time_statistics()?;
    let options = SamplerOptions::default();
    let mut sampler = BpfSampler::start(&options, Arc::new(Processes::new()))?;
    // Tables are made, and the flood is known.
    std::thread::sleep(Duration::from_secs(3));
    sampler.drain()?;
    let bpf_ns = |sampler: &BpfSampler| -> u64 {
        let programs = sampler.programs();
        programs.iter().map(|program| program.run_time_ns).sum()
    };
    let before = (Instant::now(), process_cpu_ns(), bpf_ns(&sampler));
    std::thread::sleep(Duration::from_secs(SECONDS));
    let batch = sampler.drain()?;
    let elapsed_ns = before.0.elapsed().as_nanos() as f64;
    let left_out = batch.met.of("mappings_left_out");
    let samples: u64 = batch.samples.iter().map(|sample| sample.count).sum();
    let share = |after: u64, before: u64| (after - before) as f64 / elapsed_ns;
    println!("cpu {}", share(process_cpu_ns(), before.1));
    println!("bpf {}", share(bpf_ns(&sampler), before.2));
    println!("mappings {}", left_out as f64 / elapsed_ns * 1e9);
    println!("samples {samples}");
    Ok(())
}

/// The process that maps; it ends with its parent.
pub fn flood(kind: &str) -> Outcome<()> {
    // SAFETY: a system call of plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let file = std::fs::File::open("/proc/self/exe")?;
    let (flags, file) = match kind {
        "anonymous" => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        _ => (libc::MAP_PRIVATE, file.as_raw_fd()),
    };
    let most = if kind == "file" { 0 } else { SPREAD };
    let access = libc::PROT_READ | libc::PROT_EXEC;
    let mut held = VecDeque::new();
    loop {
        // SAFETY: new memory, of which nothing is used; that which goes was mapped here.
        unsafe {
            held.push_back(libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                flags,
                file,
                0,
            ));
            if held.len() > most
                && let Some(at) = held.pop_front()
            {
                libc::munmap(at, 4096);
            }
        }
    }
}
