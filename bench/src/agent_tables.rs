//! `bench agent`, the folder of tables: what the tables of all that runs here cost an agent that finds none, and the next.

use crate::child::{Outcome, scratch};
use crate::figure::{Figure, Goal};
use pilotlight_bench_kit::process_cpu_ns;
use pilotlight_host_agent::files::{Files, TableCounts};
use pilotlight_host_agent::process::Processes;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const BUDGET_BYTES: u64 = 256 << 20;

/// Prints what the second start takes. Needs root for the files of others.
pub fn run() -> Outcome<()> {
    let folder = scratch("agent-tables")?;
    std::fs::remove_dir_all(&folder)?;
    // On a machine where nothing runs there is nothing to build: a compiler that waits for its input.
    let mut program = Command::new("rustc")
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(1));
    let outcome = two_starts(&folder);
    let _ = program.kill();
    let _ = program.wait();
    outcome
}

fn two_starts(folder: &Path) -> Outcome<()> {
    // The files themselves are in the kernel's cache for both.
    start(&folder.join("warm"))?;
    let (first_ns, first) = start(&folder.join("kept"))?;
    let (second_ns, second) = start(&folder.join("kept"))?;
    std::fs::remove_dir_all(folder)?;
    let figure = |name, value, unit, goal| Figure::print_of("agent", name, value, unit, goal, "");
    figure("tables_first_start_cpu", first_ns / 1e6, "ms", Goal::None);
    figure("tables_second_start_cpu", second_ns / 1e6, "ms", Goal::None);
    figure(
        "tables_second_of_first",
        second_ns / first_ns * 100.0,
        "%",
        Goal::AtMost(25.0),
    );
    let [built, again, bytes] =
        [first.built, second.built, second.kept_bytes].map(|n: u64| n as f64);
    figure("tables_built_first", built, "", Goal::None);
    figure("tables_built_second", again, "", Goal::AtMost(0.0));
    figure("tables_kept_bytes", bytes / 1e6, "MB", Goal::None);
    Ok(())
}

/// The tables of all processes; the CPU time that they took.
fn start(folder: &Path) -> Outcome<(f64, TableCounts)> {
    let before_ns = process_cpu_ns();
    let processes = Processes::with_files(Files::kept_in(folder, BUDGET_BYTES)?);
    for entry in std::fs::read_dir("/proc")?.flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|pid| pid.parse().ok()) {
            processes.modules(pid);
        }
    }
    let took_ns = (process_cpu_ns() - before_ns) as f64;
    Ok((took_ns, processes.files().counts()))
}
