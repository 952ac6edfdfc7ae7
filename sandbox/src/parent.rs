//! Starting a child and waiting for it.

use crate::child::{INSPECT, LIMITS, SUPPLEMENTARY};
use crate::facts::Facts;
use crate::limits::Limits;
use crate::report::Report;
use crate::table::{Mapped, Nameless};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Why there is no answer.
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
    /// There is no place for the table.
    #[error("no room for its table: {0}")]
    NoRoom(std::io::Error),
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
    /// [`Job::until`] was set.
    #[error("the parser was ended with the program that asked it")]
    Stopped,
}

impl Failure {
    /// Whether the file is at fault; else the same file may be read another time.
    #[must_use]
    pub fn is_of_the_file(&self) -> bool {
        matches!(
            self,
            Failure::Refused(_) | Failure::Killed { .. } | Failure::Late(_)
        )
    }
}

/// One file to parse.
#[derive(Debug)]
pub struct Job {
    object: File,
    table: Option<File>,
    supplementary: Option<PathBuf>,
    limits: Limits,
    stop: Option<Arc<AtomicBool>>,
}

impl Job {
    /// A table of `object`, written to `table` from its current position.
    #[must_use]
    pub fn new(object: File, table: File) -> Job {
        Job {
            object,
            table: Some(table),
            supplementary: None,
            limits: Limits::default(),
            stop: None,
        }
    }

    /// The headers of `object` alone, for [`Parser::inspect`].
    #[must_use]
    pub fn headers(object: File) -> Job {
        Job {
            object,
            table: None,
            supplementary: None,
            limits: Limits::default(),
            stop: None,
        }
    }

    /// With the file that `object` shares DWARF with ([`Facts::supplementary`]). The child opens it before
    /// it gives up its rights.
    #[must_use]
    pub fn with(mut self, supplementary: PathBuf) -> Job {
        self.supplementary = Some(supplementary);
        self
    }

    /// Ends the child when `stop` becomes true.
    #[must_use]
    pub fn until(mut self, stop: Arc<AtomicBool>) -> Job {
        self.stop = Some(stop);
        self
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
        Ok(Report::parse(&self.run(job)?))
    }

    /// Builds a table in a file of its own in `folder`, which nobody else sees; blocks until the child
    /// has ended. The table of `job` is not used.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn map(&self, mut job: Job, folder: &Path) -> Result<Mapped, Failure> {
        let table = Nameless::create(folder).map_err(Failure::NoRoom)?;
        job.table = Some(table.writer().map_err(Failure::NoRoom)?);
        self.run(&job)?;
        drop(job);
        table.map().map_err(Failure::NoRoom)
    }

    /// What a file's headers say, read in a child; blocks until it has ended.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn inspect(&self, job: &Job) -> Result<Facts, Failure> {
        Facts::parse(&self.run(job)?).map_err(Failure::Refused)
    }

    /// What the child said.
    fn run(&self, job: &Job) -> Result<String, Failure> {
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
        let status = wait(&mut child, job)?;
        let text = reader.and_then(|r| r.join().ok()).unwrap_or_default();
        match status.signal() {
            Some(signal) => Err(Failure::Killed {
                signal,
                reason: reason(signal),
            }),
            None if status.success() => Ok(text),
            None => Err(Failure::Refused(short(&text))),
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
        let mut command = Command::new(&self.program);
        command.env_clear();
        match &job.table {
            Some(table) => command.stdout(table.try_clone().map_err(failed)?),
            None => command.stdout(Stdio::null()).env(INSPECT, "1"),
        };
        if let Some(path) = &job.supplementary {
            // The child stands elsewhere.
            command.env(SUPPLEMENTARY, std::path::absolute(path).map_err(failed)?);
        }
        command
            .args(&self.arguments)
            .env(LIMITS, numbers)
            .current_dir("/")
            .stdin(job.object.try_clone().map_err(failed)?)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)
    }
}

/// Waits at most so long, then kills.
fn wait(child: &mut Child, job: &Job) -> Result<std::process::ExitStatus, Failure> {
    let wall = job.limits.wall;
    let stopped = || job.stop.as_ref().is_some_and(|stop| stop.load(Relaxed));
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Err(error) => return Err(Failure::Wait(error)),
            Ok(None) => {}
        }
        let failure = match (stopped(), started.elapsed() > wall) {
            (true, _) => Failure::Stopped,
            (false, true) => Failure::Late(wall),
            (false, false) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
                continue;
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        return Err(failure);
    }
}

/// One line for people, whatever the child wrote.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let plain = line.chars().filter(|c| !c.is_control()).take(300);
    match plain.collect::<String>() {
        line if line.is_empty() => "the parser gave no reason".to_owned(),
        line => line,
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
