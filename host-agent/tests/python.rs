//! Frames of CPython among those of native code, of programs that run under every version that is here.

#![allow(clippy::unwrap_used)]

use pilotlight_host_agent::bpf::BpfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::runtimes::{find, is_frame, survey};
use pilotlight_host_agent::{Sample, Sampler, SamplerOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/frames.py")
}

/// Debian's own, which must be one of them, and what else is installed of 3.11 to 3.13.
fn interpreters() -> Vec<PathBuf> {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: BPF programs are loaded by root only (CAP_BPF, CAP_PERFMON)");
        return Vec::new();
    }
    let debian = PathBuf::from("/usr/bin/python3");
    let mut found = vec![debian.clone()];
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions"));
    found.extend(
        versions
            .into_iter()
            .flatten()
            .flatten()
            .map(|version| version.path().join("bin/python3")),
    );
    found.retain(|python| is_known(python));
    found.sort();
    println!("frames of {found:?}");
    if !found.contains(&debian) {
        println!("SKIP: {debian:?} is not CPython 3.11 to 3.13");
    }
    found
}

fn is_known(python: &Path) -> bool {
    let asked = Command::new(python)
        .args(["-c", "import sys; print(*sys.version_info[:2])"])
        .stderr(Stdio::null())
        .output();
    let said = asked.map(|output| output.stdout).unwrap_or_default();
    [b"3 11\n", b"3 12\n", b"3 13\n"]
        .iter()
        .any(|version| said == *version)
}

/// The line of the program that carries `mark`.
fn line(mark: &str) -> u32 {
    let text = std::fs::read_to_string(program()).unwrap();
    let mark = format!("# {mark}");
    let found = text.lines().position(|line| line.ends_with(&mark));
    found.unwrap() as u32 + 1
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(python: &Path, kind: &str) -> Running {
        let mut command = Command::new(python);
        command.arg(program()).arg(kind);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, out };
        assert_eq!(running.line(), "ready\n");
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `name:line` of a script's frame, leaf first; `-` for native frames, however many in a row.
fn shown(sample: &Sample, processes: &Processes) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for &word in &sample.user {
        if !is_frame(word) {
            if out.last().is_none_or(|last| last != "-") {
                out.push("-".to_owned());
            }
            continue;
        }
        let frame = processes.runtimes().frame(sample.process, word);
        out.push(frame.map_or("?".to_owned(), |frame| {
            let own = Path::new(&frame.function.file) == program();
            let place = if own { "" } else { "elsewhere " };
            format!("{place}{}:{}", frame.function.name, frame.line)
        }));
    }
    out
}

struct Taken {
    /// Thread, stack, samples.
    stacks: Vec<(u32, Vec<String>, u64)>,
}

impl Taken {
    fn count(&self, which: impl Fn(u32, &[String]) -> bool) -> u64 {
        let wanted = self
            .stacks
            .iter()
            .filter(|(tid, stack, _)| which(*tid, stack));
        wanted.map(|(.., count)| count).sum()
    }

    fn all(&self) -> u64 {
        self.count(|_, _| true)
    }
}

/// At least `wanted` samples, walked by the kernel.
fn sample(pid: u32, wanted: u64) -> Taken {
    let options = SamplerOptions {
        frequency_hz: 797,
        pids: vec![pid],
        kernel: false,
        ..SamplerOptions::default()
    };
    let processes = Arc::new(Processes::new());
    let mut sampler = BpfSampler::start(&options, Arc::clone(&processes)).unwrap();
    let mut taken = Taken { stacks: Vec::new() };
    let until = Instant::now() + Duration::from_secs(100);
    while taken.all() < wanted && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        let mut samples = sampler.drain().unwrap().samples;
        // The first of a process are walked without the kernel's help, and have no thread.
        samples.retain(|sample| sample.tid != 0);
        let shown = samples
            .iter()
            .map(|sample| (sample.tid, shown(sample, &processes), sample.count));
        taken.stacks.extend(shown);
        processes.sweep();
    }
    assert!(taken.all() >= wanted, "{} samples in 100 s", taken.all());
    taken
}

/// What may stand above `spin`, leaf first; `?` for native frames that only some versions have there.
fn expected() -> Vec<(&'static str, Vec<String>)> {
    let at = |name: &str, mark: &str| format!("{name}:{}", line(mark));
    let native = || "-".to_owned();
    let deep = std::iter::once(at("deep", "BOTTOM")).chain(vec![at("deep", "DEEP"); 20]);
    vec![
        ("deep", deep.chain([at("main", "CALLS")]).collect()),
        (
            "key",
            vec![at("key", "KEY"), native(), at("by_sorted", "SORTED")],
        ),
        (
            "add",
            vec![at("add", "ADD"), native(), at("by_reduce", "REDUCE")],
        ),
        (
            "numbers",
            vec![at("numbers", "YIELD"), native(), at("by_generator", "SUM")],
        ),
        (
            "Made.__init__",
            vec![
                at("Made.__init__", "INIT"),
                "?".to_owned(),
                at("by_class", "MADE"),
            ],
        ),
        (
            "waits",
            vec![
                at("waits", "AWAITED"),
                "?".to_owned(),
                at("gathers", "AWAITS"),
                native(),
            ],
        ),
    ]
}

fn begins_with(stack: &[String], expected: &[String]) -> bool {
    let mut stack = stack.iter().peekable();
    expected.iter().all(|wanted| match wanted.as_str() {
        "?" => {
            stack.next_if(|frame| *frame == "-");
            true
        }
        _ => stack.next() == Some(wanted),
    })
}

#[test]
fn frames_of_scripts_stand_between_native_ones_with_function_file_and_line() {
    let expected = expected();
    let module = format!("<module>:{}", line("MODULE"));
    for python in interpreters() {
        let running = Running::start(&python, "calls");
        let taken = sample(running.child.id(), 500);
        let mut seen = vec![0; expected.len()];
        let (mut all, mut right, mut in_loop) = (0, 0, 0);
        let mut wrong = Vec::new();
        for (_, stack, count) in &taken.stacks {
            let Some(at) = stack.iter().position(|frame| frame.starts_with("spin:")) else {
                continue;
            };
            all += count;
            let spin = line("SPIN");
            in_loop += count
                * u64::from(
                    [spin - 1, spin]
                        .map(|line| format!("spin:{line}"))
                        .contains(&stack[at]),
                );
            let kind = expected
                .iter()
                .position(|(_, expected)| begins_with(&stack[at + 1..], expected));
            let to_the_root = stack.ends_with(&[module.clone(), "-".to_owned()]);
            match kind.filter(|_| at <= 1 && to_the_root) {
                Some(kind) => {
                    right += count;
                    seen[kind] += count;
                }
                None => wrong.push((count, stack)),
            }
        }
        println!("{python:?}: {right} of {all} right, {seen:?}");
        assert!(
            all * 10 >= taken.all() * 8,
            "{all} of {}: {:?}",
            taken.all(),
            taken.stacks
        );
        assert!(right * 100 >= all * 99, "{right} of {all}: {wrong:#?}");
        assert!(in_loop * 100 >= all * 95, "{in_loop} of {all}");
        let missing = expected.iter().zip(&seen).filter(|(_, seen)| **seen == 0);
        let missing: Vec<&str> = missing.map(|((name, _), _)| *name).collect();
        assert!(missing.is_empty(), "{python:?}: never seen: {missing:?}");
    }
}

#[test]
fn a_functions_share_is_what_the_program_measured() {
    for python in interpreters() {
        let mut running = Running::start(&python, "shares");
        let taken = sample(running.child.id(), 600);
        drop(running.child.stdin.take());
        let said = running.line();
        let spent: Vec<f64> = said
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        let share = spent[0] / (spent[0] + spent[1]);
        let in_function =
            |name: &str| taken.count(|_, stack| stack.iter().any(|frame| *frame == name)) as f64;
        let left = in_function(&format!("left:{}", line("LEFT")));
        let right = in_function(&format!("right:{}", line("RIGHT")));
        let all = left + right;
        println!("{python:?}: {left} and {right}, {share:.3}");
        assert!(
            all >= 500.0 && all >= taken.all() as f64 * 0.95,
            "{all} of {}",
            taken.all()
        );
        // Five standard deviations, and what differs between the time that was measured and the time that was sampled.
        let bound = 5.0 * (share * (1.0 - share) / all).sqrt() + 0.02;
        assert!(
            (left / all - share).abs() < bound,
            "{left} of {all}, {share} measured"
        );
    }
}

#[test]
fn each_thread_has_its_own_frames() {
    let begins = |stack: &[String], name: &str| stack.iter().any(|frame| frame.starts_with(name));
    // Debian's alone: threads are found alike in all versions.
    let python = Path::new("/usr/bin/python3");
    for python in interpreters().into_iter().filter(|found| found == python) {
        let running = Running::start(&python, "threads");
        let pid = running.child.id();
        let taken = sample(pid, 400);
        let main = taken.count(|tid, stack| tid == pid && begins(stack, "main:"));
        let thread = taken.count(|tid, stack| tid != pid && begins(stack, "in_thread:"));
        let wrong = taken
            .count(|tid, stack| begins(stack, if tid == pid { "in_thread:" } else { "main:" }));
        println!("{python:?}: {main} and {thread} of {}", taken.all());
        assert!(wrong * 100 <= taken.all(), "{wrong}: {:?}", taken.stacks);
        assert!(main > 0 && thread > 0, "{main} {thread}");
        assert!(
            (main + thread) * 100 >= taken.all() * 80,
            "{main} {thread}: {:?}",
            taken.stacks
        );
    }
}

#[test]
fn runtimes_are_known_by_what_they_export_and_the_survey_says_what_is_seen_of_them() {
    // A name that says nothing.
    let name = std::env::temp_dir().join(format!("pilotlight-unnamed-{}", std::process::id()));
    std::fs::copy("/usr/bin/perl", &name).unwrap();
    let mut perl = Command::new(&name);
    let perl = perl.args(["-e", "$| = 1; print \"ready\\n\"; sleep 1000"]);
    let mut child = perl.stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running { child, out };
    assert_eq!(running.line(), "ready\n");
    let seen = survey();
    let _ = std::fs::remove_file(name);
    println!("{seen:?}");
    let perl = seen.iter().find(|seen| seen.runtime == "Perl").unwrap();
    assert!(perl.processes >= 1 && !perl.supported, "{perl:?}");
    assert!(perl.scripts.contains("not seen"), "{perl:?}");
    let file = std::fs::File::open("/usr/bin/python3").unwrap();
    let found = find(&file).unwrap();
    assert!(found.to_string().starts_with("CPython 3."), "{found}");
    assert_eq!(found.is_walked(), is_known(Path::new("/usr/bin/python3")));
}
