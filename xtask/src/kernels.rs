//! `cargo xtask kernels`: the agent's BPF programs on kernels other than this machine's, each booted in qemu.
//!
//! The machine has no disk: an archive in its memory holds the tests of `host-agent-bpf`, the program that they sample, a
//! shell and their libraries. What the tests print goes over its serial line. Kernels come from packages of
//! distributions, and are not kept here (`host-agent-bpf/README.md`, "Kernels").

mod archive;
mod machine;

use crate::{runner, steps};
use std::path::{Path, PathBuf};

/// The folder of kernels, where none is named.
const FOLDER: &str = "PILOTLIGHT_KERNELS";
/// Programs that the machine needs besides ours; the last loads the object and tells what the verifier did, which kernels
/// before 5.16 tell in its log only.
const PROGRAMS: [&str; 4] = ["/bin/sh", "/bin/mount", "/bin/grep", "/usr/sbin/bpftool"];
const OBJECT: &str = "host-agent-bpf/objects/agent.bpf.o";
/// Where it is written down, a line a kernel.
const NOTES: &str = "host-agent-bpf/objects/kernels.txt";
/// A tenth of this is what the object takes; all kernels refuse more than a million.
const MOST_VERIFIED: u64 = 200_000;
/// What runs there, each with the tests of it that say something of the kernel.
const TESTS: [&str; 2] = ["truth", "waits"];

const INIT: &str = "#!/bin/sh
export PATH=/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
ulimit -l 64
read release < /proc/sys/kernel/osrelease
echo KERNEL $release
bpftool -d prog loadall /agent.bpf.o /sys/fs/bpf/agent 2>&1 | grep -aE '^processed|PROG LOAD LOG|rror'
";

/// Boots each kernel that is named, or each `vmlinuz*` of the folder, and prints a line of it.
pub fn run(args: &[String]) -> Result<(), String> {
    let kernels = named(args)?;
    let archive = pack()?;
    let mut refused = Vec::new();
    for kernel in &kernels {
        let told = machine::boot(kernel, &archive)?;
        match said(&told).and_then(|line| note(&told).map(|()| line)) {
            Ok(line) => println!("{line}"),
            Err(why) => {
                eprintln!("{told}");
                println!("KERNEL {}: {why}", kernel.display());
                refused.push(kernel.display().to_string());
            }
        }
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(format!("failed on {}", refused.join(", "))),
    }
}

fn named(args: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut kernels: Vec<PathBuf> = args.iter().map(PathBuf::from).collect();
    let folder = std::env::var_os(FOLDER);
    if let (true, Some(folder)) = (kernels.is_empty(), &folder) {
        let shown = folder.to_string_lossy();
        let entries = std::fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        kernels = paths.filter(|path| is_kernel(path)).collect();
    }
    kernels.sort();
    if kernels.is_empty() {
        return Err(format!(
            "usage: cargo xtask kernels VMLINUZ…, or {FOLDER}=FOLDER with files vmlinuz* in it; \
             where to get them: host-agent-bpf/README.md"
        ));
    }
    Ok(kernels)
}

fn is_kernel(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with("vmlinuz"))
}

/// The machine's first file system.
fn pack() -> Result<Vec<u8>, String> {
    let tests: Vec<PathBuf> = runner::test_binaries(&["-p", "pilotlight-agent-bpf"])?
        .into_iter()
        .map(|(binary, ..)| binary)
        .filter(|binary| TESTS.iter().any(|test| starts(binary, test)))
        .collect();
    if tests.len() != TESTS.len() {
        return Err(format!("tests {TESTS:?} are not there: {tests:?}"));
    }
    let mut archive = archive::Archive::default();
    for folder in ["/proc", "/sys", "/tmp", "/dev"] {
        archive.folder(folder);
    }
    // Tests know the path of the program that they start.
    let victim = steps::target_dir().join("release/pilotlight-victim");
    for program in tests.iter().chain([&victim]) {
        archive.program(program)?;
    }
    for program in PROGRAMS {
        archive.program(Path::new(program))?;
    }
    let object =
        std::fs::read(steps::root().join(OBJECT)).map_err(|error| format!("{OBJECT}: {error}"))?;
    archive.file("/agent.bpf.o", 0o644, &object);
    let mut init = INIT.to_owned();
    if !machine::is_virtualizable() {
        init += "export PILOTLIGHT_EMULATED=1\n";
    }
    for test in &tests {
        let test = test.display();
        init += &format!("{test} --nocapture --test-threads=1 2>&1\n");
    }
    init += "echo o > /proc/sysrq-trigger\nwhile :; do :; done\n";
    archive.file("/init", 0o755, init.as_bytes());
    Ok(archive.finish())
}

fn starts(binary: &Path, test: &str) -> bool {
    let name = binary.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        name.strip_prefix(test)
            .is_some_and(|rest| rest.starts_with('-'))
    })
}

/// The line of a kernel, of what its tests printed.
fn said(told: &str) -> Result<String, String> {
    let lines = || told.lines().map(str::trim_end);
    let after = |marker: &str| lines().find_map(|line| Some(line.split_once(marker)?.1.to_owned()));
    let release = after("KERNEL ").ok_or("it did not boot")?;
    let passed = lines()
        .filter(|line| line.starts_with("test result: ok."))
        .count();
    if passed != TESTS.len() {
        return Err(format!(
            "{release}: {passed} of {} test programs passed",
            TESTS.len()
        ));
    }
    let figure = |name: &str| {
        after(&format!("KERNEL-FIGURE {name} ")).ok_or(format!("{release}: no {name}"))
    };
    Ok(format!(
        "KERNEL {release} loaded, {} instructions verified, {} of the ticks, {} of the stacks reach the root, waits {}",
        verified(told).iter().map(|(_, count)| count).sum::<u64>(),
        figure("ticks")?,
        figure("roots")?,
        figure("waits")?,
    ))
}

/// Programs of the object, and what the verifier looked at of each: its log begins with their name and ends with the number.
fn verified(told: &str) -> Vec<(&str, u64)> {
    let mut found = Vec::new();
    let mut name = "";
    for line in told.lines() {
        if let Some(rest) = line.strip_prefix("libbpf: prog '") {
            name = rest.split('\'').next().unwrap_or(name);
        }
        let count = line
            .strip_prefix("processed ")
            .and_then(|rest| rest.split(' ').next());
        found.extend(count.and_then(|count| Some((name, count.parse().ok()?))));
    }
    found
}

/// Writes down what the verifier of this kernel did, in place of what was written of it before.
fn note(told: &str) -> Result<(), String> {
    let release = told
        .lines()
        .find_map(|line| line.trim_end().split_once("KERNEL "))
        .map_or("", |(_, release)| release);
    let programs = verified(told);
    let shown: Vec<String> = programs
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if programs.is_empty() || programs.iter().any(|(_, count)| *count > MOST_VERIFIED) {
        return Err(format!(
            "{release}: verified: {shown:?}, at most {MOST_VERIFIED} each"
        ));
    }
    let path = steps::root().join(NOTES);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let others = before
        .lines()
        .filter(|line| line.split(' ').next() != Some(release));
    let mut lines: Vec<String> = others.map(str::to_owned).collect();
    lines.push(format!("{release} {}", shown.join(" ")));
    lines.sort();
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|error| format!("{NOTES}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "KERNEL 5.10.0\r\nlibbpf: prog 'on_tick': -- BEGIN PROG LOAD LOG --\r\n\
        processed 8000 insns (limit 1000000)\r\nlibbpf: prog 'on_exit': -- BEGIN PROG LOAD LOG --\r\n\
        processed 1000 insns (limit 1000000)\r\nKERNEL-FIGURE ticks 99.9 %\r\n\
        KERNEL-FIGURE roots 100.0 %\r\ntest result: ok. 4 passed\r\nKERNEL-FIGURE waits 0.99-1.01\r\ntest result: ok. 1 passed\r\n";

    #[test]
    fn a_kernel_counts_when_all_its_tests_passed() {
        let line = said(TOLD).unwrap();
        assert_eq!(
            line,
            "KERNEL 5.10.0 loaded, 9000 instructions verified, 99.9 % of the ticks, 100.0 % of the stacks reach the root, \
             waits 0.99-1.01"
        );
        let failed = TOLD.replacen("ok. 1 passed", "FAILED. 0 passed", 1);
        assert!(said(&failed).unwrap_err().contains("1 of 2"));
        assert!(said("").is_err());
        assert_eq!(verified(TOLD), [("on_tick", 8000), ("on_exit", 1000)]);
    }
}
