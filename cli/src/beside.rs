//! The host agent beside `pilotlight up`: a process of its own, so that it can give away what the server needs.
//!
//! It lives as long as its standard input is open, so it also ends when `up` is killed. It is in a process group of its
//! own: Ctrl-C reaches `up`, which ends it in order.

use crate::text;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How its first line begins, once it samples.
pub const SAMPLING: &str = "sampling    ";

/// A child that is or is not permitted to sample; `up` goes on either way.
pub struct HostAgent {
    child: Child,
    /// What it says from now on is no news.
    ending: Arc<AtomicBool>,
}

impl HostAgent {
    /// Starts it; `None` after saying why not.
    pub fn start(server: &str, config: Option<&Path>, token: Option<&str>) -> Option<HostAgent> {
        let ending = Arc::new(AtomicBool::new(false));
        match spawn(server, config, token) {
            Ok(mut child) => {
                let pipes = child.stdout.take().zip(child.stderr.take());
                let quiet = Arc::clone(&ending);
                // Without this thread its lines are lost, and nothing else.
                if let Some((out, err)) = pipes {
                    let _ = thread::Builder::new().spawn(move || tell(out, err, &quiet));
                }
                Some(HostAgent { child, ending })
            }
            Err(error) => {
                not_started(&format!("{error}; next: pilotlight agent"));
                None
            }
        }
    }

    /// Lets it send what it has, `limit` at most.
    pub async fn stop(mut self, limit: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        drop(self.child.stdin.take());
        let until = Instant::now() + limit;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for HostAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(server: &str, config: Option<&Path>, token: Option<&str>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["agent", "--until-stdin-ends", "--server", server]);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    match token {
        Some(token) => command.env("PILOTLIGHT_TOKEN", token),
        None => command.env_remove("PILOTLIGHT_TOKEN"),
    };
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// One line about whether it samples, then only what goes wrong. Both pipes are read to their ends, so that it never
/// waits for a reader.
fn tell(out: ChildStdout, err: ChildStderr, ending: &AtomicBool) {
    let (samples, why) = thread::scope(|scope| {
        let read = thread::Builder::new().spawn_scoped(scope, || {
            let mut samples = false;
            for line in lines(out) {
                if let Some(how) = line.strip_prefix(SAMPLING) {
                    text::data(&format!("host agent  {how}"));
                    samples = true;
                }
            }
            samples
        });
        let (mut why, mut next) = ("it ended".to_owned(), "pilotlight doctor".to_owned());
        for line in lines(err) {
            if line.starts_with("push: ") && !ending.load(Ordering::Relaxed) {
                text::news(&format!("host agent: {line}"));
            }
            let rest = |prefix| Some(line.strip_prefix(prefix)?.trim_start().to_owned());
            why = rest("error:").unwrap_or(why);
            next = rest("next:").unwrap_or(next);
        }
        let samples = read.is_ok_and(|read| read.join().unwrap_or(false));
        (samples, format!("{why}; next: {next}"))
    });
    match (ending.load(Ordering::Relaxed), samples) {
        (true, _) => {}
        (false, false) => not_started(&why),
        (false, true) => text::news(&format!("host agent: {why}")),
    }
}

fn lines(from: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(from).lines().map_while(Result::ok)
}

fn not_started(why: &str) {
    text::data(&format!("host agent  not started: {why}"));
}
