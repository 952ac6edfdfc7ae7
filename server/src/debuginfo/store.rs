//! The store as a whole: what is asked of it, and how files get in.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pilotlight_symbolize::Segment;

use super::facts::{Facts, Quality};
use super::index::{Index, Wanted};
use super::names::NamedParts;
use super::objects::{Fetched, ObjectFiles};
use super::parse::{Counts, Reader, Unread};
use super::record::{Record, Source};
use super::sources::{Asked, Asking, Client, Quest, Sources};
use super::tables::{Job, Lookup, State, Tables};
use super::upload::{Announced, Arrived, Held, Started, UploadError, Uploads, base_name};
use crate::env::Env;
use crate::hash::{bytes, pair};
use crate::log;

/// What debug information may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Bytes of one file. Default 4 GiB.
    pub max_file_bytes: u64,
    /// Bytes of all files. Default 50 GiB.
    pub max_bytes: u64,
    /// Bytes of the tables of parsed files that are kept: on disk and mapped where there is a `parser`,
    /// else in memory. A single larger one is kept alone. Default 1 GiB.
    pub table_cache_bytes: usize,
    /// Bytes of named parts in memory. Default 32 MiB.
    pub named_cache_bytes: usize,
    /// The program that reads a file in a process of its own, such as
    /// `Parser::new("/proc/self/exe", &["parse-debuginfo"])` in `pilotlight` itself. Without one files
    /// are read in the server's process, where a hostile one can do harm; that is logged and counted.
    pub parser: Option<pilotlight_sandbox::Parser>,
    /// What reading one file may cost. Without `parser` a table is never larger than `table_cache_bytes`.
    pub parse_limits: pilotlight_sandbox::Limits,
    /// Where files are looked for that nobody sent.
    pub sources: Sources,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_file_bytes: 4 << 30,
            max_bytes: 50 << 30,
            table_cache_bytes: 1 << 30,
            named_cache_bytes: 32 << 20,
            parser: None,
            parse_limits: pilotlight_sandbox::Limits::default(),
            sources: Sources::default(),
        }
    }
}

/// Why an address has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The profile does not say which build ran.
    NoBuildId,
    /// No file of this build id is here.
    NoDebuginfo,
    /// A file of this name is here, of another build.
    WrongId,
    /// The file cannot be read.
    ParseFailed,
    /// The file is being read, or looked for elsewhere.
    Waiting,
    /// The file does not know the address.
    NotInDebuginfo,
    /// The name stands in a file that is not here: several share it.
    NoShared,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoBuildId,
        Self::NoDebuginfo,
        Self::WrongId,
        Self::ParseFailed,
        Self::Waiting,
        Self::NotInDebuginfo,
        Self::NoShared,
    ];

    /// As it stands in a frame's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoBuildId => "no-build-id",
            Self::NoDebuginfo => "no-debuginfo",
            Self::WrongId => "wrong-id",
            Self::ParseFailed => "parse-failed",
            Self::Waiting => "waiting",
            Self::NotInDebuginfo => "not-in-debuginfo",
            Self::NoShared => "no-shared-debuginfo",
        }
    }
}

/// What is known of a binary.
#[derive(Clone)]
pub enum Found {
    /// Its names.
    File {
        /// Names by address.
        read: Arc<dyn Lookup>,
        /// Where its code is mapped.
        segments: Arc<[Segment]>,
        /// Whether the file offsets in `segments` are those of the file that ran.
        exact: bool,
        /// Why names are missing that stand in a file which this one shares.
        lacks: Option<Reason>,
        /// Differs from file to file.
        print: u64,
    },
    /// None.
    Missing(Reason),
}

impl Found {
    /// Changes when the answers change.
    pub fn print(&self) -> u64 {
        match self {
            Self::File { print, .. } => *print,
            Self::Missing(reason) => bytes(reason.word().as_bytes()),
        }
    }
}

/// The store of debug information.
pub struct Debuginfo {
    files: Arc<dyn ObjectFiles>,
    index: RwLock<Index>,
    uploads: Uploads,
    tables: Tables,
    reader: Reader,
    /// Parts with names.
    pub(super) named: NamedParts,
    /// Held while a file becomes one that counts.
    commit: Mutex<()>,
    /// Build id → hash of what was sent.
    sent: Mutex<HashMap<String, String>>,
    /// Build ids that are looked for elsewhere.
    pub(super) asking: Asking,
    /// debuginfod servers.
    pub(super) client: Client,
    scratch: PathBuf,
    settings: Settings,
    env: Arc<dyn Env>,
}

impl Debuginfo {
    /// Opens the store; `scratch` is a local folder for uploads. [`Debuginfo::recover`] finds what
    /// is stored.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(
        files: Arc<dyn ObjectFiles>,
        scratch: PathBuf,
        settings: Settings,
        env: Arc<dyn Env>,
    ) -> io::Result<Self> {
        let mut limits = settings.parse_limits;
        if settings.parser.is_none() {
            limits.table_bytes = limits.table_bytes.min(settings.table_cache_bytes as u64);
        }
        let reader = Reader::new(settings.parser.clone(), limits, scratch.clone());
        Ok(Self {
            files,
            index: RwLock::default(),
            uploads: Uploads::open(scratch.clone(), settings.max_file_bytes, env.now_ns())?,
            reader,
            tables: Tables::new(settings.table_cache_bytes),
            named: NamedParts::new(settings.named_cache_bytes),
            commit: Mutex::default(),
            sent: Mutex::default(),
            asking: Asking::new(settings.sources.ask_again),
            client: Client::new(&settings.sources, settings.max_file_bytes),
            scratch,
            settings,
            env,
        })
    }

    /// Reads the descriptions of all stored files. Leftovers of a crash are removed.
    ///
    /// # Errors
    /// When the files cannot be listed.
    pub fn recover(&self) -> io::Result<()> {
        let _commit = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.files.list()?;
        let mut described = std::collections::HashSet::new();
        for name in names.iter().filter(|name| name.ends_with(".json")) {
            let read = self.files.read(name);
            let Some(record) = read.ok().and_then(|bytes| Record::decode(&bytes)) else {
                log::warn(
                    "a file describes no debug information; left out",
                    &[("file", name)],
                );
                continue;
            };
            if *name != record.description_name() || !names.contains(&record.file_name()) {
                let what = "a description and its file do not belong together; left out";
                log::warn(what, &[("file", name)]);
                continue;
            }
            described.insert(record.file_name());
            self.count(record)?;
        }
        let left = names.iter().filter(|name| name.ends_with(".elf"));
        for name in left.filter(|name| !described.contains(*name)) {
            if self.files.alone() {
                self.files.remove(name)?;
            }
        }
        Ok(())
    }

    /// Makes a file count; removes those that it replaces, or the file itself when it is no use.
    fn count(&self, record: Record) -> io::Result<bool> {
        let own = record.clone();
        let (counts, replaced) = {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.insert(record)
        };
        for gone in &replaced {
            self.remove(gone)?;
        }
        if !counts {
            self.remove(&own)?;
        }
        Ok(counts)
    }

    fn remove(&self, record: &Record) -> io::Result<()> {
        self.tables.forget(&record.sha256);
        // The description first: without it the file does not count.
        self.files.remove(&record.description_name())?;
        self.files.remove(&record.file_name())
    }

    fn read<T>(&self, ask: impl FnOnce(&Index) -> T) -> T {
        ask(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a file of this build id and quality would be of use.
    pub fn wanted(&self, build_id: &str, quality: Quality, has_code: bool) -> Wanted {
        self.read(|index| index.wanted(build_id, quality, has_code))
    }

    /// All stored files.
    pub fn all(&self) -> Vec<Arc<Record>> {
        self.read(Index::all)
    }

    /// The file that tells most of a build id, and one that has its code.
    pub fn of_build_id(&self, build_id: &str) -> Option<(Arc<Record>, Option<Arc<Record>>)> {
        self.read(|index| index.find(build_id))
    }

    /// The bytes of a stored file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn fetch(&self, record: &Record) -> io::Result<Fetched> {
        self.files.fetch(&record.file_name())
    }

    /// Whether a file of this hash (in the words of a protocol that cannot say how much a file
    /// tells) was sent before.
    pub fn was_sent(&self, build_id: &str, hash: &str) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        !hash.is_empty() && sent.get(build_id).is_some_and(|known| known == hash)
    }

    fn note_sent(&self, build_id: &str, hash: &str) {
        const MOST: usize = 100_000;
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if !hash.is_empty() && sent.len() < MOST {
            sent.insert(build_id.to_owned(), hash.to_owned());
        }
    }

    /// Begins an upload, unless the file is of no use.
    ///
    /// # Errors
    /// When the announcement makes no sense or there is no room.
    pub fn start_upload(
        &self,
        announced: Announced,
        source: Source,
    ) -> Result<Started, UploadError> {
        let wanted = self.wanted(&announced.build_id, announced.quality, announced.has_code);
        if !wanted.yes() {
            return Ok(Started::NotNeeded(wanted.text()));
        }
        self.check_room(announced.size_bytes)?;
        self.uploads.start(announced, source, self.env.now_ns())
    }

    /// Whether so many bytes more may be stored.
    ///
    /// # Errors
    /// [`UploadError::Full`].
    pub(super) fn check_room(&self, size_bytes: u64) -> Result<(), UploadError> {
        let stored = self.read(Index::bytes);
        if stored.saturating_add(size_bytes) > self.settings.max_bytes {
            return Err(UploadError::Full(format!(
                "{stored} bytes of debug information are stored and {size_bytes} more do not fit into {} \
                 (server.debuginfo.max_bytes); raise it, or delete files",
                self.settings.max_bytes
            )));
        }
        Ok(())
    }

    /// Takes hold of an upload.
    ///
    /// # Errors
    /// When there is none of this name.
    pub async fn hold(&self, id: &str) -> Result<Held, UploadError> {
        self.uploads.hold(id, self.env.now_ns()).await
    }

    /// Checks and stores a file that has arrived whole. Blocks.
    ///
    /// # Errors
    /// When bytes are missing, or the file is not what was announced, or cannot be stored.
    pub fn finish_upload(&self, held: &Held) -> Result<(Record, bool), UploadError> {
        let arrived = self.uploads.finish(held, &self.reader);
        if !matches!(arrived, Err(UploadError::Bad(_) | UploadError::Io(_))) {
            self.note_sent(&held.announced().build_id, &held.announced().hash);
        }
        let arrived = arrived?;
        let stored = self.store(arrived)?;
        self.uploads.close(held);
        Ok(stored)
    }

    /// Stores a checked file; answers whether it is of use. Blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, arrived: Arrived) -> io::Result<(Record, bool)> {
        let mut record = Record::new(
            &arrived.facts,
            arrived.size_bytes,
            &arrived.sha256,
            &arrived.name,
            arrived.source,
        );
        record.stored_ns = self.env.now_ns();
        let _commit = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((best, code)) = self.of_build_id(record.ids().first().map_or("", |id| id)) {
            let both = [Some(best), code].into_iter().flatten();
            let same = |of: &Arc<Record>| of.sha256 == record.sha256 && of.failed.is_none();
            if let Some(same) = both.into_iter().find(same) {
                return Ok((Record::clone(&same), true));
            }
        }
        self.files.put_file(&record.file_name(), &arrived.path)?;
        let description = record.encode();
        self.files
            .put_bytes(&record.description_name(), &description)?;
        let counts = self.count(record.clone())?;
        if counts {
            // Read at once, so that the first who asks does not wait. A file that others share names
            // nothing by itself.
            if !record.segments().is_empty() {
                let (job, _) = self.job_of(&record);
                self.tables.get(&job);
            }
        }
        Ok((record, counts))
    }

    /// What is known of a binary that a profile names.
    pub fn find(&self, build_id: &str, file: &str) -> Found {
        if build_id.is_empty() {
            return Found::Missing(Reason::NoBuildId);
        }
        let Some((best, code)) = self.of_build_id(build_id) else {
            if self.want(build_id, file) {
                return Found::Missing(Reason::Waiting);
            }
            let other = self.read(|index| index.has_name(base_name(file)));
            let reason = if other {
                Reason::WrongId
            } else {
                Reason::NoDebuginfo
            };
            return Found::Missing(reason);
        };
        if best.rank() < Quality::Symtab {
            self.want(best.gnu.as_deref().unwrap_or(build_id), file);
        }
        if best.failed.is_some() {
            return Found::Missing(Reason::ParseFailed);
        }
        let (job, lacks) = self.job_of(&best);
        let (read, lacks) = match self.tables.get(&job) {
            State::Ready(read) => (read, lacks),
            // What it shares has just come: names that there were stay meanwhile.
            State::Waiting => match self.tables.ready(&job.alone()) {
                Some(read) => (read, Some(Reason::Waiting)),
                None => return Found::Missing(Reason::Waiting),
            },
        };
        let mapped = code.as_ref().unwrap_or(&best);
        let prints = [best.sha256.as_str(), &mapped.sha256, job.shared_sha256()];
        let print = prints.map(|of| bytes(of.as_bytes()));
        let lacking = bytes(lacks.map_or("", Reason::word).as_bytes());
        Found::File {
            read,
            segments: mapped.segments().into(),
            exact: mapped.has_code,
            lacks,
            print: print.into_iter().fold(lacking, pair),
        }
    }

    /// How to read a file: with the one that it shares DWARF with, or why without it.
    fn job_of(&self, record: &Record) -> (Job, Option<Reason>) {
        let mut job = Job {
            key: record.key(),
            sha256: record.sha256.clone(),
            file: record.file_name(),
            shared: None,
        };
        let Some(shared) = &record.shared else {
            return (job, None);
        };
        if let Some((stored, _)) = self.of_build_id(&shared.build_id) {
            job.shared = Some((stored.sha256.clone(), stored.file_name()));
            return (job, None);
        }
        let quest = Quest {
            build_id: shared.build_id.clone(),
            name: base_name(&shared.path).to_owned(),
            path: shared.path.clone(),
        };
        let any = self.settings.sources.any();
        let waits = any && self.asking.want(quest, self.env.now_ns());
        let lacks = if waits {
            Reason::Waiting
        } else {
            Reason::NoShared
        };
        (job, Some(lacks))
    }

    /// Has a file looked for where nobody sent it; answers whether it is waited for.
    fn want(&self, build_id: &str, file: &str) -> bool {
        let quest = Quest {
            build_id: build_id.to_owned(),
            name: base_name(file).to_owned(),
            path: String::new(),
        };
        let any = self.settings.sources.any();
        any && self.asking.want(quest, self.env.now_ns())
    }

    /// What was found of a build id elsewhere.
    pub fn asked(&self, build_id: &str) -> Option<Asked> {
        self.asking.asked(build_id)
    }

    /// Where files are looked for, and the queue of what is.
    pub fn sources_and_queue(&self) -> (&Sources, &Asking) {
        (&self.settings.sources, &self.asking)
    }

    /// Finds what is stored, then reads files as they are asked for, until [`Debuginfo::stop`].
    pub fn run(&self) {
        if let Err(error) = self.recover() {
            log::error("debug information cannot be listed", &[("error", &error)]);
        }
        self.asking.start();
        while let Some(job) = self.tables.next() {
            let read = self.read_file(&job);
            if let Err(unread) = &read {
                let what = "a file with debug information cannot be read";
                log::warn(what, &[("file", &job.file), ("reason", &unread.text())]);
            }
            self.tables.done(&job, read.ok());
        }
    }

    fn read_file(&self, job: &Job) -> Result<Arc<dyn Lookup>, Unread> {
        let fetched = self.files.fetch(&job.file);
        let fetched = fetched.map_err(|error| Unread::Here(error.to_string()))?;
        let shared = self.fetch_shared(job)?;
        let mut read = self
            .reader
            .parse(fetched.path(), shared.as_ref().map(Fetched::path));
        if let (Some((_, file)), Err(unread)) = (&job.shared, &read) {
            // Perhaps the other one is at fault: this one must not pay for it.
            let what = "debug information that several files share cannot be read with one of them";
            let fields: [(&str, &dyn std::fmt::Display); 3] = [
                ("file", &job.file),
                ("shared", file),
                ("reason", &unread.text()),
            ];
            log::warn(what, &fields);
            read = self.reader.parse(fetched.path(), None);
        }
        if let Err(Unread::File(reason)) = &read {
            let noted = self.note_failed(job, reason);
            noted.map_err(|error| Unread::Here(format!("{reason}; noting that: {error}")))?;
        }
        read
    }

    fn fetch_shared(&self, job: &Job) -> Result<Option<Fetched>, Unread> {
        let fetch = |(_, file): &(String, String)| self.files.fetch(file);
        let fetched = job.shared.as_ref().map(fetch).transpose();
        fetched.map_err(|error| Unread::Here(format!("what it shares: {error}")))
    }

    /// Writes down why a file gives no names.
    fn note_failed(&self, job: &Job, reason: &str) -> io::Result<()> {
        let _commit = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.fail(&job.key, &job.sha256, reason)
        };
        match failed {
            Some(record) => {
                let name = record.description_name();
                self.files.put_bytes(&name, &record.encode())
            }
            None => Ok(()),
        }
    }

    /// How files were read since the start of the process.
    pub fn counts(&self) -> &Counts {
        self.reader.counts()
    }

    /// Ends [`Debuginfo::run`].
    pub fn stop(&self) {
        self.asking.stop();
        self.reader.stop();
        self.tables.stop();
    }

    pub(super) fn inspect(&self, path: &Path) -> Result<Facts, Unread> {
        self.reader.inspect(path)
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.settings.sources
    }

    pub(super) fn max_file_bytes(&self) -> u64 {
        self.settings.max_file_bytes
    }

    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.env.now_ns()
    }

    /// For `/api/v1/debuginfo`: bytes stored, uploads under way, bytes and files in memory.
    pub fn stats(&self) -> (u64, usize, usize, usize) {
        let (table_bytes, tables) = self.tables.stats();
        let uploads = self.uploads.count();
        (self.read(Index::bytes), uploads, table_bytes, tables)
    }
}
