//! What a start does: list the folder, take headers from the index or the files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::catalog::{Catalog, Segment};
use super::disk::Disk;
use super::lease;
use super::load::{self, LoadError};
use super::metastore::{self, Change, Metastore, Sled};
use crate::block::{self, Files, sibling};
use crate::log;
use crate::segment::{self, Damage, Header};

/// How far a start is.
#[derive(Default)]
pub struct Progress {
    /// Segment files found.
    pub found: AtomicU64,
    /// Of them, read.
    pub read: AtomicU64,
    /// Headers taken from the index instead of the file.
    pub from_index: AtomicU64,
    /// Files whose identities were read one by one.
    pub identity_files_read: AtomicU64,
    /// Blocks whose identities came from the file of identities.
    pub identity_files_spared: AtomicU64,
    /// Whether all is known.
    pub done: AtomicBool,
    /// What was wrong with the index, if anything.
    pub index_note: Mutex<Option<String>>,
}

impl Progress {
    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{} of {} segments",
            self.read.load(Relaxed),
            self.found.load(Relaxed)
        )
    }

    fn note(&self, text: String) {
        log::warn(&text, &[]);
        *self
            .index_note
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// The index, kept in step with the catalog by a thread of its own. Never needed for an answer.
pub struct Index {
    folder: PathBuf,
    store: Option<Sled>,
    stored: HashMap<Vec<u8>, u64>,
    /// Nothing of the store's content is known: it is replaced as a whole.
    fresh: bool,
    /// What the catalog was when it was last written.
    seen: Option<u64>,
}

/// How long sled may take to open before its folder is set aside.
const OPEN_DEADLINE: Duration = Duration::from_secs(10);
const PREFIX: &[u8] = b"segment/";
/// Version of what the index holds: one without it, or with another, counts for nothing.
const FORMAT_KEY: &[u8] = b"format";
const FORMAT: &[u8] = b"2";

/// What a segment's file or a block's manifest says.
pub(super) type Described = (Header, Option<Files>);

fn describe(bytes: &[u8]) -> Result<Described, Damage> {
    if bytes.starts_with(b"PLBK") {
        let (header, files) = block::decode_manifest(bytes)?;
        return Ok((header, Some(files)));
    }
    Ok((segment::header_from_index(bytes)?, None))
}

fn key(name: &str) -> Vec<u8> {
    [PREFIX, name.as_bytes()].concat()
}

impl Index {
    /// Opens the index and reads it; sets it aside when it cannot be used.
    pub fn open(
        folder: PathBuf,
        rebuild: bool,
        progress: &Progress,
    ) -> (Self, HashMap<String, Described>) {
        if rebuild {
            if let Err(error) = metastore::set_aside(&folder) {
                progress.note(format!(
                    "the index cannot be moved away for a rebuild: {error}"
                ));
            }
        } else {
            match open_and_read(folder.clone()) {
                Ok((store, headers, stored, fresh)) => {
                    return (
                        Self {
                            folder,
                            store: Some(store),
                            stored,
                            fresh,
                            seen: None,
                        },
                        headers,
                    );
                }
                Err(reason) => {
                    let aside = metastore::set_aside(&folder);
                    progress.note(format!(
                        "the index was unusable ({reason}) and is built anew from the segments; {}",
                        match aside {
                            Ok(Some(path)) => format!("the old one is kept in {}", path.display()),
                            Ok(None) => "there was no old one".to_owned(),
                            Err(error) => format!("it cannot be moved away: {error}"),
                        }
                    ));
                }
            }
        }
        let at = folder.clone();
        let store = metastore::guarded(OPEN_DEADLINE, move || Sled::open(&at));
        if let Err(reason) = &store {
            progress.note(format!("the server runs without an index: {reason}"));
        }
        (
            Self {
                folder,
                store: store.ok(),
                stored: HashMap::new(),
                fresh: true,
                seen: None,
            },
            HashMap::new(),
        )
    }

    /// Makes the index say what the catalog says.
    pub fn sync(&mut self, catalog: &Catalog, progress: &Progress) {
        let now = catalog.changes();
        if self.seen.replace(now) == Some(now) {
            return;
        }
        let live = catalog.select(|_| true);
        let mut wanted = HashMap::with_capacity(live.len());
        let mut changes: Vec<Change> = Vec::new();
        for segment in &live {
            let key = key(&segment.name);
            if !self.stored.contains_key(&key) {
                let bytes = match &segment.block {
                    Some(files) => block::encode_manifest(&segment.header, files),
                    None => segment::header_bytes(&segment.header),
                };
                changes.push((key.clone(), Some(bytes)));
            }
            wanted.insert(key, segment.header.file_len);
        }
        let gone = self.stored.keys().filter(|key| !wanted.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), None)));
        self.stored = wanted;
        let Some(store) = &self.store else { return };
        let written = if std::mem::take(&mut self.fresh) {
            let pairs = changes
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)));
            let format = (FORMAT_KEY.to_vec(), FORMAT.to_vec());
            store.rebuild(std::iter::once(format).chain(pairs).collect())
        } else {
            store.put_batch(changes)
        };
        if let Err(reason) = written {
            progress.note(format!(
                "the index in {} fails ({reason}) and is no longer written; \
                 the next start builds it anew",
                self.folder.display()
            ));
            self.store = None;
            let _ = metastore::set_aside(&self.folder);
        }
    }

    /// Asks the index to reach the disk, at the end of the process.
    pub fn flush(&self) {
        if let Some(store) = &self.store {
            let _ = store.flush();
        }
    }
}

type Read = (
    Sled,
    HashMap<String, Described>,
    HashMap<Vec<u8>, u64>,
    bool,
);

fn open_and_read(folder: PathBuf) -> Result<Read, String> {
    metastore::guarded(OPEN_DEADLINE, move || {
        let store = Sled::open(&folder)?;
        let fresh = match store.get(FORMAT_KEY)? {
            Some(format) if format == FORMAT => false,
            // Half written, or by another version: what it says is not used.
            _ => true,
        };
        if fresh {
            return Ok((store, HashMap::new(), HashMap::new(), true));
        }
        let (mut headers, mut stored) = (HashMap::new(), HashMap::new());
        store.scan_prefix(PREFIX, |key, value| {
            let name = String::from_utf8_lossy(&key[PREFIX.len()..]).into_owned();
            let described = describe(value).map_err(|error| error.to_string())?;
            stored.insert(key.to_vec(), described.0.file_len);
            headers.insert(name, described);
            Ok(())
        })?;
        Ok((store, headers, stored, false))
    })
}

/// Fills the catalog from the folder, which is the truth; the index only spares reads.
///
/// # Errors
/// When the folder cannot be listed.
pub fn catalog(
    disk: &dyn Disk,
    catalog: &Catalog,
    indexed: HashMap<String, Described>,
    now_ns: i64,
    progress: &Progress,
) -> std::io::Result<()> {
    fill(disk, catalog, disk.list()?, indexed, now_ns, progress);
    Ok(())
}

/// The same from a listing of the folder.
pub fn fill(
    disk: &dyn Disk,
    catalog: &Catalog,
    files: Vec<(String, u64)>,
    mut indexed: HashMap<String, Described>,
    now_ns: i64,
    progress: &Progress,
) {
    let files = files.into_iter();
    let (columns, files): (Vec<_>, Vec<_>) = files
        .filter(|(name, _)| !name.ends_with(lease::END))
        .partition(|(name, _)| is_columns(name));
    let mut columns: HashMap<String, u64> = columns.into_iter().collect();
    progress.found.store(files.len() as u64, Relaxed);
    for (name, len) in files {
        progress.read.fetch_add(1, Relaxed);
        let own = take_columns(&mut columns, &name);
        // A merge mostly sorts before its sources.
        if catalog.retire_replaced(&name, now_ns) {
            continue;
        }
        let known = indexed.remove(&name).filter(|known| fits(known, len, own));
        if known.is_some() {
            progress.from_index.fetch_add(1, Relaxed);
        }
        match known.map_or_else(|| read(disk, &name, len, own), Ok) {
            Ok((header, block)) => catalog.insert(
                Segment {
                    name,
                    header,
                    block,
                },
                now_ns,
            ),
            Err(LoadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = "a file is damaged and left out of answers";
                log::error(what, &[("file", &name), ("reason", &error)]);
                catalog.quarantine(&name, error.to_string());
            }
        }
    }
    if disk.shared() {
        // Perhaps another server is about to write their manifest.
        return;
    }
    // Written before a manifest that never came.
    columns
        .into_keys()
        .for_each(|name| catalog.retire_again(name, now_ns));
}

/// Lengths of the samples and symbols files of a block, taken out of a listing.
pub(super) fn take_columns(columns: &mut HashMap<String, u64>, manifest: &str) -> [Option<u64>; 2] {
    [block::SAMPLES, block::SYMBOLS].map(|end| columns.remove(&sibling(manifest, end)))
}

/// Whether a file is part of a block without being its manifest.
pub(super) fn is_columns(name: &str) -> bool {
    name.ends_with(block::SAMPLES) || name.ends_with(block::SYMBOLS)
}

/// Whether what the index knows is what the folder holds. `len`: of the segment or manifest; `own`:
/// of the samples and symbols files.
fn fits(known: &Described, len: u64, own: [Option<u64>; 2]) -> bool {
    match &known.1 {
        None => known.0.file_len == len,
        Some(files) => {
            own == [Some(files.samples_len), Some(files.symbols_len)]
                && known.0.file_len == len + files.samples_len + files.symbols_len
        }
    }
}

/// What a file says of itself. `len`, `own`: as listed.
pub(super) fn read(
    disk: &dyn Disk,
    name: &str,
    len: u64,
    own: [Option<u64>; 2],
) -> Result<Described, LoadError> {
    if !name.ends_with(block::MANIFEST) {
        return Ok((load::header(disk, name, len)?, None));
    }
    let (header, files) = load::manifest(disk, name, len)?;
    let wanted = [files.samples_len, files.symbols_len];
    for ((what, want), have) in ["samples file", "symbols file"]
        .into_iter()
        .zip(wanted)
        .zip(own)
    {
        let have = have.unwrap_or(0);
        if have != want {
            return Err(Damage::Length { what, have, want }.into());
        }
    }
    Ok((header, Some(files)))
}
