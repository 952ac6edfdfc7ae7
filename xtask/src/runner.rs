//! Builds all test binaries once, then runs every single test in a process of its own.
//!
//! Signals, timers and interposed symbols are process-wide: a test of a profiler must not share its
//! process. A watchdog ends a test that hangs, with everything it started, and counts it as failed.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::elsewhere::ELSEWHERE;
use crate::steps;

/// A test that takes longer hangs.
const WATCHDOG: Duration = Duration::from_secs(240);
/// Tests worth naming in the output because of their length.
const SLOW: Duration = Duration::from_secs(20);

/// More tests than this that fail beside others are no accident of one machine: none gets a second run.
const MOST_RUN_AGAIN: usize = 3;

/// What has run so far.
#[derive(Default)]
pub struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
    unsteady: Vec<String>,
}

impl Tally {
    /// Prints the plain count; an error if anything failed or nothing ran.
    pub fn finish(self) -> Result<(), String> {
        for skip in &self.skipped {
            println!("skipped {skip}");
        }
        for name in &self.unsteady {
            println!("UNSTEADY {name}: failed at first, passed in a second run by itself");
        }
        for name in &self.failed {
            println!("FAILED {name}");
        }
        let skipped = if self.skipped.is_empty() {
            String::new()
        } else {
            format!(", {} skipped", self.skipped.len())
        };
        println!(
            "{} passed, {} failed{skipped}",
            self.passed,
            self.failed.len()
        );
        if self.failed.is_empty() && self.passed > 0 {
            Ok(())
        } else {
            Err(String::new())
        }
    }

    fn add(&mut self, name: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped(reason) => self.skipped.push(format!("{name}: {reason}")),
            Outcome::Failed(_) => self.failed.push(name.to_string()),
        }
    }
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// One test: the binary, the folder it runs in, and its name in the binary.
pub struct Test {
    binary: PathBuf,
    emulator: Option<&'static str>,
    folder: PathBuf,
    name: String,
    shown: String,
}

impl Test {
    /// Tests of shares and sums of CPU time need the machine to themselves: a sampler that waits for a
    /// core sees less; and a lock that yields before it waits is long about it beside others.
    fn runs_alone(&self) -> bool {
        [
            "pilotlight-tests::",
            "pilotlight::cpu_",
            "pilotlight::locks::",
        ]
        .iter()
        .any(|name| self.shown.trim_start_matches("musl::").starts_with(name))
    }
}

/// Builds and runs every Rust test whose shown name contains `filter`.
pub fn rust_tests(filter: Option<&str>, tally: &mut Tally) -> Result<(), String> {
    // The programs that end-to-end tests start, in the same profile.
    let programs = [
        "build",
        "--release",
        "--locked",
        "-p",
        "pilotlight-cli",
        "-p",
        "checkout",
        PROGRAM_FEATURES,
    ];
    steps::cargo(&programs)?;
    let mut tests = Vec::new();
    for (binary, folder, package) in test_binaries(&["--workspace", FEATURES])? {
        tests.extend(tests_in(&binary, &folder, &package, None)?);
    }
    for elsewhere in &ELSEWHERE {
        match elsewhere.is_possible() {
            Ok(()) => tests.extend(elsewhere.tests()?),
            Err(hint) => tally.skipped.push(format!("{}: {hint}", elsewhere.name)),
        }
    }
    tests.retain(|test| filter.is_none_or(|text| test.shown.contains(text)));
    eprintln!("\n== {} tests, each in its own process", tests.len());
    let (alone, together): (Vec<Test>, Vec<Test>) = tests.into_iter().partition(Test::runs_alone);
    run_all(&together, workers(), tally);
    run_all(&alone, 1, tally);
    run_failed_again(&[together, alone], tally);
    Ok(())
}

/// Runs the few that failed once more, with the machine to themselves (ADR 50). What passes then is named as
/// unsteady; its first failure stays in the output.
fn run_failed_again(groups: &[Vec<Test>], tally: &mut Tally) {
    if tally.failed.len() > MOST_RUN_AGAIN {
        return;
    }
    for name in std::mem::take(&mut tally.failed) {
        let test = groups.iter().flatten().find(|test| test.shown == name);
        let outcome = test.map(|test| {
            let started = Instant::now();
            let outcome = run_one(test, 0);
            report(&format!("{name} (again)"), &outcome, started.elapsed());
            outcome
        });
        match outcome {
            Some(Outcome::Passed) => {
                tally.passed += 1;
                tally.unsteady.push(name);
            }
            _ => tally.failed.push(name),
        }
    }
}

fn run_all(tests: &[Test], workers: usize, tally: &mut Tally) {
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(tally);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, tally) = (&next, &tally);
            scope.spawn(move || {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let outcome = run_one(test, worker);
                    report(&test.shown, &outcome, started.elapsed());
                    if let Ok(mut tally) = tally.lock() {
                        tally.add(&test.shown, &outcome);
                    }
                }
            });
        }
    });
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(4))
}

/// What the default build leaves out and the tests need.
const FEATURES: &str = "--features=pilotlight-cli/s3,pilotlight/macros,pilotlight/opentelemetry,pilotlight/tracing,pilotlight-symbolize/tables";
/// Of these, what the programs' own packages and their dependencies have.
const PROGRAM_FEATURES: &str =
    "--features=pilotlight-cli/s3,pilotlight/macros,pilotlight/opentelemetry,pilotlight/tracing";

/// The test executables that `which` chooses: path, folder of its package, package and target name.
pub fn test_binaries(which: &[&str]) -> Result<Vec<(PathBuf, PathBuf, String)>, String> {
    let args = [
        "test",
        "--release",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    let mut found = Vec::new();
    for line in steps::lines_of("cargo", &[&args[..], which].concat())? {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else {
            continue;
        };
        let Some(binary) = message["executable"].as_str() else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().map(Path::to_path_buf).unwrap_or_default();
        let package = message["package_id"].as_str().unwrap_or_default();
        let package = package
            .rsplit(['#', '/'])
            .find(|part| !part.is_empty())
            .unwrap_or(package);
        let package = package.split('@').next().unwrap_or(package);
        let package = if package.starts_with(|c: char| c.is_ascii_digit()) {
            folder_name(&folder)
        } else {
            package.into()
        };
        let target = message["target"]["name"].as_str().unwrap_or_default();
        found.push((
            PathBuf::from(binary),
            folder,
            format!("{package}::{target}"),
        ));
    }
    Ok(found)
}

fn folder_name(folder: &Path) -> String {
    folder
        .file_name()
        .map(|name| format!("pilotlight-{}", name.to_string_lossy()))
        .unwrap_or_default()
}

/// Ignored tests are left out: they are parts of another test, which starts them itself.
pub fn tests_in(
    binary: &Path,
    folder: &Path,
    package: &str,
    emulator: Option<&'static str>,
) -> Result<Vec<Test>, String> {
    let list = |which| listed(started_by(emulator, binary), folder, which);
    let ignored = list(&["--ignored"])?;
    let mut names = list(&[])?;
    names.retain(|name| !ignored.contains(name));
    let test = |name: String| Test {
        binary: binary.to_path_buf(),
        emulator,
        folder: folder.to_path_buf(),
        shown: format!("{package}::{name}"),
        name,
    };
    Ok(names.into_iter().map(test).collect())
}

fn listed(mut program: Command, folder: &Path, which: &[&str]) -> Result<Vec<String>, String> {
    let output = program
        .args(["--list", "--format", "terse"])
        .args(which)
        .current_dir(folder)
        .output()
        .map_err(|error| format!("cannot list the tests of {program:?}: {error}"))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_string).collect())
}

/// A command that runs `binary`, by an emulator where it is for another processor.
fn started_by(emulator: Option<&str>, binary: &Path) -> Command {
    let Some(emulator) = emulator else {
        return Command::new(binary);
    };
    let mut command = Command::new(emulator);
    command.arg(binary);
    // Where Debian's cross packages put the loader and libc.
    command.env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu");
    command
}

fn run_one(test: &Test, worker: usize) -> Outcome {
    let log = steps::target_dir().join(format!("test-output-{worker}.txt"));
    let Ok(output) = File::create(&log) else {
        return Outcome::Failed("cannot create the log file".into());
    };
    let Ok(errors) = output.try_clone() else {
        return Outcome::Failed("cannot open the log file".into());
    };
    let mut command = started_by(test.emulator, &test.binary);
    command
        .args(["--exact", &test.name, "--nocapture"])
        .current_dir(&test.folder)
        .env("CARGO_MANIFEST_DIR", &test.folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    if let Some(corpus) = corpus() {
        command.env("PILOTLIGHT_CORPUS", corpus);
    }
    let child = command.spawn();
    let Ok(mut child) = child else {
        return Outcome::Failed("cannot start".into());
    };
    let ended = wait(&mut child, WATCHDOG);
    kill_group(child.id());
    let text = std::fs::read(&log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    match ended {
        Some(true) => skipped(&text).map_or(Outcome::Passed, Outcome::Skipped),
        Some(false) => Outcome::Failed(text),
        None => Outcome::Failed(format!(
            "{text}\nno end after {} s: killed",
            WATCHDOG.as_secs()
        )),
    }
}

/// The corpus of real profiles: where `PILOTLIGHT_CORPUS` says, or beside the repository if it is there.
fn corpus() -> Option<PathBuf> {
    let beside = || Some(steps::root().join("../shared/corpus")).filter(|folder| folder.is_dir());
    std::env::var_os("PILOTLIGHT_CORPUS")
        .map(PathBuf::from)
        .or_else(beside)
}

fn skipped(text: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.strip_prefix("SKIP: "))
        .map(str::to_string)
}

/// `Some(success)` when the child ended in time.
fn wait(child: &mut Child, limit: Duration) -> Option<bool> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) => std::thread::sleep(pause),
            Err(_) => return Some(false),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Ends whatever the test left running.
fn kill_group(leader: u32) {
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -KILL -{leader}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn report(name: &str, outcome: &Outcome, took: Duration) {
    let time = if took > SLOW {
        format!(" ({} s)", took.as_secs())
    } else {
        String::new()
    };
    match outcome {
        Outcome::Passed => println!("ok      {name}{time}"),
        Outcome::Skipped(reason) => println!("skipped {name}: {reason}"),
        Outcome::Failed(text) => println!("FAILED  {name}{time}\n{text}"),
    }
}

/// Examples in the documentation.
pub fn doc_tests(tally: &mut Tally) -> Result<(), String> {
    eprintln!("\n== documentation examples");
    let output = Command::new("cargo")
        .args(["test", "--release", "--workspace", "--locked", "--doc"])
        .current_dir(steps::root())
        .output()
        .map_err(|error| format!("cannot run the documentation tests: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    tally.passed += text
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("... ok"))
        .count();
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        tally.failed.push("documentation examples".into());
    }
    Ok(())
}

/// What drives the browser, from the page's lock file.
pub fn install_page_tests() -> Result<(), String> {
    if steps::root()
        .join("ui/web/node_modules/.package-lock.json")
        .is_file()
    {
        return Ok(());
    }
    steps::run("npm", &["ci", "--no-audit", "--no-fund"], "ui/web")
}

/// Type check, unit tests and browser tests of the page.
pub fn ui_tests(tally: &mut Tally) {
    for script in ["check", "test:browser"] {
        match steps::run("npm", &["run", script], "ui/web") {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                println!("{error}");
                tally.failed.push(format!("ui: npm run {script}"));
            }
        }
    }
}
