//! Tables on disk, so that the next agent need not make them: `docs/formats/unwind-table.md`, "Saved".
//!
//! A confined agent makes, renames and removes no file: a few are opened at the start and written in turns, as the queue
//! of profiles is. Together they are the budget. When all are full, the one written longest ago is emptied of what was
//! not used since the start. Nothing is believed: what does not fit its checksum is counted, and made anew.

use super::FileKey;
use crate::disk::{checksum, open_alone};
use pilotlight_unwind::{Segment, Table};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILES: u64 = 8;
const HEAD: &[u8; 16] = b"PLtables\x01\0\0\0\0\0\0\0";
const MAGIC: &[u8; 4] = b"PLt1";
const HEADER: usize = 72;
const SEGMENT: usize = 32;
const KEPT: u32 = 1;
const DAMAGED: u32 = 2;
/// Where a record's state stands.
const STATE: u64 = 4;

type Key = [u8; 16];

/// What was found unusable or given up since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Places where records cannot be read, or do not fit their checksums.
    pub damaged: u64,
    /// Files of another version, emptied.
    pub outdated: u64,
    /// Tables that made room for others.
    pub evicted: u64,
}

/// What a table was made of, and itself.
pub(super) struct Kept {
    pub table: Table,
    pub segments: Vec<Segment>,
}

/// The cache; see the module.
#[derive(Debug)]
pub(super) struct Cache {
    files: Vec<Log>,
    file_bytes: u64,
    /// The file that is written to.
    at: usize,
    next: u64,
    uses: u64,
    places: HashMap<Key, Place>,
    counts: Counts,
}

#[derive(Debug)]
struct Log {
    file: File,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    offset: u64,
    header: Header,
    /// When it was asked for or made, in calls; 0: not since the start.
    used: u64,
}

impl Cache {
    /// Opens or makes the files below `folder`, and finds the tables in them.
    ///
    /// # Errors
    /// When the folder cannot be used, or another agent uses it.
    pub fn open(folder: &Path, budget_bytes: u64) -> io::Result<Cache> {
        std::fs::create_dir_all(folder)?;
        let mut cache = Cache {
            files: Vec::new(),
            file_bytes: (budget_bytes / FILES).max((HEAD.len() + HEADER) as u64),
            at: 0,
            next: 1,
            uses: 0,
            places: HashMap::new(),
            counts: Counts::default(),
        };
        for number in 0..FILES as usize {
            let file = open_alone(&folder.join(format!("tables-{number}")))?;
            cache.files.push(Log { file, end: 0 });
            cache.scan(number)?;
        }
        Ok(cache)
    }

    /// Finds the records of one file by their headers; what is behind the last that is whole is cut off.
    fn scan(&mut self, number: usize) -> io::Result<()> {
        let log = &mut self.files[number];
        let length = log.file.metadata()?.len();
        let mut head = [0; HEAD.len()];
        let read = log.file.read_exact_at(&mut head, 0);
        let known = read.is_ok() && head == *HEAD && length <= self.file_bytes;
        if !known {
            self.counts.outdated += u64::from(length > 0);
            log.file.set_len(0)?;
            log.file.write_all_at(HEAD, 0)?;
        }
        log.end = HEAD.len() as u64;
        while known && log.end < length {
            let mut bytes = [0; HEADER];
            let read = log.file.read_exact_at(&mut bytes, log.end);
            let header = Header::read(&bytes).filter(|header| log.end + header.bytes() <= length);
            let Some(header) = header.filter(|_| read.is_ok()) else {
                self.counts.damaged += 1;
                return log.file.set_len(log.end);
            };
            if header.sequence >= self.next {
                (self.next, self.at) = (header.sequence + 1, number);
            }
            let place = Place {
                file: number,
                offset: log.end,
                header,
                used: 0,
            };
            log.end += header.bytes();
            let newer = self.places.get(&header.key);
            if header.state == KEPT && newer.is_none_or(|n| n.header.sequence < header.sequence) {
                self.places.insert(header.key, place);
            }
        }
        Ok(())
    }

    /// The table of a file, when it is here and whole.
    pub fn get(&mut self, key: &FileKey, build_id: &str) -> Option<Kept> {
        let key = key_of(key, build_id);
        let (used, place) = (self.tick(), self.places.get_mut(&key)?);
        place.used = used;
        let place = *place;
        let kept = self.read(&place);
        if kept.is_none() {
            self.places.remove(&key);
            self.counts.damaged += 1;
            // When this fails it is found, and counted, once more.
            let state = place.offset + STATE;
            let marked = self.files[place.file]
                .file
                .write_all_at(&DAMAGED.to_le_bytes(), state);
            drop(marked);
        }
        kept
    }

    fn read(&self, place: &Place) -> Option<Kept> {
        let mut body = vec![0; place.header.body_bytes as usize];
        let file = &self.files[place.file].file;
        file.read_exact_at(&mut body, place.offset + HEADER as u64)
            .ok()?;
        let whole = checksum(&[&body]) == place.header.sum;
        whole.then(|| kept_of(&body)).flatten()
    }

    /// Keeps a table; for want of room those that were not used lately go. One larger than a file is not kept.
    ///
    /// # Errors
    /// When it cannot be written: then it is not here.
    pub fn put(
        &mut self,
        key: &FileKey,
        build_id: &str,
        table: &Table,
        segments: &[Segment],
    ) -> io::Result<()> {
        let body = body_of(table, segments);
        let header = Header {
            state: KEPT,
            sequence: self.next,
            body_bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
            key: key_of(key, build_id),
            sum: checksum(&[&body]),
        };
        if HEAD.len() as u64 + header.bytes() > self.file_bytes {
            return Ok(());
        }
        if self.files[self.at].end + header.bytes() > self.file_bytes {
            self.at = (self.at + 1) % self.files.len();
            self.compact(self.at)?;
        }
        if self.files[self.at].end + header.bytes() > self.file_bytes {
            self.keep_only(self.at, &[])?;
        }
        let place = Place {
            file: self.at,
            offset: self.files[self.at].end,
            header,
            used: self.tick(),
        };
        let record = [&header.bytes_of()[..], &body].concat();
        let log = &mut self.files[self.at];
        log.file.write_all_at(&record, place.offset)?;
        log.end += header.bytes();
        self.next += 1;
        self.places.insert(header.key, place);
        Ok(())
    }

    /// Keeps what of a file was used since the start, the latest first, up to half of the room.
    fn compact(&mut self, number: usize) -> io::Result<()> {
        let here = self.places.values().filter(|place| place.file == number);
        let mut used: Vec<Place> = here.filter(|place| place.used > 0).copied().collect();
        used.sort_by_key(|place| std::cmp::Reverse(place.used));
        let mut room = self.file_bytes / 2;
        used.retain(|place| {
            let fits = place.header.bytes() <= room;
            room -= place.header.bytes().min(room);
            fits
        });
        self.keep_only(number, &used)
    }

    /// Moves `kept` to the start of their file; all else of it goes.
    fn keep_only(&mut self, number: usize, kept: &[Place]) -> io::Result<()> {
        let mut kept = kept.to_vec();
        kept.sort_by_key(|place| place.offset);
        let before = self.places.len();
        self.places.retain(|_, place| place.file != number);
        let log = &mut self.files[number];
        log.end = HEAD.len() as u64;
        for mut place in kept {
            let mut record = vec![0; place.header.bytes() as usize];
            log.file.read_exact_at(&mut record, place.offset)?;
            log.file.write_all_at(&record, log.end)?;
            place.offset = log.end;
            log.end += place.header.bytes();
            self.places.insert(place.header.key, place);
        }
        self.counts.evicted += (before - self.places.len()) as u64;
        log.file.set_len(log.end)
    }

    /// Tables that are here, and the bytes of all files.
    pub fn size(&self) -> (usize, u64) {
        let bytes = self.files.iter().map(|log| log.end).sum();
        (self.places.len(), bytes)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

#[derive(Clone, Copy, Debug)]
struct Header {
    state: u32,
    sequence: u64,
    body_bytes: u32,
    key: Key,
    sum: [u8; 16],
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Option<Header> {
        let part = |at: usize| bytes.get(at..at + 16)?.try_into().ok();
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let whole = checksum(&[&bytes[8..56]]) == part(56)?;
        (bytes.starts_with(MAGIC) && whole).then_some(())?;
        Some(Header {
            state: half(4)?,
            sequence: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            body_bytes: half(16)?,
            key: part(24)?,
            sum: part(40)?,
        })
    }

    fn bytes_of(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&self.state.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..20].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[24..40].copy_from_slice(&self.key);
        out[40..56].copy_from_slice(&self.sum);
        let sum = checksum(&[&out[8..56]]);
        out[56..].copy_from_slice(&sum);
        out
    }

    /// Of the whole record.
    fn bytes(&self) -> u64 {
        HEADER as u64 + u64::from(self.body_bytes)
    }
}

/// A build id alone can be forged by any process that maps a file; who may write to another's inode needs no forgery.
fn key_of(key: &FileKey, build_id: &str) -> Key {
    let FileKey {
        device,
        inode,
        size,
        changed_ns,
    } = *key;
    let numbers = [device, inode, size, changed_ns as u64].map(u64::to_le_bytes);
    checksum(&[numbers.as_flattened(), build_id.as_bytes()])
}

fn body_of(table: &Table, segments: &[Segment]) -> Vec<u8> {
    let mut out = (segments.len() as u64).to_le_bytes().to_vec();
    for segment in segments {
        let Segment {
            start,
            limit,
            file_offset,
            executable,
        } = *segment;
        for word in [start, limit, file_offset, u64::from(executable)] {
            out.extend(word.to_le_bytes());
        }
    }
    table.save(&mut out);
    out
}

fn kept_of(body: &[u8]) -> Option<Kept> {
    let (count, rest) = body.split_at_checked(8)?;
    let count = u64::from_le_bytes(count.try_into().ok()?);
    let bytes = usize::try_from(count).ok()?.checked_mul(SEGMENT)?;
    let (segments, table) = rest.split_at_checked(bytes)?;
    let segment = |bytes: &[u8]| {
        let word = |n: usize| bytes.get(n * 8..n * 8 + 8)?.try_into().ok();
        let word = |n| word(n).map(u64::from_le_bytes);
        Some(Segment {
            start: word(0)?,
            limit: word(1)?,
            file_offset: word(2)?,
            executable: word(3)? != 0,
        })
    };
    Some(Kept {
        table: Table::load(table)?,
        segments: segments
            .chunks_exact(SEGMENT)
            .map(segment)
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("pilotlight-tables-{name}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn open(&self, budget_bytes: u64) -> Cache {
            Cache::open(&self.0, budget_bytes).unwrap()
        }

        fn file(&self) -> PathBuf {
            self.0.join("tables-0")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn key(inode: u64) -> FileKey {
        FileKey {
            device: 1,
            inode,
            size: 100,
            changed_ns: 7,
        }
    }

    fn table() -> Table {
        Table::from_elf(&std::fs::read("/proc/self/exe").unwrap()).unwrap()
    }

    const SEGMENTS: [Segment; 1] = [Segment {
        start: 1,
        limit: 2,
        file_offset: 3,
        executable: true,
    }];

    fn record_bytes(table: &Table) -> u64 {
        (HEADER + body_of(table, &SEGMENTS).len()) as u64
    }

    #[test]
    fn tables_outlive_the_agent_and_are_no_other_files() {
        let (folder, table) = (Folder::new("outlive"), table());
        let mut cache = folder.open(1 << 30);
        assert!(cache.get(&key(5), "id").is_none());
        cache.put(&key(5), "id", &table, &SEGMENTS).unwrap();
        drop(cache);
        let mut cache = folder.open(1 << 30);
        let kept = cache.get(&key(5), "id").unwrap();
        assert_eq!(kept.table.rows(), table.rows());
        assert_eq!(kept.table.rules(), table.rules());
        assert_eq!(kept.segments, SEGMENTS);
        assert!(cache.get(&key(6), "id").is_none() && cache.get(&key(5), "other").is_none());
        assert_eq!(cache.counts(), Counts::default());
        let taken = Cache::open(&folder.0, 1 << 30).unwrap_err().to_string();
        assert!(taken.contains("another agent"), "{taken}");
    }

    #[test]
    fn what_is_damaged_or_of_another_version_is_counted_gone_and_made_anew() {
        let (folder, table) = (Folder::new("damaged"), table());
        let bytes = record_bytes(&table);
        let mut cache = folder.open(1 << 30);
        for inode in 0..3 {
            cache.put(&key(inode), "id", &table, &SEGMENTS).unwrap();
        }
        drop(cache);
        let whole = std::fs::read(folder.file()).unwrap();
        let first = HEAD.len() as u64;
        assert_eq!(whole.len() as u64, first + 3 * bytes);
        // (place of the flipped byte or of the end, tables that are left, what is counted)
        let (flip, cut) = (true, false);
        let counts = |damaged, outdated| Counts {
            damaged,
            outdated,
            evicted: 0,
        };
        let cases = [
            (
                flip,
                first + bytes + HEADER as u64 + 100,
                [true, false, true],
                counts(1, 0),
            ),
            (flip, first + bytes + 30, [true, false, false], counts(1, 0)),
            (flip, 8, [false; 3], counts(0, 1)),
            (
                cut,
                first + 2 * bytes + 9,
                [true, true, false],
                counts(1, 0),
            ),
            (cut, first + bytes - 1, [false; 3], counts(1, 0)),
            (cut, 3, [false; 3], counts(0, 1)),
            (cut, 0, [false; 3], counts(0, 0)),
        ];
        for (is_flip, at, left, expected) in cases {
            let mut bad = whole.clone();
            match is_flip {
                true => bad[at as usize] ^= 0x40,
                false => bad.truncate(at as usize),
            }
            std::fs::write(folder.file(), &bad).unwrap();
            let mut cache = folder.open(1 << 30);
            let found = [0, 1, 2].map(|inode| cache.get(&key(inode), "id").is_some());
            assert_eq!((found, cache.counts()), (left, expected), "{at}");
            // Made anew, and nothing is left to be counted by the next.
            for inode in (0..3).filter(|n| !left[*n as usize]) {
                cache.put(&key(inode), "id", &table, &SEGMENTS).unwrap();
            }
            drop(cache);
            let mut cache = folder.open(1 << 30);
            let found = [0, 1, 2].map(|inode| cache.get(&key(inode), "id").is_some());
            assert_eq!(
                (found, cache.counts()),
                ([true; 3], Counts::default()),
                "{at}"
            );
        }
    }

    #[test]
    fn the_budget_holds_and_what_was_used_stays() {
        let (folder, table) = (Folder::new("budget"), table());
        let bytes = record_bytes(&table);
        // Four tables a file.
        let budget = FILES * (HEAD.len() as u64 + 4 * bytes + bytes / 2);
        let mut cache = folder.open(budget);
        for inode in 0..100 {
            cache.put(&key(inode), "id", &table, &SEGMENTS).unwrap();
            assert!(cache.size().1 <= budget);
            assert!(cache.get(&key(0), "id").is_some(), "{inode}");
            assert!(cache.get(&key(inode), "id").is_some(), "{inode}");
        }
        let (kept, counts) = (cache.size().0 as u64, cache.counts());
        assert_eq!((kept + counts.evicted, counts.damaged), (100, 0));
        assert!(kept >= FILES * 2, "{kept}");
        drop(cache);
        let on_disk = std::fs::read_dir(&folder.0).unwrap().flatten();
        let on_disk: u64 = on_disk.map(|file| file.metadata().unwrap().len()).sum();
        assert!(on_disk <= budget);
        let cache = folder.open(budget);
        assert_eq!(
            (cache.size().0 as u64, cache.counts()),
            (kept, Counts::default())
        );
        drop(cache);
        // A smaller budget empties what is larger; a table beyond it is not kept.
        let mut cache = folder.open(FILES * bytes);
        cache.put(&key(1), "id", &table, &SEGMENTS).unwrap();
        assert!(cache.get(&key(1), "id").is_none());
        assert!(cache.size().1 <= FILES * bytes);
    }
}
