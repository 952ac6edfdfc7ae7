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
/// Programs that the machine needs besides ours.
const PROGRAMS: [&str; 2] = ["/bin/sh", "/bin/mount"];
/// What runs there, each with the tests of it that say something of the kernel.
const TESTS: [&str; 2] = ["truth", "waits"];

const INIT: &str = "#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp
mount -t tracefs tracefs /sys/kernel/tracing
ulimit -l 64
read release < /proc/sys/kernel/osrelease
echo KERNEL $release
";

/// Boots each kernel that is named, or each `vmlinuz*` of the folder, and prints a line of it.
pub fn run(args: &[String]) -> Result<(), String> {
    let kernels = named(args)?;
    let archive = pack()?;
    let mut refused = Vec::new();
    for kernel in &kernels {
        let told = machine::boot(kernel, &archive)?;
        match said(&told) {
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
        figure("verified")?,
        figure("ticks")?,
        figure("roots")?,
        figure("waits")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "KERNEL 5.10.0\r\nKERNEL-FIGURE verified 9000\r\nKERNEL-FIGURE ticks 99.9 %\r\n\
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
    }
}
