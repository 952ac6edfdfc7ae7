//! The SDK's dependency budget: what a service author takes on with one line.

use std::collections::BTreeMap;

use crate::steps;

const MAX_CRATES: usize = 12;
/// Crates that mean "this build runs a C compiler or a code generator".
const C_BUILDERS: &[&str] = &["cc", "cmake", "bindgen", "pkg-config", "autotools"];

/// Fails when `pilotlight`'s default tree has more crates than the budget, a proc macro or a C build.
pub fn check() -> Result<(), String> {
    let tree = crates_of(&["-e", "normal,build"])?;
    let normal = crates_of(&["-e", "normal"])?;
    let macros: Vec<&str> = tree
        .iter()
        .filter(|(_, is_macro)| **is_macro)
        .map(|(name, _)| name.as_str())
        .collect();
    let c_builds: Vec<&str> = tree
        .keys()
        .map(String::as_str)
        .filter(|name| C_BUILDERS.contains(&name.split(' ').next().unwrap_or(name)))
        .collect();
    let verdict = if normal.len() <= MAX_CRATES && macros.is_empty() && c_builds.is_empty() {
        "ok"
    } else {
        "MISS"
    };
    println!(
        "FIGURE deps/sdk_crates value={} goal={MAX_CRATES} peer=43..62(pprof-rs) {verdict}",
        normal.len()
    );
    println!(
        "FIGURE deps/sdk_proc_macros value={} goal=0 {}",
        macros.len(),
        if macros.is_empty() { "ok" } else { "MISS" }
    );
    println!(
        "FIGURE deps/sdk_c_builds value={} goal=0 {}",
        c_builds.len(),
        if c_builds.is_empty() { "ok" } else { "MISS" }
    );
    if verdict == "ok" {
        return Ok(());
    }
    let listed: Vec<&str> = tree.keys().map(String::as_str).collect();
    Err(format!(
        "the SDK's default tree is over its budget: {}\nproc macros: {macros:?}, C builds: {c_builds:?}",
        listed.join(", ")
    ))
}

/// Name and version of each crate in the tree, and whether it is a proc macro.
fn crates_of(edges: &[&str]) -> Result<BTreeMap<String, bool>, String> {
    let fixed = [
        "tree",
        "-p",
        "pilotlight",
        "--prefix",
        "none",
        "--no-dedupe",
        "--locked",
    ];
    let lines = steps::lines_of("cargo", &[&fixed[..], edges].concat())?;
    let entry = |line: &String| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some((format!("{name} {version}"), line.contains("(proc-macro)")))
    };
    Ok(lines.iter().filter_map(entry).collect())
}
