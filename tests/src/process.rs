//! Programs under test: started with their output kept, ended with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program that is killed when the test ends.
pub struct Program {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Program {
    /// Starts `command`, its output going to a file in `folder`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log)
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let copy = file
            .try_clone()
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn();
        let child =
            child.unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self {
            child,
            name: name.to_string(),
            log,
        }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Fails the test when the program has ended by itself.
    ///
    /// # Panics
    /// When it has.
    pub fn must_run(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!("{} ended early: {status}\n{}", self.name, self.output());
        }
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the end.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    #[must_use]
    pub fn interrupt(mut self, limit: Duration) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "cannot signal {}",
            self.name
        );
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "{} did not end within {limit:?} of SIGINT\n{}",
            self.name,
            self.output()
        );
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} printed:\n{}", self.name, self.output());
        }
    }
}

/// A program of this workspace, built in the profile that the tests are built in.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let program = here
        .ancestors()
        .nth(2)
        .map(|folder| folder.join(name))
        .unwrap_or_default();
    assert!(
        program.is_file(),
        "{} is missing: run `cargo build --release -p pilotlight-cli -p checkout`",
        program.display()
    );
    program
}

/// Builds the Go program in `source` (relative to this crate) and returns its path.
///
/// # Panics
/// When Go is missing or the program does not build.
#[must_use]
pub fn go_build(source: &str, folder: &Path) -> PathBuf {
    let program = folder.join("go-program");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .output()
        .unwrap_or_else(|error| panic!("go is needed: {error}"));
    assert!(
        built.status.success(),
        "go build {source}: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    program
}

/// A folder of its own, removed with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Self(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
