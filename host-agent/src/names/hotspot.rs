//! Asks a Java process to write its perf map, as `jcmd PID Compiler.perfmap` does: through the socket of HotSpot's attach
//! mechanism. Nothing is loaded into the process.

use super::process::inner_pid;
use crate::limits;
use crate::process::{Process, read_proc};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process may take to open its socket, and to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// HotSpot is mapped.
pub fn is_java(process: &Process) -> bool {
    process
        .mappings
        .iter()
        .any(|m| m.is_file() && m.path.ends_with(b"/libjvm.so"))
}

/// Sends a diagnostic command; the answer is its text.
///
/// # Errors
/// When the process has no such socket, does not catch SIGQUIT, or refuses.
pub fn ask(process: &Process, command: &str) -> io::Result<String> {
    let (pid, inner) = (process.id.pid, inner_pid(process));
    let socket = format!("/proc/{pid}/root/tmp/.java_pid{inner}");
    if !is_socket(&socket) {
        open_socket(pid, inner, &socket)?;
    }
    let mut stream = UnixStream::connect(&socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
    let mut answer = Vec::new();
    stream
        .take(limits::PROC_FILE_BYTES)
        .read_to_end(&mut answer)?;
    text_of(&answer)
}

/// An answer begins with a line that holds a number, 0 for a command that was done.
pub(crate) fn text_of(answer: &[u8]) -> io::Result<String> {
    let answer = String::from_utf8_lossy(answer).into_owned();
    match answer.strip_prefix("0\n") {
        Some(text) => Ok(text.to_owned()),
        None => Err(io::Error::other(answer)),
    }
}

/// A file `.attach_pidN` and SIGQUIT let HotSpot open its socket.
fn open_socket(pid: u32, inner: u32, socket: &str) -> io::Result<()> {
    if !catches_quit(pid) {
        return Err(io::Error::other("the process does not catch SIGQUIT"));
    }
    let attach = format!("/proc/{pid}/root/tmp/.attach_pid{inner}");
    make_empty(&attach)?;
    let result = quit(pid).and_then(|()| wait_for(socket));
    let _ = std::fs::remove_file(&attach);
    result
}

/// Not opened for writing: a confined agent may not.
fn make_empty(path: &str) -> io::Result<()> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: a text that ends with NUL and lives during the call.
    match unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o600, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn quit(pid: u32) -> io::Result<()> {
    // SAFETY: a signal to a process that catches it.
    match unsafe { libc::kill(pid as libc::pid_t, libc::SIGQUIT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn wait_for(socket: &str) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !is_socket(socket) {
        if Instant::now() > until {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_socket(path: &str) -> bool {
    std::fs::symlink_metadata(Path::new(path)).is_ok_and(|data| data.file_type().is_socket())
}

/// Without a handler the signal would end the process.
fn catches_quit(pid: u32) -> bool {
    let status = read_proc(pid, "status", limits::PROC_FILE_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (libc::SIGQUIT - 1) & 1 == 1)
}
