//! The process that parses.

use crate::facts::Facts;
use crate::filter;
use crate::limits::Limits;
use crate::report::Report;
use pilotlight_symbolize::tables::{self, Sources, build};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Where the parent leaves the limits: memory, table (bytes) and CPU (seconds).
pub(crate) const LIMITS: &str = "PILOTLIGHT_PARSE_LIMITS";
/// Set when the headers alone are asked for.
pub(crate) const INSPECT: &str = "PILOTLIGHT_PARSE_INSPECT";
/// Path of the file that the object shares DWARF with.
pub(crate) const SUPPLEMENTARY: &str = "PILOTLIGHT_PARSE_SUPPLEMENTARY";

/// All of a child: call it first thing in `main`, before there are threads. Reads an object from
/// standard input, writes its table to standard output and a report to standard error.
#[must_use]
pub fn child() -> ExitCode {
    match run() {
        Ok(text) => {
            eprint!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprint!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let limits = limits();
    let inspect = std::env::var_os(INSPECT).is_some();
    // SAFETY: standard input and output are open in every child of `Parser`, and nobody else of
    // this process uses them; they are never closed by us.
    let (object, table) = unsafe { (File::from_raw_fd(0), File::from_raw_fd(1)) };
    let (object, mut table) = (ManuallyDrop::new(object), ManuallyDrop::new(table));
    let file_bytes = object.metadata().map_err(|e| e.to_string())?.len();
    let map = Arc::new(map(&object)?);
    let shared = std::env::var_os(SUPPLEMENTARY)
        .map(map_shared)
        .transpose()?;
    leave_the_rest(&limits, file_bytes)?;
    let landlock = filter::leave_file_system();
    filter::enter()?;
    if inspect {
        return Ok(Facts::of(Shared(map))?.text());
    }
    let build_limits = tables::Limits {
        table_bytes: limits.table_bytes,
        inflated_bytes: limits.memory_bytes / 2,
        relief: Some(relief(
            std::iter::once(&map).chain(&shared).cloned().collect(),
        )),
    };
    let sources = Sources {
        supplementary: shared.as_ref().map(|map| &***map),
        ..Sources::of(&map)
    };
    let mut out = BufWriter::with_capacity(1 << 16, &mut *table);
    let report = build(&sources, &build_limits, &mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())?;
    Ok(Report::of(&report, landlock).text())
}

fn map(file: &File) -> Result<memmap2::Mmap, String> {
    // SAFETY: the file may change under the map: a reader of it can then see other bytes or get
    // SIGBUS. Every byte is hostile anyway, and a signal ends a child.
    unsafe { memmap2::Mmap::map(file) }.map_err(|e| e.to_string())
}

fn map_shared(path: std::ffi::OsString) -> Result<Arc<memmap2::Mmap>, String> {
    let said = |e| format!("the file that it shares DWARF with: {e}");
    let file = File::open(path).map_err(|e| said(e.to_string()))?;
    map(&file).map(Arc::new).map_err(said)
}

/// The mapped file as bytes with an owner.
struct Shared(Arc<memmap2::Mmap>);

impl std::ops::Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Pages of the files that were read, given back.
fn relief(maps: Vec<Arc<memmap2::Mmap>>) -> Box<dyn Fn()> {
    Box::new(move || {
        for map in &maps {
            // SAFETY: a read-only map of a file: pages that are dropped come back from the file
            // when they are read again.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    })
}

/// What needs system calls that the filter refuses.
fn leave_the_rest(limits: &Limits, file_bytes: u64) -> Result<(), String> {
    // SAFETY: plain numbers; closes what the parent left open by mistake, none of it ours.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
    limits.enter(file_bytes)
}

fn limits() -> Limits {
    let text = std::env::var(LIMITS).unwrap_or_default();
    let mut numbers = text.split(' ').map_while(|n| n.parse().ok());
    let standard = Limits::default();
    Limits {
        memory_bytes: numbers.next().unwrap_or(standard.memory_bytes),
        table_bytes: numbers.next().unwrap_or(standard.table_bytes),
        cpu: numbers.next().map_or(standard.cpu, Duration::from_secs),
        wall: standard.wall,
    }
}
