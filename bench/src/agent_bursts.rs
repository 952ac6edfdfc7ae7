//! `bench agent`, programs that work in bursts on a machine that is idle otherwise: does the clock tick in each?
//!
//! On an idle machine half of the ticks of all CPUs are missing. They are missing to perf too, which sees 772 samples of
//! one CPU and 3 of the other in 8 s: a clock that is stopped while its CPU idles is stopped for all. What is asked here
//! is whether anything but idle is lost: a program on one CPU works a little in each period, and the time that its
//! samples stand for is held against what the system says it used. perf samples the same seconds.

use crate::child::{Outcome, Readings, readings};
use crate::figure::{Figure, Goal};
use pilotlight_bench_kit::thread_cpu_ns;
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Sampler, SamplerOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FREQUENCY_HZ: u32 = 497;
const SECONDS: u64 = 20;
/// Microseconds of work, and of work and rest.
const BURSTS: [(u64, u64); 2] = [(1000, 10_000), (300, 5000)];

/// Prints the share of each. Needs root; perf where it is there.
pub fn run() -> Outcome<()> {
    for (work, every) in BURSTS {
        let program = std::env::current_exe()?;
        let args = ["agent-bursts", &work.to_string(), &every.to_string()];
        print(&readings(&program, &args)?, work, every)?;
    }
    Ok(())
}

fn print(run: &Readings, work: u64, every: u64) -> Outcome<()> {
    let used_ns = run.get("used_ns")?;
    let period_ns = 1e9 / f64::from(FREQUENCY_HZ);
    let share = |samples: f64| samples * period_ns / used_ns * 100.0;
    // How often chance lets a clock tick in a burst.
    let ticks = used_ns / period_ns;
    let noise = 4.0 / ticks.sqrt() * 100.0;
    let perf = run.get("perf_samples")?;
    let peer = match perf > 0.0 {
        true => format!("perf:{:.1}%", share(perf)),
        false => "perf:nc".to_owned(),
    };
    Figure::print_of(
        "agent",
        &format!("bursts_{work}us_of_{every}us"),
        share(run.get("samples")?),
        "%",
        Goal::AtLeast(95.0 - noise),
        &peer,
    );
    Ok(())
}

/// One measuring process.
pub fn measure(work_us: &str, every_us: &str) -> Outcome<()> {
    let options = SamplerOptions {
        frequency_hz: FREQUENCY_HZ,
        ..SamplerOptions::default()
    };
    let mut sampler = BpfSampler::start(&options, Arc::new(Processes::new()))?;
    // Tables of what runs here are made meanwhile.
    std::thread::sleep(Duration::from_secs(3));
    let recorded = std::env::temp_dir().join(format!("pilotlight-bursts-{}", std::process::id()));
    let perf = record(&recorded);
    std::thread::sleep(Duration::from_secs(1));
    sampler.drain()?;
    let seconds = SECONDS.to_string();
    let mut worker = Command::new(std::env::current_exe()?)
        .args(["agent-burster", work_us, every_us, &seconds])
        .stdout(Stdio::piped())
        .spawn()?;
    let pid = worker.id();
    let used_ns = used_by(&mut worker)?;
    let batch = sampler.drain()?;
    let own = batch.samples.iter().filter(|s| s.process.pid == pid);
    println!("samples {}", own.map(|sample| sample.count).sum::<u64>());
    println!("used_ns {used_ns}");
    println!(
        "perf_samples {}",
        perf.map_or(0, |perf| seen(perf, &recorded, pid))
    );
    let _ = std::fs::remove_file(&recorded);
    Ok(())
}

/// CPU time that the system counted for a child, by the time it is gone.
fn used_by(worker: &mut Child) -> Outcome<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: fills both; the pid is that of a child that nobody else waits for.
    let waited = unsafe {
        libc::wait4(
            worker.id() as libc::pid_t,
            &mut status,
            0,
            usage.as_mut_ptr(),
        )
    };
    if waited < 0 || status != 0 {
        return Err(format!("the working program ended with {status}").into());
    }
    // SAFETY: filled above; zeros are a value of it too.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Ok(ns(usage.ru_utime) + ns(usage.ru_stime))
}

/// perf, over all CPUs until it is interrupted; `None` where it is not there.
fn record(to: &Path) -> Option<Child> {
    Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F"])
        .arg(FREQUENCY_HZ.to_string())
        .arg("-o")
        .arg(to)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

/// Samples of `pid` in what perf wrote.
fn seen(mut perf: Child, recorded: &Path, pid: u32) -> u64 {
    // SAFETY: a signal to a child that was not waited for.
    unsafe { libc::kill(perf.id() as libc::pid_t, libc::SIGINT) };
    let _ = perf.wait();
    let script = Command::new("perf")
        .args(["script", "-F", "pid", "-i"])
        .arg(recorded)
        .output();
    let text = script.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let of_it = |line: &&str| line.trim().parse() == Ok(pid);
    text.lines().filter(of_it).count() as u64
}

/// The program: works `work_us` of each `every_us` for `seconds`, on the last CPU.
pub fn burst(work_us: &str, every_us: &str, seconds: &str) -> Outcome<()> {
    let (work_ns, every) = (
        work_us.parse::<u64>()? * 1000,
        Duration::from_micros(every_us.parse()?),
    );
    let cpus = std::thread::available_parallelism()?.get();
    pin(cpus - 1)?;
    let until = Instant::now() + Duration::from_secs(seconds.parse()?);
    let mut next = Instant::now();
    while next < until {
        let began = thread_cpu_ns();
        while thread_cpu_ns() - began < work_ns {
            std::hint::spin_loop();
        }
        next += every;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn pin(cpu: usize) -> Outcome<()> {
    // SAFETY: zeros are an empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is one of this machine's, fewer than the set has room for.
    unsafe { libc::CPU_SET(cpu, &mut cpus) };
    // SAFETY: reads the set, whose size it is told.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&cpus), &cpus) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}
