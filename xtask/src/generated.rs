//! Built files that are committed: rebuild them, and fail on drift.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::steps;

/// Builds `ui/dist` from `ui/web`.
pub fn build_ui() -> Result<(), String> {
    steps::run("npm", &["ci", "--no-audit", "--no-fund"], "ui/web")?;
    steps::run("npm", &["run", "build"], "ui/web")
}

/// Rebuilds the page and compares it byte for byte with what is committed.
pub fn check_ui() -> Result<(), String> {
    let folder = steps::root().join("ui/dist");
    let before = contents(&folder)?;
    build_ui()?;
    let after = contents(&folder)?;
    let changed: Vec<String> = before
        .keys()
        .chain(after.keys())
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| name.display().to_string())
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "ui/dist is not what ui/web builds ({}): run `cargo xtask ui` and commit",
        changed.join(", ")
    ))
}

fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        files.insert(path.clone(), std::fs::read(&path).map_err(failed)?);
    }
    Ok(files)
}
