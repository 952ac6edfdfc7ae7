//! The bare server (`serve` of `server/examples`), and what the kernel says about it.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    mem,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::http::Client;
use crate::child::{Outcome, build, repository, scratch};

/// Neither merges nor roll-ups.
const STILL: &[&str] = &["--no-maintenance"];

/// A running server with a fresh data folder.
pub struct Server {
    child: Child,
    /// Where it listens, on loopback.
    pub port: u16,
    /// Its data folder.
    pub data: PathBuf,
    more: &'static [&'static str],
    /// Seconds from start to ready.
    pub ready_seconds: f64,
}

impl Server {
    /// Builds the server, starts it and waits until it is ready.
    pub fn start() -> Outcome<Self> {
        let data = scratch("server-data")?;
        fs::remove_dir_all(&data)?;
        Self::over(data)
    }

    /// A server over data that is there already.
    pub fn over_data(data: PathBuf) -> Outcome<Self> {
        Self::over(data)
    }

    /// The same without anything done in the background.
    pub fn still_over_data(data: PathBuf) -> Outcome<Self> {
        Self::launch(Command::new(program()?), data, STILL)
    }

    /// That on one CPU alone.
    pub fn still_on_one_cpu(data: PathBuf) -> Outcome<Self> {
        let mut command = Command::new(program()?);
        // SAFETY: the hook makes one system call and allocates nothing.
        unsafe { command.pre_exec(stay_on_one_cpu) };
        Self::launch(command, data, STILL)
    }

    /// `kill -9`, then a start over the same data.
    pub fn kill_and_restart(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        let program = Command::new(program()?);
        *self = Self::launch(program, self.data.clone(), self.more)?;
        Ok(())
    }

    fn over(data: PathBuf) -> Outcome<Self> {
        Self::launch(Command::new(program()?), data, &[])
    }

    fn launch(mut command: Command, data: PathBuf, more: &'static [&str]) -> Outcome<Self> {
        let begun = Instant::now();
        let mut child = command
            .arg(&data)
            // Benches push old data.
            .args(["--max-age-days", "3650"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut address)?;
        let port = address.trim().rsplit(':').next().unwrap_or_default();
        let port = port
            .parse()
            .map_err(|_| format!("the server said {address:?}"))?;
        let mut server = Server {
            child,
            port,
            data,
            more,
            ready_seconds: 0.0,
        };
        // It listens before it has read its segments.
        while Client::connect(port)?.request("GET", "/ready", b"")?.status != 200 {
            if begun.elapsed() > Duration::from_secs(180) {
                return Err("the server is not ready after 180 s".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        server.ready_seconds = begun.elapsed().as_secs_f64();
        Ok(server)
    }

    /// Waits until its index knows all that it read: nothing more is written then.
    pub fn wait_for_index(&self) -> Outcome<()> {
        let size = || bytes_on_disk(&self.data.join("index"));
        let mut last = size()?;
        for _ in 0..60 {
            thread::sleep(Duration::from_secs(2));
            let now = size()?;
            if now == last && now > 0 {
                return Ok(());
            }
            last = now;
        }
        Err("the index is still growing after two minutes".into())
    }

    /// CPU time of all its threads in seconds.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        let mut clock: libc::clockid_t = 0;
        let pid = libc::pid_t::try_from(self.child.id())?;
        // SAFETY: all-zero is a valid timespec.
        let mut now: libc::timespec = unsafe { mem::zeroed() };
        // SAFETY: both pointers are valid for the writes.
        let failed = unsafe {
            libc::clock_getcpuclockid(pid, &mut clock) != 0
                || libc::clock_gettime(clock, &mut now) != 0
        };
        if failed {
            return Err("the server's CPU clock cannot be read".into());
        }
        Ok(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9)
    }

    /// Its highest resident memory in MiB.
    pub fn peak_rss_mib(&self) -> Outcome<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.ok_or("no VmHWM")?.trim().trim_end_matches(" kB");
        Ok(kib.parse::<f64>()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Measured already; its data is thrown away at the next start.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stay_on_one_cpu() -> io::Result<()> {
    // SAFETY: all-zero is an empty set; the call reads it only.
    let failed = unsafe {
        let mut cpus: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(0, &mut cpus);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &cpus) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Bytes of all files below a folder.
pub fn bytes_on_disk(folder: &Path) -> Outcome<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            bytes_on_disk(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(sum)
}

fn program() -> Outcome<PathBuf> {
    example("serve")
}

/// An example of the server crate, built.
pub fn example(name: &str) -> Outcome<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    build(Command::new("cargo").current_dir(repository()).args([
        "build",
        "--release",
        "--quiet",
        "-p",
        "pilotlight-server",
        "--example",
        name,
    ]))?;
    Ok(target.join("release/examples").join(name))
}
