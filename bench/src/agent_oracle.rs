//! `bench agent`, a third opinion: perf's unwinder (`--call-graph dwarf`, in user space) and our walk in the kernel look
//! at one program at the same time.
//!
//! Compared are inclusive shares of the kinds of work that the agent's victim does, each of which is hard to unwind in
//! its own way, and how many stacks lead to where their thread began.

use crate::child::{CargoBuild, Outcome, scratch};
use crate::figure::{Figure, Goal};
use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::{Process, Processes};
use pilotlight_host_agent::{Sampler, SamplerOptions};
use pilotlight_symbolize::Object;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const FREQUENCY_HZ: u32 = 199;
const SECONDS: &str = "12";
/// Parts of symbols: what the victim does, and where its two threads begin.
const KINDS: [&str; 8] = [
    "recurse_deeply",
    "sort_by_libc",
    "catch_a_panic",
    "read_the_clock",
    "copy_memory",
    "read_from_the_kernel",
    "allocate",
    "open_a_library",
];
const BEGINNINGS: [&str; 2] = ["lang_start", "thread_start"];

/// Shares of one unwinder's samples.
#[derive(Default)]
struct Seen {
    samples: u64,
    kinds: [u64; KINDS.len()],
    from_the_beginning: u64,
}

impl Seen {
    /// Counts a stack by the symbols in it.
    fn see(&mut self, symbols: &[String], count: u64) {
        let has = |part: &str| symbols.iter().any(|symbol| symbol.contains(part));
        self.samples += count;
        for (kind, sum) in KINDS.iter().zip(&mut self.kinds) {
            *sum += if has(kind) { count } else { 0 };
        }
        let begins = BEGINNINGS.iter().any(|part| has(part));
        self.from_the_beginning += if begins { count } else { 0 };
    }

    fn share(&self, n: u64) -> f64 {
        n as f64 / self.samples.max(1) as f64 * 100.0
    }
}

/// Prints how far the two are apart. Needs root and perf.
pub fn run() -> Outcome<()> {
    let build = CargoBuild {
        folder: "host-agent-bpf",
        variant: "victim",
        args: &["--bin", "pilotlight-victim"],
        frame_pointers: false,
    };
    let program = build.run()?.join("pilotlight-victim");
    let mut victim = Command::new(&program)
        .arg("60")
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = compare(&program, &mut victim);
    let _ = victim.kill();
    let _ = victim.wait();
    outcome
}

fn compare(program: &Path, victim: &mut Child) -> Outcome<()> {
    let out = victim.stdout.take().ok_or("no stdout")?;
    BufReader::new(out).read_line(&mut String::new())?;
    let pid = victim.id();
    let processes = Arc::new(Processes::new());
    let options = SamplerOptions {
        frequency_hz: FREQUENCY_HZ,
        pids: vec![pid],
        ..SamplerOptions::default()
    };
    let mut sampler = BpfSampler::start(&options, Arc::clone(&processes))?;
    // Tables are made.
    std::thread::sleep(Duration::from_secs(3));
    sampler.drain()?;
    let stacks = perf(pid)?;
    let batch = sampler.drain()?;
    let process = processes.current(pid).ok_or("the victim ended")?;
    let names = Names {
        object: Object::parse(std::fs::read(program)?)?,
        process: &process,
    };
    let (mut ours, mut of_perf) = (Seen::default(), Seen::default());
    for sample in &batch.samples {
        let symbols = sample.user.iter().filter_map(|&at| names.symbol(at));
        ours.see(&symbols.collect::<Vec<_>>(), sample.count);
    }
    for symbols in &stacks {
        of_perf.see(symbols, 1);
    }
    print(&ours, &of_perf);
    Ok(())
}

fn print(ours: &Seen, of_perf: &Seen) {
    let figure = |name: &str, value, unit, goal, peer: &str| {
        Figure::print_of("agent", name, value, unit, goal, peer);
    };
    let mut worst = 0f64;
    for (at, kind) in KINDS.iter().enumerate() {
        let (own, other) = (ours.share(ours.kinds[at]), of_perf.share(of_perf.kinds[at]));
        worst = worst.max((own - other).abs());
        let peer = format!("perf:{other:.1}%");
        figure(&format!("oracle_{kind}"), own, "%", Goal::None, &peer);
    }
    // Four standard errors of a share of a third in two such lots.
    let least = ours.samples.min(of_perf.samples).max(1) as f64;
    let noise = 4.0 * (2.0 * 0.33 * 0.67 / least).sqrt() * 100.0;
    let samples = format!("samples:{}+{}", ours.samples, of_perf.samples);
    figure(
        "oracle_worst",
        worst,
        "points",
        Goal::AtMost(noise),
        &samples,
    );
    let other = of_perf.share(of_perf.from_the_beginning);
    let peer = format!("perf:{other:.2}%");
    let own = ours.share(ours.from_the_beginning);
    figure(
        "oracle_from_the_beginning",
        own,
        "%",
        Goal::AtLeast(99.5),
        &peer,
    );
}

/// Records, and reads the symbols of each stack back.
fn perf(pid: u32) -> Outcome<Vec<Vec<String>>> {
    let file = scratch("oracle")?.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--event", "cpu-clock"]);
    record.args(["--freq", &FREQUENCY_HZ.to_string()]);
    record.args(["--call-graph", "dwarf,32768", "--pid", &pid.to_string()]);
    record
        .arg("--output")
        .arg(&file)
        .args(["--", "sleep", SECONDS]);
    let status = record.status();
    let status = status.map_err(|error| format!("perf: {error}; install linux-perf"))?;
    if !status.success() {
        return Err(format!("{record:?} ended with {status}").into());
    }
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "--fields", "ip,sym", "--input"]);
    let output = script.arg(&file).stderr(Stdio::null()).output()?;
    std::fs::remove_file(&file)?;
    let text = String::from_utf8_lossy(&output.stdout);
    // An address and a symbol a line, a line without either between two stacks.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let stacks = lines.split(|line| line.is_empty());
    let symbols = |stack: &[&str]| {
        let symbol = |line: &&str| line.split_once(' ').map(|(_, symbol)| symbol.to_owned());
        stack.iter().filter_map(symbol).collect()
    };
    Ok(stacks
        .filter(|stack| !stack.is_empty())
        .map(symbols)
        .collect())
}

struct Names<'a> {
    object: Object,
    process: &'a Process,
}

impl Names<'_> {
    /// The victim's own symbol at an address, as the linker knows it.
    fn symbol(&self, address: u64) -> Option<String> {
        let mapping = self.process.mapping(address)?;
        if !mapping.path.ends_with(b"pilotlight-victim") {
            return None;
        }
        let offset = address - mapping.start + mapping.file_offset;
        let symbol = self
            .object
            .symbol(self.object.file_offset_to_svma(offset)?)?;
        Some(String::from_utf8_lossy(symbol.name).into_owned())
    }
}
