//! The only build helper of the project: `cargo xtask test|ci|bench|ui|fuzz|e2e|deps-budget`.
//!
//! Map: [`tools`] finds and installs what the tests need, [`runner`] builds and runs every test in a
//! process of its own under a watchdog, [`elsewhere`] those for other targets, [`budget`] holds the
//! SDK's dependency budget, [`bpf`] builds and compares the agent's BPF objects, [`kernels`] runs them on
//! other kernels, [`generated`] compares built files with their sources, [`steps`] runs a
//! command and says what failed.

mod bpf;
mod budget;
mod elsewhere;
mod generated;
mod kernels;
mod runner;
mod steps;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  test [FILTER]       every test: Rust, Go, browser, end to end (installs missing tools as root)
  e2e                 only the tests that start everything as a user would
  ci                  fmt, clippy, generated files, licences, fuzz, then test
  bench PART [ARGS]   figures beside the peers: profile, unwind, sdk, storm, server, store, symbolize, ui, agent, build
  ui                  rebuild ui/dist from ui/web
  bpf                 rebuild host-agent-bpf/objects from its C sources (clang-19)
  kernels [VMLINUZ…]  the agent's BPF programs on other kernels, in qemu
  fuzz [SECONDS]      every fuzz target for SECONDS (default 60)
  miri                unit tests of the SDK's unsafe code under miri, which sees undefined behaviour
  deps-budget         the SDK's default dependency tree against its budget
  tools               which tools the tests need and which are here";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "test" => test(rest.first().map(String::as_str)),
        "e2e" => test(Some("pilotlight-tests")),
        "ci" => ci(),
        "bench" => bench(rest),
        "ui" => generated::build_ui(),
        "bpf" => bpf::build(),
        "kernels" => kernels::run(rest),
        "fuzz" => fuzz(rest.first().map_or("60", String::as_str)),
        "miri" => miri(),
        "deps-budget" => budget::check(),
        "tools" => tools::ensure(false).map(|()| tools::python_engines()),
        _ => Err(USAGE.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn test(filter: Option<&str>) -> Result<(), String> {
    tools::ensure(true)?;
    tools::add_targets();
    tools::build_object_store()?;
    tools::python_engines();
    runner::install_page_tests()?;
    let mut tally = runner::Tally::default();
    runner::rust_tests(filter, &mut tally)?;
    if filter.is_none() {
        runner::doc_tests(&mut tally)?;
        runner::ui_tests(&mut tally);
    }
    tally.finish()
}

fn ci() -> Result<(), String> {
    let started = std::time::Instant::now();
    tools::ensure(true)?;
    tools::python_engines();
    tools::add_targets();
    steps::cargo(&["fmt", "--all", "--check"])?;
    let clippy = [
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--features=pilotlight-cli/s3,pilotlight/macros,pilotlight/opentelemetry,pilotlight/tracing,pilotlight-symbolize/tables",
        "--locked",
    ];
    steps::cargo(&[&clippy[..], &["--", "-D", "warnings"][..]].concat())?;
    check_other_targets()?;
    budget::check()?;
    generated::check_ui()?;
    bpf::check()?;
    tools::deny()?;
    // The others take minutes to build: `cargo xtask fuzz`.
    tools::fuzz_ready()?;
    fuzz_target("decode", "60")?;
    eprintln!("checks took {} s", started.elapsed().as_secs());
    test(None)
}

/// Unit tests that need neither assembly nor the kernel: what they use of unsafe code is all there.
const MIRI: &[&str] = &[
    "aggregate::tests::a_stack_under",
    "aggregate::tests::equal_stacks",
    "context::tests::leaving",
    "context::tests::threads_have_words",
    "handler::scratch::",
    "heap::live::",
    "heap::pace::",
    "heap::rows::",
    "heap::sampler::tests::weights",
    "http::head::",
    "http::query::",
    "kind::",
    "labels::",
    "pages::tests::threads",
    // Its threads are the model checker's affair.
    "ring::tests::a_",
    "ring::tests::context",
    "sites::tests::equal_stacks",
    "sites::tests::threads_at_once",
    // The other one asks for a thread's CPU clock.
    "slots::tests::a_sample",
    "spans::nodes::tests::a_span",
    "tree::",
    "wall::look::",
    "wall::prologue::",
];

/// Not a part of `ci`: it needs a nightly toolchain, and interprets what it runs.
fn miri() -> Result<(), String> {
    tools::miri_ready()?;
    let what = ["-p", "pilotlight", "--no-default-features", "--lib"];
    let target = ["--target-dir=target/miri", "--"];
    // Statics keep what they hold until the end. Clocks are asked for.
    let flags = "MIRIFLAGS=-Zmiri-disable-isolation -Zmiri-ignore-leaks";
    let miri = [flags, "cargo", "+nightly", "miri", "test"];
    steps::run("env", &[&miri[..], &what, &target, MIRI].concat(), "")
}

/// The SDK compiles for other processors and systems; that needs no linker.
fn check_other_targets() -> Result<(), String> {
    for target in [
        "aarch64-unknown-linux-gnu",
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
    ] {
        if !tools::has_target(target) {
            println!("SKIP: the check for {target}: run `rustup target add {target}`");
            continue;
        }
        let target = format!("--target={target}");
        let packages = ["-p", "pilotlight", "-p", "pilotlight-unwind"];
        let check = ["check", "--release", "--locked", &target];
        steps::cargo(&[&check[..], &packages].concat())?;
    }
    Ok(())
}

fn bench(args: &[String]) -> Result<(), String> {
    if args.first().is_some_and(|part| part == "storm") {
        return storm();
    }
    let mut command = vec![
        "run",
        "--release",
        "--quiet",
        "-p",
        "pilotlight-bench",
        "--bin",
        "bench",
        "--",
    ];
    command.extend(args.iter().map(String::as_str));
    steps::cargo(&command)
}

/// The SDK's signal storms, long enough for ten million signals.
fn storm() -> Result<(), String> {
    let mut delivered = 0;
    for place in ["malloc", "dlopen", "thread_churn", "fork"] {
        let name = format!("storm_over_{place}");
        let lines = steps::lines_of(
            "env",
            &[
                "PILOTLIGHT_STORM_SECONDS=40",
                "cargo",
                "test",
                "--release",
                "-p",
                "pilotlight",
                "--test",
                "storm",
                &name,
                "--",
                "--nocapture",
            ],
        )?;
        let counts = lines
            .iter()
            .filter_map(|line| line.split_once("Stats { delivered: "));
        delivered += counts
            .filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok())
            .sum::<u64>();
    }
    let verdict = if delivered >= 10_000_000 {
        "ok"
    } else {
        "MISS"
    };
    println!("FIGURE sdk/storm_signals_all_accounted value={delivered} goal=10000000 {verdict}");
    storm_all(600)
}

/// Everything at once; fails by itself when it crashes, hangs or loses a signal.
fn storm_all(seconds: u64) -> Result<(), String> {
    let seconds_variable = format!("PILOTLIGHT_STORM_SECONDS={seconds}");
    let test = [
        "cargo",
        "test",
        "--release",
        "-p",
        "pilotlight",
        "--test",
        "storm_all",
    ];
    steps::run(
        "env",
        &[&[seconds_variable.as_str()][..], &test].concat(),
        "",
    )?;
    println!("FIGURE sdk/storm_all_seconds value={seconds} goal=600 ok");
    Ok(())
}

fn fuzz(seconds: &str) -> Result<(), String> {
    tools::fuzz_ready()?;
    for target in steps::lines_of("cargo", &["+nightly", "fuzz", "list"])? {
        fuzz_target(target.trim(), seconds)?;
    }
    Ok(())
}

fn fuzz_target(target: &str, seconds: &str) -> Result<(), String> {
    let limit = format!("-max_total_time={seconds}");
    let features = match target {
        "decode" => "",
        agent if agent.starts_with("agent_") => "agent",
        _ => "all",
    };
    steps::cargo(&[
        "+nightly",
        "fuzz",
        "run",
        "--features",
        features,
        target,
        "--",
        &limit,
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
    ])?;
    Ok(())
}
