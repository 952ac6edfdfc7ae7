//! `bench ui`: the page in headless Chromium, measured by its own bench.

use std::process::Command;

use crate::child::{Outcome, build, repository};

/// Runs `npm run bench` of the page; its FIGURE lines pass through.
pub fn run() -> Outcome<()> {
    let folder = repository().join("ui/web");
    if !folder.join("node_modules").is_dir() {
        build(
            Command::new("npm")
                .current_dir(&folder)
                .args(["ci", "--no-audit", "--no-fund"]),
        )?;
    }
    let mut command = Command::new("npm");
    let status = command
        .current_dir(&folder)
        .args(["run", "--silent", "bench"])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("npm run bench ended with {status}").into())
    }
}
