//! `pilotlight agent` over programs that know nothing of it: their hot functions by name on the server.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

#[path = "agent/events.rs"]
mod events;
#[path = "agent/export.rs"]
mod export;
#[path = "agent/files.rs"]
mod files;
#[path = "agent/itself.rs"]
mod itself;

use pilotlight_tests::process::{Program, Scratch, built};
use pilotlight_tests::{http, server, wait_for};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("agent")
        .join(name)
}

/// A server, and an agent without BPF.
struct Pair {
    _server: Program,
    agent: Program,
    port: u16,
}

fn profile(scratch: &Scratch, pids: &[u32]) -> Pair {
    let (server, port) = server::start(scratch.path(), "server", |_| {});
    let agent = agent(scratch, port, pids);
    Pair {
        _server: server,
        agent,
        port,
    }
}

/// Samples `pids`, and answers on a port of the system's choice.
fn agent(scratch: &Scratch, port: u16, pids: &[u32]) -> Program {
    agent_with(scratch, port, pids, "")
}

/// With more settings, each followed by a comma.
fn agent_with(scratch: &Scratch, port: u16, pids: &[u32], more: &str) -> Program {
    start_agent(scratch, port, pids, more, &["--no-bpf"])
}

fn start_agent(scratch: &Scratch, port: u16, pids: &[u32], more: &str, words: &[&str]) -> Program {
    let file = scratch.path().join("agent.yaml");
    let upload = "debuginfo: {jitter: 0s, bytes_per_second: 1GB}";
    let config = format!("agent: {{{more} interval: 2s, listen: '127.0.0.1:0', {upload}}}\n");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(built("pilotlight"));
    command.args(["agent", "--frequency-hz", "97", "--config"]);
    command.arg(&file).args(words);
    command.args(["--server", &format!("http://127.0.0.1:{port}")]);
    for pid in pids {
        command.args(["--pid", &pid.to_string()]);
    }
    Program::start("agent", scratch.path(), &mut command)
}

/// Waits until functions named like `function` have at least `least` of the CPU time of a program.
fn is_hot(port: u16, service: &str, function: &str, least: f64) {
    let selection = http::encode(&format!("{{service_name=\"{service}\",source=\"agent\"}}"));
    let path = format!("/api/v1/top?type=cpu&q={selection}&from=now-10m&until=now&limit=1000");
    wait_for(
        &format!("{function} of {service}"),
        Duration::from_secs(60),
        || {
            let top = http::json(port, &path)?;
            let rows = top["rows"].as_array().into_iter().flatten();
            let named = rows.filter(|row| row["name"].as_str().unwrap_or("").contains(function));
            let hot = named
                .filter_map(|row| row["total"].as_f64())
                .fold(0.0, f64::max);
            let total = top["total"].as_f64().unwrap_or(0.0);
            if total > 0.0 && hot >= least * total {
                Ok(())
            } else {
                Err(top.to_string().chars().take(3000).collect())
            }
        },
    );
}

/// Builds the C++ program under a name of its own; frames need unwind tables.
fn hot_in_cpp(scratch: &Scratch, name: &str) -> PathBuf {
    cpp(scratch, "hot.cpp", name)
}

fn cpp(scratch: &Scratch, file: &str, name: &str) -> PathBuf {
    let program = scratch.path().join(name);
    let compiled = Command::new("g++")
        .args(["-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-o"])
        .arg(&program)
        .arg(source(file))
        .status();
    let done = compiled.is_ok_and(|status| status.success());
    assert!(done, "g++ is needed");
    program
}

#[test]
fn a_cpp_program_shows_its_hot_function() {
    let scratch = Scratch::new("agent-cpp");
    let program = hot_in_cpp(&scratch, "hot-cpp");
    let running = Program::start("hot-cpp", scratch.path(), &mut Command::new(&program));
    let pair = profile(&scratch, &[running.id()]);
    is_hot(pair.port, "hot-cpp", "hot_in_cpp", 0.8);
    holds_only_what_it_needs(pair.agent.id());
    nothing_was_refused(&pair.agent);
}

/// The agent runs with more than this as root, and gives it away before it starts a thread.
fn holds_only_what_it_needs(pid: u32) {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
    {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(found.unwrap().trim(), 16).unwrap()
        };
        // DAC_READ_SEARCH, SYS_PTRACE, SYSLOG, PERFMON, BPF, CHECKPOINT_RESTORE
        let kept = [2, 19, 34, 38, 39, 40]
            .iter()
            .fold(0, |mask, bit| mask | 1u64 << bit);
        assert_eq!((line("CapPrm:") & !kept, line("CapEff:") & !kept), (0, 0));
        assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), (1, 2));
    }
}

/// Everything it does is in its list of calls.
fn nothing_was_refused(agent: &Program) {
    let answer = http::get_within(agent_port(agent), "/metrics", Duration::from_secs(10)).unwrap();
    let text = String::from_utf8_lossy(&answer.body);
    let refused = text
        .lines()
        .filter(|line| line.starts_with("pilotlight_agent_refused_calls_total{"));
    assert_eq!(refused.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_node_program_shows_its_hot_function() {
    let scratch = Scratch::new("agent-node");
    let mut command = Command::new("node");
    command
        .arg("--perf-basic-prof")
        .arg(source("../../host-agent/tests/programs/hot.js"));
    command.current_dir(scratch.path());
    let running = Program::start("node", scratch.path(), &mut command);
    let pair = profile(&scratch, &[running.id()]);
    is_hot(pair.port, "node", "hotInScript", 0.6);
    nothing_was_refused(&pair.agent);
}

#[test]
fn a_python_program_shows_the_native_function_that_it_spends_its_time_in() {
    let scratch = Scratch::new("agent-python");
    let code = "import time\nend = time.time() + 120\nwhile time.time() < end: sorted(range(100000, 0, -1), key=float)\n";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", code]);
    let running = Program::start("python", scratch.path(), &mut command);
    let exe = std::fs::read_link(format!("/proc/{}/exe", running.id())).unwrap();
    let name = exe.file_name().unwrap().to_str().unwrap().to_owned();
    let pair = profile(&scratch, &[running.id()]);
    is_hot(pair.port, &name, "PyEval_EvalCode", 0.5);
}

/// Scripts are seen by BPF alone.
#[test]
fn a_python_program_shows_its_hot_function_by_name() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("SKIP: BPF programs are loaded by root only (CAP_BPF, CAP_PERFMON)");
        return;
    }
    let asked = Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print(sys.version_info[1])"])
        .output();
    let said = asked.map(|output| output.stdout).unwrap_or_default();
    if ![b"11\n", b"12\n", b"13\n"]
        .iter()
        .any(|minor| said == *minor)
    {
        println!("SKIP: /usr/bin/python3 is not CPython 3.11 to 3.13");
        return;
    }
    let scratch = Scratch::new("agent-script");
    let code = "import time\ndef hot_in_script(n):\n    return sum(i * i for i in range(n))\n\
        def main():\n    end = time.time() + 120\n    while time.time() < end:\n        hot_in_script(10000)\nmain()\n";
    std::fs::write(scratch.path().join("hot.py"), code).unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.arg("hot.py").current_dir(scratch.path());
    let running = Program::start("script", scratch.path(), &mut command);
    let exe = std::fs::read_link(format!("/proc/{}/exe", running.id())).unwrap();
    let name = exe.file_name().unwrap().to_str().unwrap().to_owned();
    let (_server, port) = server::start(scratch.path(), "server", |_| {});
    let agent = start_agent(&scratch, port, &[running.id()], "", &[]);
    // Stacks of the first moments are walked without scripts.
    is_hot(port, &name, "hot_in_script", 0.5);
    nothing_was_refused(&agent);
}

/// Builds the Go program with flags for its linker, under a name of its own.
fn hot_in_go(scratch: &Scratch, name: &str, flags: &str) -> Program {
    let program = scratch.path().join(name);
    let built = Command::new("go")
        .args(["build", "-ldflags", flags, "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source("go"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "go is needed");
    Program::start(name, scratch.path(), &mut Command::new(&program))
}

#[test]
fn go_programs_show_their_hot_function_as_built_and_stripped() {
    let scratch = Scratch::new("agent-go");
    // As it is built: no program header covers its GNU build id. Without that and stripped: Go's id and Go's tables.
    let programs = [
        hot_in_go(&scratch, "go-built", ""),
        hot_in_go(&scratch, "go-stripped", "-s -w -B none"),
    ];
    let pair = profile(&scratch, &[programs[0].id(), programs[1].id()]);
    is_hot(pair.port, "go-built", "main.hotInGo", 0.8);
    is_hot(pair.port, "go-stripped", "main.hotInGo", 0.8);
    nothing_was_refused(&pair.agent);
}

/// Where the agent answers, once it samples.
fn agent_port(agent: &Program) -> u16 {
    wait_for("the agent", Duration::from_secs(60), || {
        let output = agent.output();
        let port = || {
            let line = output.lines().find(|line| line.starts_with("metrics"))?;
            let (_, rest) = line.split_once("127.0.0.1:")?;
            rest.strip_suffix("/metrics")?.parse().ok()
        };
        port().ok_or(output.clone())
    })
}

/// The value of a line of `/metrics`; 0 where there is none.
fn metric(port: u16, name: &str) -> Result<f64, String> {
    let answer = http::get_within(port, "/metrics", Duration::from_secs(10))?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Ok(value.unwrap_or(0.0))
}

/// A shell that does nothing but run, with a variable of its own.
fn spin(scratch: &Scratch, zone: &str) -> Program {
    let mut command = Command::new("sh");
    command
        .args(["-c", "while :; do :; done"])
        .env("ZONE", zone);
    Program::start("spin", scratch.path(), &mut command)
}
