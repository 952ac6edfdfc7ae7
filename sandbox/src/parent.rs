//! Starting a child and waiting for it.

use crate::child::LIMITS;
use crate::limits::Limits;
use crate::report::Report;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Why there is no table. All but the first two are the file's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The child could not be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The system lost the child.
    #[error("cannot wait for the parser: {0}")]
    Wait(std::io::Error),
    /// The parser refused the file; its reason.
    #[error("{0}")]
    Refused(String),
    /// The file made the parser do what it may not, or too much of it: the signal that ended it.
    #[error("the parser was ended by signal {signal}: {reason}")]
    Killed {
        /// SIGSYS for a forbidden call, SIGXCPU or SIGKILL for time, SIGABRT for memory.
        signal: i32,
        /// In words.
        reason: &'static str,
    },
    /// The parser took too long.
    #[error("the parser was ended after {0:?}")]
    Late(Duration),
}

/// One file to parse.
#[derive(Debug)]
pub struct Job {
    object: File,
    table: File,
    limits: Limits,
}

impl Job {
    /// A table of `object`, written to `table` from its current position.
    #[must_use]
    pub fn new(object: File, table: File) -> Job {
        Job {
            object,
            table,
            limits: Limits::default(),
        }
    }

    /// With other limits.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Job {
        self.limits = limits;
        self
    }
}

/// The program that is started for each file.
#[derive(Clone, Debug)]
pub struct Parser {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Parser {
    /// `program` with `arguments` must call [`crate::child`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Parser {
        Parser {
            program: program.into(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        }
    }

    /// Builds a table in a child; blocks until it has ended.
    ///
    /// # Errors
    /// See [`Failure`]; the table is then unfinished and must be removed.
    pub fn build(&self, job: &Job) -> Result<Report, Failure> {
        let mut child = self.start(job)?;
        // Read beside waiting: a child that writes much must not block. What is more than a
        // report is left out, and the child ends by SIGPIPE.
        let reader = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.take(64 << 10).read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        let status = wait(&mut child, job.limits.wall)?;
        let text = reader.and_then(|r| r.join().ok()).unwrap_or_default();
        match status.signal() {
            Some(signal) => Err(Failure::Killed {
                signal,
                reason: reason(signal),
            }),
            None if status.success() => Ok(Report::parse(&text)),
            None => Err(Failure::Refused(text)),
        }
    }

    fn start(&self, job: &Job) -> Result<Child, Failure> {
        let failed = |error| Failure::Start {
            program: self.program.clone(),
            error,
        };
        let limits = job.limits;
        let numbers = format!(
            "{} {} {}",
            limits.memory_bytes,
            limits.table_bytes,
            limits.cpu.as_secs()
        );
        Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .env(LIMITS, numbers)
            .current_dir("/")
            .stdin(job.object.try_clone().map_err(failed)?)
            .stdout(job.table.try_clone().map_err(failed)?)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)
    }
}

/// Waits at most so long, then kills.
fn wait(child: &mut Child, wall: Duration) -> Result<std::process::ExitStatus, Failure> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Err(error) => return Err(Failure::Wait(error)),
            Ok(None) => {}
        }
        if started.elapsed() > wall {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::Late(wall));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn reason(signal: i32) -> &'static str {
    match signal {
        libc::SIGSYS => "a forbidden system call",
        libc::SIGXCPU => "too much CPU time",
        libc::SIGKILL => "too much CPU time, or the system's memory was short",
        libc::SIGXFSZ => "too large a table",
        libc::SIGABRT => "too much memory, or a fault of the parser",
        libc::SIGBUS => "the file became shorter while it was read",
        _ => "a fault of the parser",
    }
}
