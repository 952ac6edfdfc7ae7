//! Peer processes: building them, and talking to them in lines.

use std::{
    collections::HashMap,
    error::Error,
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The folder of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder for built peers and inputs, below the target folder.
pub fn scratch(name: &str) -> Outcome<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    let folder = target.join("bench").join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

/// Runs `command` to its end with its output on stderr.
pub fn build(command: &mut Command) -> Outcome<()> {
    let status = command
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .map_err(|error| format!("{:?} cannot run: {error}", command.get_program()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?} ended with {status}").into())
    }
}

/// A cargo build of one package in its own target folder; answers the folder of its binaries.
pub struct CargoBuild<'a> {
    /// Folder of the package, relative to the repository.
    pub folder: &'a str,
    /// Name of the target folder below `target/bench`.
    pub variant: &'a str,
    /// Arguments after `cargo build --release`.
    pub args: &'a [&'a str],
    /// Whether all of it, dependencies included, keeps frame pointers.
    pub frame_pointers: bool,
}

impl CargoBuild<'_> {
    /// Builds, and answers the folder that holds the binaries.
    pub fn run(&self) -> Outcome<PathBuf> {
        let target = scratch(self.variant)?;
        let mut command = Command::new("cargo");
        command
            .current_dir(repository().join(self.folder))
            .args(["build", "--release", "--quiet", "--locked", "--target-dir"])
            .arg(&target)
            .args(self.args);
        if self.frame_pointers {
            command.env("RUSTFLAGS", "-C force-frame-pointers=yes");
        }
        build(&mut command)?;
        Ok(target.join("release"))
    }
}

/// Runs a measuring process and reads its `name value` lines.
pub fn readings<S: AsRef<OsStr>>(program: &Path, args: &[S]) -> Outcome<Readings> {
    let output = Command::new(program)
        .args(args)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", program.display(), output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Ok(Readings(values.collect()))
}

/// Named values of one measuring process.
pub struct Readings(HashMap<String, f64>);

impl Readings {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Outcome<f64> {
        Ok(*self
            .0
            .get(name)
            .ok_or_else(|| format!("the measuring process said no {name}"))?)
    }
}

/// A process that answers one line on stdout for each line on stdin.
pub struct Dialogue {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts the process.
    pub fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no stdin")?;
        let output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Dialogue {
            child,
            input,
            output,
        })
    }

    /// Sends one line and reads one.
    pub fn ask(&mut self, line: &str) -> Outcome<String> {
        writeln!(self.input, "{line}")?;
        let mut answer = String::new();
        if self.output.read_line(&mut answer)? == 0 {
            return Err(format!("the peer ended at {line:?}").into());
        }
        Ok(answer.trim_end().to_owned())
    }

    /// Sends one line and reads a number.
    pub fn ask_number(&mut self, line: &str) -> Outcome<f64> {
        Ok(self.ask(line)?.parse()?)
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // It has nothing to save; a failure means that it is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
