//! A library with more than a gigabyte of DWARF, and what its table costs.
//!
//! One unit of C++ with many instances of templates is compiled once, then linked some hundred times
//! under other names, so that neither functions nor texts are the same ones again.

use super::program;
use crate::child::{Outcome, build, readings, scratch};
use crate::figure::{Figure, Goal, Short};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const UNIT: &str = include_str!("unit.cc");
/// What is called otherwise in each copy, in names of symbols and of DWARF.
const NAME: &[u8] = b"Shop";
/// A copy has 4.7 MB of DWARF.
const COPIES: usize = 240;
const LEAST_BYTES: u64 = 1_000_000_000;

/// Prints time and memory of the build.
pub fn run() -> Outcome<()> {
    let object = file()?;
    let debug_bytes = debug_bytes(&object)?;
    if debug_bytes < LEAST_BYTES {
        return Err(format!("{} has {debug_bytes} bytes of DWARF only", object.display()).into());
    }
    let program = program()?;
    let object = object.to_string_lossy().into_owned();
    let ours = readings(&program, &["build", &object])?;
    let (mut cpu, mut rss) = (Vec::new(), Vec::new());
    for peer in ["llvm", "blazesym"] {
        let theirs = readings(&program, &[peer, &object])?;
        cpu.push(format!("{peer}:{}s", Short(theirs.get("cpu_s")?)));
        rss.push(format!("{peer}:{}MB", Short(theirs.get("rss_mb")?)));
    }
    // Peers answer a thousand addresses; the table answers all.
    let print = |name, value, unit, goal, peer: &str| {
        Figure::print_of("symbolize", name, value, unit, goal, peer);
    };
    print(
        "gigabyte_dwarf",
        debug_bytes as f64 / 1e6,
        "MB",
        Goal::AtLeast(1000.0),
        "",
    );
    print(
        "gigabyte_peak_rss",
        ours.get("build_rss_mb")?,
        "MB",
        Goal::AtMost(512.0),
        &rss.join(","),
    );
    print(
        "gigabyte_build_cpu",
        ours.get("build_cpu_s")?,
        "s",
        Goal::None,
        &cpu.join(","),
    );
    print(
        "gigabyte_table",
        ours.get("table_mb")?,
        "MB",
        Goal::None,
        "",
    );
    Ok(())
}

/// The library; made when it is not there yet.
pub fn file() -> Outcome<PathBuf> {
    let folder = scratch("gigabyte")?;
    let library = folder.join("gigabyte.so");
    if debug_bytes(&library).is_ok_and(|bytes| bytes >= LEAST_BYTES) {
        return Ok(library);
    }
    let (source, unit) = (folder.join("unit.cc"), folder.join("unit.o"));
    fs::write(&source, UNIT)?;
    build(
        Command::new("g++")
            .args(["-std=c++17", "-O1", "-g", "-fPIC", "-c", "-o"])
            .arg(&unit)
            .arg(&source),
    )?;
    let bytes = fs::read(&unit)?;
    let objects: Vec<PathBuf> = (0..COPIES)
        .map(|number| copy(&folder, &bytes, number))
        .collect::<Outcome<_>>()?;
    let list = folder.join("objects");
    let names: Vec<_> = objects.iter().map(|path| path.to_string_lossy()).collect();
    fs::write(&list, names.join("\n"))?;
    let linked = build(
        Command::new("ld")
            .args(["-shared", "--build-id=sha1", "-o"])
            .arg(&library)
            .arg(format!("@{}", list.display())),
    );
    for object in &objects {
        fs::remove_file(object)?;
    }
    linked.map(|()| library)
}

/// The unit under names of its own.
fn copy(folder: &Path, unit: &[u8], number: usize) -> Outcome<PathBuf> {
    let letter =
        |at: usize| b'a' + u8::try_from(number / 26_usize.pow(at as u32) % 26).unwrap_or(0);
    let name = [b'S', letter(2), letter(1), letter(0)];
    let mut bytes = unit.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(NAME.len())
        .position(|part| part == NAME)
    {
        at += found;
        bytes[at..at + NAME.len()].copy_from_slice(&name);
    }
    let (renamed, object) = (folder.join("renamed.o"), folder.join(format!("{number}.o")));
    fs::write(&renamed, bytes)?;
    build(
        Command::new("objcopy")
            .arg(format!("--prefix-symbols=c{number}_"))
            .arg(&renamed)
            .arg(&object),
    )?;
    Ok(object)
}

/// Bytes of the sections of DWARF.
fn debug_bytes(object: &Path) -> Outcome<u64> {
    let output = Command::new("readelf").arg("-SW").arg(object).output()?;
    let size = |line: &str| -> Option<u64> {
        let fields: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
        fields.first().filter(|name| name.starts_with(".debug_"))?;
        u64::from_str_radix(fields.get(4)?, 16).ok()
    };
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(size)
        .sum())
}
