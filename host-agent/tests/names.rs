//! Names of code that runtimes make, of programs that run.

#![allow(clippy::unwrap_used)]

use pilotlight_host_agent::names::{JitNames, Kallsyms, function};
use pilotlight_host_agent::perf::PerfSampler;
use pilotlight_host_agent::process::{Process, Processes};
use pilotlight_host_agent::{Sample, Sampler, SamplerOptions};
use pilotlight_tests::process::{Program, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// Samples `program` until `named` of its samples have a frame of this name; a minute at most.
fn until_named(pid: u32, name: &str, wanted: u64) {
    let processes = Arc::new(Processes::new());
    let options = SamplerOptions {
        frequency_hz: 97,
        pids: vec![pid],
        ..SamplerOptions::default()
    };
    let mut sampler = PerfSampler::start(&options, Arc::clone(&processes)).unwrap();
    let mut names = JitNames::default();
    let (mut named, mut all) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while named < wanted && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
        let samples = sampler.drain().unwrap().samples;
        let Some(process) = processes.current(pid) else {
            break;
        };
        names.refresh(&process, true);
        for sample in samples {
            all += sample.count;
            named += if is_named(&sample, &process, &names, name) {
                sample.count
            } else {
                0
            };
        }
    }
    assert!(
        named >= wanted,
        "{named} of {all} samples have a frame {name}"
    );
}

fn is_named(sample: &Sample, process: &Process, names: &JitNames, name: &str) -> bool {
    let mut jit = sample.user.iter().filter(|&&address| {
        process
            .mapping(address)
            .is_some_and(|mapping| !mapping.is_file())
    });
    jit.any(|&address| {
        names
            .find(address)
            .is_some_and(|found| function(found).name.contains(name))
    })
}

#[test]
fn functions_of_node_are_named_by_its_perf_map() {
    let scratch = Scratch::new("agent-node");
    let mut command = Command::new("node");
    command.arg("--perf-basic-prof").arg(source("hot.js"));
    // where it puts a log of its own
    command.current_dir(scratch.path());
    let program = Program::start("node", scratch.path(), &mut command);
    until_named(program.id(), "hotInScript", 30);
}

#[test]
fn methods_of_java_are_named_after_it_was_asked_for_them() {
    let scratch = Scratch::new("agent-java");
    std::fs::copy(source("Hot.java"), scratch.path().join("Hot.java")).unwrap();
    let compiled = Command::new("javac")
        .arg("Hot.java")
        .current_dir(scratch.path())
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("SKIP: no javac");
        return;
    }
    let mut command = Command::new("java");
    command
        .args(["-XX:+PreserveFramePointer", "-Xmx64m", "Hot"])
        .current_dir(scratch.path());
    let program = Program::start("java", scratch.path(), &mut command);
    until_named(program.id(), "hotInJava", 30);
}

#[test]
fn functions_of_the_kernel_are_named() {
    let names = Kallsyms::read();
    if names.is_empty() {
        println!("SKIP: this system hides the kernel's addresses");
        return;
    }
    assert!(names.len() > 10_000, "{}", names.len());
}
