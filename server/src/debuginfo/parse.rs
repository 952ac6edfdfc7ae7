//! Reading a file that somebody sent: in a process of its own, so that a hostile one costs only that.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pilotlight_sandbox::{Failure, Job, Limits, Parser};
use pilotlight_symbolize::tables::{self, Sources, Table, build};
use pilotlight_symbolize::{Error, Frame};

use super::facts::{Facts, inspect};
use super::tables::Lookup;
use crate::log;

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// The file is at fault: it is not tried again.
    File(String),
    /// This machine is: it may be tried again.
    Here(String),
}

impl Unread {
    /// The reason.
    pub fn text(&self) -> &str {
        let (Self::File(text) | Self::Here(text)) = self;
        text
    }
}

fn here(what: &str) -> impl FnOnce(io::Error) -> Unread {
    move |error| Unread::Here(format!("{what}: {error}"))
}

/// Files read, and not read, by how and why.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; 7]);

/// What is counted, in the order of [`Counts::all`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Sandbox,
    InProcess,
    Refused,
    Killed,
    Late,
    NotStarted,
    Panicked,
}

impl Counts {
    fn add(&self, what: Counted) {
        self.0[what as usize].fetch_add(1, Relaxed);
    }

    /// (how it was read, files), of all that were read, by whom.
    pub fn read(&self) -> [(&'static str, u64); 2] {
        [("sandbox", self.of(0)), ("in_process", self.of(1))]
    }

    /// (why, files) of those that gave nothing.
    pub fn failed(&self) -> [(&'static str, u64); 5] {
        [
            ("refused", self.of(2)),
            ("killed", self.of(3)),
            ("late", self.of(4)),
            ("not_started", self.of(5)),
            ("panicked", self.of(6)),
        ]
    }

    fn of(&self, at: usize) -> u64 {
        self.0[at].load(Relaxed)
    }
}

/// Reads files.
pub struct Reader {
    parser: Option<Parser>,
    limits: Limits,
    /// A local folder for tables that are being written.
    scratch: PathBuf,
    stop: Arc<AtomicBool>,
    warned: AtomicBool,
    counts: Counts,
}

impl Reader {
    /// With `parser` as the process that reads; without one, files are read in this process.
    pub fn new(parser: Option<Parser>, limits: Limits, scratch: PathBuf) -> Self {
        Self {
            parser,
            limits,
            scratch,
            stop: Arc::default(),
            warned: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// How files were read since the start of the process.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Ends what is being read, and all that comes.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// What a file says of itself. Blocks.
    ///
    /// # Errors
    /// The reason why nothing.
    pub fn inspect(&self, path: &Path) -> Result<Facts, Unread> {
        let Some(parser) = self.parser() else {
            return self.in_process(|| inspect(path));
        };
        let object = File::open(path).map_err(here("it cannot be opened"))?;
        let job = Job::headers(object).within(self.limits);
        let found = parser.inspect(&job.until(self.stop.clone()));
        self.counted(found).map(Facts::from)
    }

    /// The names of a file, with those that stand in the one that it shares DWARF with. Blocks.
    ///
    /// # Errors
    /// The reason why it gives none.
    pub fn parse(&self, path: &Path, shared: Option<&Path>) -> Result<Arc<dyn Lookup>, Unread> {
        let table = match self.parser() {
            Some(parser) => self.in_child(parser, path, shared)?,
            None => Box::new(self.in_process(|| table_of(path, shared, &self.limits))?),
        };
        Ok(Arc::new(Built { table }))
    }

    fn in_child(
        &self,
        parser: &Parser,
        path: &Path,
        shared: Option<&Path>,
    ) -> Result<Bytes, Unread> {
        let object = File::open(path).map_err(here("it cannot be opened"))?;
        let mut job = Job::headers(object).within(self.limits);
        if let Some(shared) = shared {
            job = job.with(shared.to_owned());
        }
        let table = parser.map(job.until(self.stop.clone()), &self.scratch);
        let table = match self.counted(table) {
            Ok(table) => table,
            // A file with code only is sound; it knows no address.
            Err(Unread::File(reason)) if reason == Error::NoSymbols.to_string() => {
                return Ok(Box::new(Vec::new()));
            }
            Err(unread) => return Err(unread),
        };
        match Table::open(&table) {
            Ok(_) => Ok(Box::new(table)),
            Err(error) => Err(Unread::File(format!("its table: {error}"))),
        }
    }

    fn parser(&self) -> Option<&Parser> {
        if self.parser.is_none() && !self.warned.swap(true, Relaxed) {
            let what = "files of debug information are read in the server's own process: no \
                        parser is set, so a hostile file can end the server; start it by \
                        `pilotlight server`, or set DebuginfoSettings::parser";
            log::warn(what, &[]);
        }
        self.parser.as_ref()
    }

    fn counted<T>(&self, done: Result<T, Failure>) -> Result<T, Unread> {
        let failure = match done {
            Ok(done) => {
                self.counts.add(Counted::Sandbox);
                return Ok(done);
            }
            Err(failure) => failure,
        };
        self.counts.add(match &failure {
            Failure::Refused(reason) if *reason == Error::NoSymbols.to_string() => Counted::Sandbox,
            Failure::Refused(_) => Counted::Refused,
            Failure::Killed { .. } => Counted::Killed,
            Failure::Late(_) => Counted::Late,
            _ => Counted::NotStarted,
        });
        Err(match failure.is_of_the_file() {
            true => Unread::File(failure.to_string()),
            false => Unread::Here(failure.to_string()),
        })
    }

    fn in_process<T>(&self, read: impl FnOnce() -> Result<T, String>) -> Result<T, Unread> {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        self.counts.add(match &done {
            Ok(Ok(_)) => Counted::InProcess,
            Ok(Err(_)) => Counted::Refused,
            Err(_) => Counted::Panicked,
        });
        let done = done.unwrap_or_else(|_| Err("reading it panicked".to_owned()));
        done.map_err(Unread::File)
    }
}

fn table_of(path: &Path, shared: Option<&Path>, limits: &Limits) -> Result<Vec<u8>, String> {
    let read = |path| fs::read(path).map_err(|error| format!("it cannot be read: {error}"));
    let (file, shared) = (read(path)?, shared.map(read).transpose()?);
    let sources = Sources {
        supplementary: shared.as_deref(),
        ..Sources::of(&file)
    };
    let limits = tables::Limits {
        table_bytes: limits.table_bytes,
        ..tables::Limits::default()
    };
    let mut table = Vec::new();
    match build(&sources, &limits, &mut table) {
        Ok(_) => {
            Table::open(&table).map_err(|error| error.to_string())?;
        }
        // A file with code only is sound; it knows no address.
        Err(Error::NoSymbols) => table.clear(),
        Err(error) => return Err(error.to_string()),
    }
    table.shrink_to_fit();
    Ok(table)
}

/// A table, mapped or in memory.
type Bytes = Box<dyn Deref<Target = [u8]> + Send + Sync>;

/// A table; an empty one for a file without names.
struct Built {
    table: Bytes,
}

impl Lookup for Built {
    fn frames(&self, svma: u64) -> Vec<Frame> {
        let table = Table::open(&self.table);
        let frames = table.and_then(|table| table.frames(svma));
        frames.unwrap_or_default()
    }

    fn extent(&self, svma: u64) -> Option<u64> {
        Table::open(&self.table).ok()?.extent(svma).ok()?
    }

    fn held_bytes(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(script: Option<&str>, folder: &Path) -> Reader {
        let parser = script.map(|script| Parser::new("/bin/sh", &["-c", script]));
        Reader::new(parser, Limits::default(), folder.to_owned())
    }

    fn count(counts: &[(&str, u64)], key: &str) -> u64 {
        counts.iter().find(|(of, _)| *of == key).unwrap().1
    }

    #[test]
    fn a_file_is_at_fault_for_a_dead_parser_and_the_machine_for_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let own = Path::new("/proc/self/exe");
        let dead = reader(Some("kill -9 $$"), folder.path());
        let unread = dead.parse(own, None).err().unwrap();
        assert!(
            matches!(&unread, Unread::File(reason) if reason.contains("signal 9")),
            "{unread:?}"
        );
        assert_eq!(count(&dead.counts().failed(), "killed"), 1);
        let garbled = reader(Some("echo no table"), folder.path());
        let unread = garbled.parse(own, None).err().unwrap();
        assert_eq!(unread.text(), "its table: not a lookup table");
        let missing = Reader::new(
            Some(Parser::new("/nothing/here", &[])),
            Limits::default(),
            folder.path().to_owned(),
        );
        let unread = missing.inspect(own).unwrap_err();
        assert!(matches!(unread, Unread::Here(_)), "{unread:?}");
        assert_eq!(count(&missing.counts().failed(), "not_started"), 1);
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "no table stays");
    }

    #[test]
    fn a_reader_that_is_stopped_blames_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(Some("exec sleep 600"), folder.path());
        reader.stop();
        let unread = reader
            .parse(Path::new("/proc/self/exe"), None)
            .err()
            .unwrap();
        assert!(matches!(unread, Unread::Here(_)), "{unread:?}");
    }

    #[test]
    fn without_a_parser_files_are_read_here_and_that_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(None, folder.path());
        let own = Path::new("/proc/self/exe");
        assert_eq!(reader.inspect(own), Ok(inspect(own).unwrap()));
        assert!(reader.parse(own, None).unwrap().held_bytes() > 0);
        let text = folder.path().join("text");
        fs::write(&text, "hello").unwrap();
        let refused = Unread::File("not an ELF file".to_owned());
        assert_eq!(reader.inspect(&text), Err(refused));
        let counts = reader.counts();
        assert_eq!(count(&counts.read(), "in_process"), 2);
        assert_eq!(count(&counts.failed(), "refused"), 1);
    }
}
