//! Which pushes a start knows: the identities of the newest profiles on disk, as many as are
//! remembered. Those of blocks are copied into one file, so that a start opens only segments and the
//! blocks that it does not name. The files of the store stay the truth: what stands here of a file
//! that is gone counts for nothing, and what is damaged or missing is read from the blocks again.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::catalog::{Catalog, Segment};
use super::disk::Disk;
use super::load::{self, LoadError};
use super::recover::Progress;
use crate::ingest::writer::Writer;
use crate::log;

/// The file begins with it.
const MAGIC: &[u8; 8] = b"PLIDS\0\0\x01";
/// Of a record: length of its name, number of its identities, CRC-32 of both, name and identities.
const HEAD_LEN: usize = 12;
/// An identity.
const ID_LEN: usize = 16;
/// So many bytes of files that are gone may stay.
const SLACK_BYTES: u64 = 1 << 20;

/// The file, kept in step with the catalog.
pub struct IdentityFile {
    path: PathBuf,
    /// Profiles remembered.
    limit: usize,
    /// Bytes of the record of each block.
    known: HashMap<String, u64>,
    /// Bytes of the file; `None` = it is not as it should be, and written anew.
    len: Option<u64>,
    /// What the catalog was at the last look.
    seen: Option<u64>,
}

/// What a start found in the file.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    /// Where the identities of a block stand.
    at: HashMap<String, Range<usize>>,
}

impl Found {
    /// Reads records up to the first that is cut or damaged.
    fn parse(bytes: Vec<u8>) -> (Self, HashMap<String, u64>, bool) {
        let (mut at, mut known) = (HashMap::new(), HashMap::new());
        let mut from = MAGIC.len();
        let mut good = bytes.starts_with(MAGIC);
        while good && from < bytes.len() {
            match record(&bytes[from..]) {
                Some((name, ids)) => {
                    let len = ids.end;
                    known.insert(name.to_owned(), len as u64);
                    at.insert(name.to_owned(), from + ids.start..from + len);
                    from += len;
                }
                None => good = false,
            }
        }
        (Self { bytes, at }, known, good)
    }

    fn ids(&self, name: &str) -> Option<impl Iterator<Item = u128>> {
        let bytes = self.bytes.get(self.at.get(name)?.clone())?;
        let id = |bytes: &[u8]| bytes.try_into().map_or(0, u128::from_le_bytes);
        Some(bytes.chunks_exact(ID_LEN).map(id))
    }
}

/// Name, and where the identities stand, of the record at the start of `bytes`.
fn record(bytes: &[u8]) -> Option<(&str, Range<usize>)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let ids_from = HEAD_LEN + number(0)? as usize;
    let end = ids_from.checked_add((number(4)? as usize).checked_mul(ID_LEN)?)?;
    let body = bytes.get(HEAD_LEN..end)?;
    if checksum(&bytes[..8], body) != number(8)? {
        return None;
    }
    let name = std::str::from_utf8(&bytes[HEAD_LEN..ids_from]).ok()?;
    Some((name, ids_from..end))
}

fn checksum(numbers: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(numbers);
    crc.update(body);
    crc.finalize()
}

fn encode(out: &mut Vec<u8>, name: &str, ids: &[u128]) {
    let start = out.len();
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(&(ids.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name.as_bytes());
    ids.iter()
        .for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
    let (head, body) = out[start..].split_at(HEAD_LEN);
    let crc = checksum(&head[..8], body);
    out[start + 8..start + HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
}

/// The newest files that hold `limit` profiles, newest first; roll-ups have no identities.
fn newest(catalog: &Catalog, limit: usize) -> Vec<Arc<Segment>> {
    let mut room = limit as u64;
    let mut files = catalog.select(|segment| super::retention::step_ns(segment) == 0);
    files.reverse();
    let within = files.into_iter().take_while(|file| {
        let before = room;
        room = room.saturating_sub(file.header.profiles());
        before > 0
    });
    within.collect()
}

/// Those of one file, other than "none".
pub(super) fn ids_of(disk: &dyn Disk, file: &Segment) -> Result<Vec<u128>, LoadError> {
    let mut ids = Vec::new();
    for part in 0..file.header.parts.len() {
        match &file.block {
            None => {
                let rows = load::profiles(disk, file, part)?.rows;
                ids.extend(rows.iter().map(|row| row.id));
            }
            Some(files) => ids.extend(load::block_ids(disk, file, files, part)?),
        }
    }
    ids.retain(|&id| id != 0);
    Ok(ids)
}

impl IdentityFile {
    /// For the newest `limit` profiles. `rebuild`: what the file says is not used.
    pub fn new(path: PathBuf, limit: usize, rebuild: bool) -> Self {
        if rebuild {
            let _ = fs::remove_file(&path);
        }
        Self {
            path,
            limit,
            known: HashMap::new(),
            len: None,
            seen: None,
        }
    }

    /// Tells the writer the identities of the newest profiles, oldest first.
    pub fn recall(
        &mut self,
        disk: &dyn Disk,
        catalog: &Catalog,
        writer: &Writer,
        progress: &Progress,
    ) {
        let bytes = fs::read(&self.path).unwrap_or_default();
        let len = bytes.len() as u64;
        let (found, known, good) = Found::parse(bytes);
        (self.known, self.len) = (known, good.then_some(len));
        let mut add = Vec::new();
        for file in newest(catalog, self.limit).into_iter().rev() {
            if let Some(ids) = found.ids(&file.name) {
                progress.identity_files_spared.fetch_add(1, Relaxed);
                writer.remember(ids);
                continue;
            }
            // A damaged section is found again, and reported, by the first query that needs it.
            let Ok(ids) = ids_of(disk, &file) else {
                continue;
            };
            progress.identity_files_read.fetch_add(1, Relaxed);
            writer.remember(ids.iter().copied());
            if file.block.is_some() {
                self.note(&mut add, &file.name, &ids);
            }
        }
        self.write(catalog, &found, &add);
    }

    /// Makes the file name the blocks that there are.
    pub fn sync(&mut self, disk: &dyn Disk, catalog: &Catalog) {
        let now = catalog.changes();
        if self.seen == Some(now) && self.len.is_some() {
            return;
        }
        self.seen = Some(now);
        let mut add = Vec::new();
        for file in newest(catalog, self.limit).into_iter().rev() {
            if file.block.is_none() || self.known.contains_key(&file.name) {
                continue;
            }
            if let Ok(ids) = ids_of(disk, &file) {
                self.note(&mut add, &file.name, &ids);
            }
        }
        if self.len.is_none() || self.dead_bytes(catalog) > SLACK_BYTES {
            let (found, ..) = Found::parse(fs::read(&self.path).unwrap_or_default());
            self.write(catalog, &found, &add);
        } else if !add.is_empty() {
            self.append(&add);
        }
    }

    fn note(&mut self, out: &mut Vec<u8>, name: &str, ids: &[u128]) {
        let before = out.len();
        encode(out, name, ids);
        self.known
            .insert(name.to_owned(), (out.len() - before) as u64);
    }

    /// Bytes of the file that name what is gone, beyond as many as name what is there.
    fn dead_bytes(&self, catalog: &Catalog) -> u64 {
        let live = newest(catalog, self.limit);
        let bytes = live.iter().filter_map(|file| self.known.get(&file.name));
        let wanted: u64 = bytes.sum();
        self.len.unwrap_or(0).saturating_sub(2 * wanted)
    }

    /// Appends, or where the file is damaged or mostly of files that are gone, writes it anew.
    fn write(&mut self, catalog: &Catalog, found: &Found, add: &[u8]) {
        if self.len.is_some() && self.dead_bytes(catalog) <= SLACK_BYTES {
            if !add.is_empty() {
                self.append(add);
            }
            return;
        }
        let files = newest(catalog, self.limit);
        let live: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let mut out = MAGIC.to_vec();
        for (name, ids) in &found.at {
            let head = HEAD_LEN + name.len();
            if live.contains(name.as_str()) {
                out.extend_from_slice(&found.bytes[ids.start - head..ids.end]);
            }
        }
        out.extend_from_slice(add);
        self.known.retain(|name, _| live.contains(name.as_str()));
        let temporary = self.path.with_extension("new");
        let written = fs::write(&temporary, &out).and_then(|()| fs::rename(&temporary, &self.path));
        self.done(written, out.len() as u64);
    }

    fn append(&mut self, bytes: &[u8]) {
        let open = |path| OpenOptions::new().append(true).open(path);
        let written = open(&self.path).and_then(|mut file: File| file.write_all(bytes));
        self.done(written, self.len.unwrap_or(0) + bytes.len() as u64);
    }

    fn done(&mut self, written: io::Result<()>, len: u64) {
        self.len = written.is_ok().then_some(len);
        if let Err(error) = written {
            // Nothing is lost: the blocks say the same.
            self.known.clear();
            let _ = fs::remove_file(&self.path);
            log::warn(
                "the file of identities cannot be written, the next start takes longer",
                &[("file", &self.path.display()), ("error", &error)],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[(&str, &[u128])]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        records
            .iter()
            .for_each(|(name, ids)| encode(&mut out, name, ids));
        out
    }

    fn all(found: &Found, name: &str) -> Option<Vec<u128>> {
        found.ids(name).map(Iterator::collect)
    }

    #[test]
    fn a_record_comes_back_whole_or_not_at_all() {
        let bytes = file(&[("a", &[1, u128::MAX]), ("empty", &[]), ("b", &[7])]);
        let (found, known, good) = Found::parse(bytes.clone());
        assert!(good);
        assert_eq!(all(&found, "a"), Some(vec![1, u128::MAX]));
        assert_eq!(all(&found, "empty"), Some(vec![]));
        assert_eq!(all(&found, "b"), Some(vec![7]));
        assert_eq!(all(&found, "c"), None);
        assert_eq!(known.values().sum::<u64>() + 8, bytes.len() as u64);
        for cut in 0..bytes.len() {
            let (found, ..) = Found::parse(bytes[..cut].to_vec());
            let a = all(&found, "a");
            assert!(a.is_none() || a == Some(vec![1, u128::MAX]), "cut at {cut}");
            assert_eq!(all(&found, "b"), None, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            let (found, _, good) = Found::parse(flipped);
            assert!(!good, "byte {at}");
            for (name, ids) in [("a", vec![1, u128::MAX]), ("b", vec![7])] {
                let read = all(&found, name);
                assert!(read.is_none() || read == Some(ids), "byte {at}");
            }
        }
    }
}
