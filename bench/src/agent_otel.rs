//! `bench agent`, beside OpenTelemetry's eBPF profiler: what each takes as a whole process, start included, one after the
//! other on the same machine with the same load, at 19 Hz, both sending to a server of ours.
//!
//! The peer is not built here: `PILOTLIGHT_OTEL_PROFILER` names its program
//! (<https://github.com/open-telemetry/opentelemetry-ebpf-profiler>, `go build .`; where the limit of locked memory may
//! not be raised it needs the patch that its start survives that). Without it the group says so and measures nothing.

use crate::agent::start_work;
use crate::child::{Outcome, scratch};
use crate::figure::{Figure, Goal};
use pilotlight_host_agent::bpf::{enable_run_time_statistics, run_times};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PEER: &str = "PILOTLIGHT_OTEL_PROFILER";
/// Until tables are made, verifiers have ended, and names of the kernel have been read for a first sample of it.
const SETTLE: Duration = Duration::from_secs(40);
/// The system counts in ticks of 10 ms, and both send every few seconds: a minute tells a hundredth of a percent.
const MEASURE: Duration = Duration::from_secs(60);
/// Of CPU time, beside the peer.
const GOAL: f64 = 1.0 / 3.0;

/// What one of them took.
struct Cost {
    /// CPU time up to the begin of the measurement, seconds.
    start: f64,
    /// Shares of a CPU.
    agent: f64,
    bpf: f64,
    rss_mb: f64,
}

/// A child that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints both, and the ratios. Needs root, and `pilotlight` beside this program.
pub fn run() -> Outcome<()> {
    let Some(peer) = std::env::var_os(PEER).map(PathBuf::from) else {
        eprintln!("{PEER} does not name OpenTelemetry's profiler: not measured beside it");
        return Ok(());
    };
    let own = std::env::current_exe()?.with_file_name("pilotlight");
    let (_server, port) = server(&own)?;
    // The peer sends no files that name addresses.
    let config = scratch("otel-data")?.join("agent.yaml");
    std::fs::write(&config, "agent: {debuginfo: {upload: false}}\n")?;
    let _statistics = enable_run_time_statistics()?;
    for load in ["idle", "busy"] {
        let workers = match load {
            "busy" => start_work()?,
            _ => Vec::new(),
        };
        let _workers: Vec<Running> = workers.into_iter().map(Running).collect();
        let server = format!("http://127.0.0.1:{port}");
        let ours = cost(
            Command::new(&own)
                .args(["agent", "--server", &server, "--config"])
                .arg(&config),
        )?;
        let theirs = cost(Command::new(&peer).args([
            "-collection-agent",
            &format!("127.0.0.1:{port}"),
            "-disable-tls",
            "-samples-per-second",
            "19",
        ]))?;
        print(&ours, &theirs, load);
    }
    Ok(())
}

fn print(ours: &Cost, theirs: &Cost, load: &str) {
    let figure = |name: &str, value: f64, unit, goal, other: f64| {
        let name = format!("beside_otel_{name}_{load}");
        let peer = format!("otel:{other:.3}{unit}");
        Figure::print_of("agent", &name, value, unit, goal, &peer);
    };
    let (own, other) = (ours.agent + ours.bpf, theirs.agent + theirs.bpf);
    figure("cpu", own * 100.0, "%", Goal::None, other * 100.0);
    figure("cpu_ratio", own / other, "", Goal::AtMost(GOAL), 1.0);
    figure(
        "bpf_cpu",
        ours.bpf * 100.0,
        "%",
        Goal::None,
        theirs.bpf * 100.0,
    );
    figure(
        "start_cpu",
        ours.start,
        "s",
        Goal::AtMost(theirs.start),
        theirs.start,
    );
    // Our tables lie in memory that is shared with the kernel, and count; the peer's in maps, and do not.
    figure("rss", ours.rss_mb, "MB", Goal::None, theirs.rss_mb);
}

/// Starts the program, lets it settle, and measures it.
fn cost(command: &mut Command) -> Outcome<Cost> {
    let before: Vec<u32> = run_times().into_iter().map(|(number, _)| number).collect();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut running = Running(child);
    std::thread::sleep(SETTLE);
    let bpf = || -> (usize, u64) {
        let new = run_times()
            .into_iter()
            .filter(|(number, _)| !before.contains(number));
        new.fold((0, 0), |(n, sum), (_, ns)| (n + 1, sum + ns))
    };
    let pid = running.0.id();
    let (start, (programs, bpf_before), began) = (cpu_seconds(pid)?, bpf(), Instant::now());
    std::thread::sleep(MEASURE);
    let (cpu, (_, bpf_after), elapsed) = (cpu_seconds(pid)?, bpf(), began.elapsed());
    if running.0.try_wait()?.is_some() || programs == 0 {
        return Err(format!("{command:?} does not sample").into());
    }
    Ok(Cost {
        start,
        agent: (cpu - start) / elapsed.as_secs_f64(),
        bpf: bpf_after.saturating_sub(bpf_before) as f64 / elapsed.as_nanos() as f64,
        rss_mb: rss_mb(pid)?,
    })
}

/// CPU time of a process, to the tick of 10 ms.
fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    // SAFETY: no preconditions.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(ticks / hz as f64)
}

fn rss_mb(pid: u32) -> Outcome<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.ok_or("no VmRSS")? * 1024.0 / 1e6)
}

fn server(program: &Path) -> Outcome<(Running, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let data = scratch("otel-data")?;
    std::fs::remove_dir_all(&data)?;
    let child = Command::new(program)
        .args(["server", "--listen", &format!("127.0.0.1:{port}"), "--data"])
        .arg(&data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}: build pilotlight-cli first", program.display()))?;
    let running = Running(child);
    let until = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > until {
            return Err("the server does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok((running, port))
}
