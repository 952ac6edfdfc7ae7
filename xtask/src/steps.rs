//! Running a command, and saying plainly what failed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The repository's root folder.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs cargo in the root folder with inherited output.
pub fn cargo(args: &[&str]) -> Result<(), String> {
    run("cargo", args, "")
}

/// Runs `program` in `folder` (relative to the root) with inherited output.
pub fn run(program: &str, args: &[&str], folder: &str) -> Result<(), String> {
    let shown = format!("{program} {}", args.join(" "));
    eprintln!("\n== {shown}");
    let status = Command::new(program)
        .args(args)
        .current_dir(root().join(folder))
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed: {status}"))
    }
}

/// Standard output of a command, line by line.
pub fn lines_of(program: &str, args: &[&str]) -> Result<Vec<String>, String> {
    let shown = format!("{program} {}", args.join(" "));
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_string)
        .collect())
}

/// Whether a command runs and exits with success.
pub fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
