//! The built binary as a user runs it.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For a busy test machine; what the user is promised is printed by `cargo xtask bench`.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub fn pilotlight(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotlight"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1");
    command
}

/// Killed when the test ends early.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let child = pilotlight(folder, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(Some(child))
    }

    /// SIGINT or SIGTERM, then what it printed and how long it took to end.
    pub fn stop(mut self, signal: &str) -> (Output, Duration) {
        let child = self.0.take().unwrap();
        let sent = Instant::now();
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
        let output = child.wait_with_output().unwrap();
        (output, sent.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    pilotlight(folder, arguments).output().unwrap()
}
