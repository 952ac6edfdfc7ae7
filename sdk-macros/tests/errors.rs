//! Wrong uses do not compile, and the compiler says what to do, at the right place: each file of
//! `errors/` stands beside what is said about it. `PILOTLIGHT_WRITE_GOLDENS=1` writes that anew.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The macros as the compiler loads them, beside this test's own file.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libpilotlight_macros-") && name.ends_with(".so")
    };
    let changed = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let files = own.parent().unwrap().read_dir().unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(is_library).max_by_key(changed).unwrap()
}

/// The messages of the compiler, without the lines of source that it shows.
fn said(case: &Path, library: &Path) -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "-o",
            "/dev/null",
        ])
        .arg("--extern")
        .arg(format!("pilotlight_macros={}", library.display()))
        .arg(case.file_name().unwrap())
        .current_dir(case.parent().unwrap())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{} compiles", case.display());
    let text = String::from_utf8(output.stderr).unwrap();
    let is_message =
        |line: &&str| line.starts_with("error") || line.trim_start().starts_with("-->");
    let is_sum = |line: &&str| line.starts_with("error: aborting");
    let messages = text.lines().filter(is_message).filter(|line| !is_sum(line));
    let messages: Vec<&str> = messages.collect();
    messages.join("\n") + "\n"
}

#[test]
fn wrong_uses_are_explained_where_they_stand() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let mut cases: Vec<PathBuf> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    assert!(cases.len() >= 6);
    for case in cases {
        let (said, golden) = (said(&case, &library), case.with_extension("txt"));
        if std::env::var_os("PILOTLIGHT_WRITE_GOLDENS").is_some() {
            std::fs::write(&golden, &said).unwrap();
        }
        assert_eq!(
            said,
            std::fs::read_to_string(&golden).unwrap(),
            "{}",
            case.display()
        );
    }
}
