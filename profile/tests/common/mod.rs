//! What the integration tests of this crate share.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper may panic"
)]

pub mod generate;
pub mod go;

use std::path::{Path, PathBuf};

/// The corpus: `PILOTLIGHT_CORPUS`, or `../shared/corpus` beside the repository. None when the
/// variable is not set and that folder does not exist.
pub fn corpus() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PILOTLIGHT_CORPUS") {
        let path = PathBuf::from(path);
        assert!(
            path.is_dir(),
            "PILOTLIGHT_CORPUS = {} is no folder",
            path.display()
        );
        return Some(path);
    }
    let beside = repository().join("../shared/corpus");
    beside.is_dir().then_some(beside)
}

pub fn skip(reason: &str) {
    println!("SKIP: {reason}");
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files below a folder, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    files
}
