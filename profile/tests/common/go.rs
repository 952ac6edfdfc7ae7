//! google/pprof as a child: the helper in `tests/gocompare`, and `go tool pprof`.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper may panic"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder for the files of one test, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("pilotlight-profile-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file; returns its path as text.
    pub fn put(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Answers of `gocompare`, one per command; a command is a list of words.
pub fn compare(scratch: &Scratch, commands: &[Vec<String>]) -> Vec<String> {
    let program = build(scratch);
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = commands
        .iter()
        .map(|words| words.join("\t") + "\n")
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "gocompare failed");
    let answers: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(answers.len(), commands.len());
    answers
}

fn build(scratch: &Scratch) -> PathBuf {
    let program = scratch.path().join("gocompare");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(super::repository().join("tests/gocompare"))
        .output()
        .expect("cannot run `go`: install Go, these tests compare with google/pprof");
    let message = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "go build: {message}");
    program
}

/// Rows of `go tool pprof -top`: (flat, cumulative) by name. Several rows can have one name.
pub fn top(
    scratch: &Scratch,
    file: &str,
    index: usize,
    unit: &str,
) -> BTreeMap<String, Vec<(i64, i64)>> {
    let output = Command::new("go")
        .args([
            "tool",
            "pprof",
            "-top",
            "-symbolize=none",
            "-nodecount=10000000",
        ])
        .args(["-nodefraction=0", "-edgefraction=0"])
        .arg(format!("-unit={unit}"))
        .arg(format!("-sample_index={index}"))
        .arg(file)
        .env("PPROF_TMPDIR", scratch.path())
        .output()
        .expect("cannot run `go`: install Go, these tests compare with go tool pprof");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go tool pprof: {message}");
    let mut rows: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    let text = String::from_utf8_lossy(&output.stdout);
    let table = text.lines().skip_while(|line| !is_head(line)).skip(1);
    for line in table {
        let (name, row) = parse_row(line);
        rows.entry(name).or_default().push(row);
    }
    rows.values_mut().for_each(|rows| rows.sort());
    rows
}

fn is_head(line: &str) -> bool {
    line.split_whitespace()
        .eq(["flat", "flat%", "sum%", "cum", "cum%"])
}

fn parse_row(line: &str) -> (String, (i64, i64)) {
    let mut rest = line.trim_start();
    let mut word = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail.trim_start();
        word
    };
    let (flat, _, _, cumulative, _) = (word(), word(), word(), word(), word());
    let name = rest
        .trim_end_matches(" (inline)")
        .trim_end_matches(" (partial-inline)");
    (name.to_owned(), (number(flat), number(cumulative)))
}

/// A whole number with a unit behind it.
fn number(text: &str) -> i64 {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    digits
        .parse()
        .unwrap_or_else(|_| panic!("not a whole number: {text}"))
}
