//! Profiles that wait on disk, so that they outlive the agent: a few files, opened once and written in turns.
//!
//! A confined agent opens nothing for writing, so the files are opened when it starts. The files together are the
//! budget: when all are full, the oldest is emptied, and what waited in it is counted as dropped.
//!
//! A record is a header of 48 bytes, what the profile is (JSON), and its body. All numbers are little-endian:
//! magic `PLq1`, state (1 waiting, 2 done), 3 zeros, sequence number (8), id (8), bytes of JSON (4) and body (4), the
//! first half of the SHA-256 of all that follows the state and of both parts (16).

use super::parcel::Parcel;
use crate::disk::{checksum, open_alone};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILES: u64 = 8;
const MAGIC: &[u8; 4] = b"PLq1";
const HEADER: usize = 48;
const WAITING: u8 = 1;
const DONE: u8 = 2;
/// Where the state stands.
const STATE: u64 = 4;

/// The queue; see the module.
#[derive(Debug)]
pub(super) struct Spool {
    files: Vec<Segment>,
    file_bytes: u64,
    /// The file that is written to.
    at: usize,
    next: u64,
    waiting: BTreeMap<u64, Place>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    offset: u64,
    bytes: u64,
}

/// What was found and lost when the files were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub waiting: u64,
    /// Records that cannot be read; they were passed over.
    pub damaged: u64,
}

impl Spool {
    /// Opens or makes the files below `folder`, and finds what waits in them.
    ///
    /// # Errors
    /// When the folder cannot be used, or another agent uses it.
    pub fn open(folder: &Path, budget_bytes: u64) -> io::Result<(Spool, Found)> {
        std::fs::create_dir_all(folder)?;
        let mut spool = Spool {
            files: Vec::new(),
            file_bytes: (budget_bytes / FILES).max(HEADER as u64),
            at: 0,
            next: 1,
            waiting: BTreeMap::new(),
        };
        let mut found = Found::default();
        for number in 0..FILES {
            let file = open_alone(&folder.join(format!("queue-{number}")))?;
            spool.files.push(Segment { file, end: 0 });
            found.damaged += spool.scan(number as usize)?;
        }
        found.waiting = spool.waiting.len() as u64;
        Ok((spool, found))
    }

    /// Finds records of one file; the number of those that cannot be read.
    fn scan(&mut self, number: usize) -> io::Result<u64> {
        let segment = &mut self.files[number];
        let length = segment.file.metadata()?.len().min(self.file_bytes);
        let mut bytes = vec![0; length as usize];
        segment.file.read_exact_at(&mut bytes, 0)?;
        let (mut offset, mut damaged, mut inside) = (0, 0, false);
        while let Some(rest) = bytes.get(offset..).filter(|rest| rest.len() >= HEADER) {
            match Header::read(rest) {
                Some(header) if header.is_whole(rest) => {
                    let place = Place {
                        file: number,
                        offset: offset as u64,
                        bytes: header.bytes() as u64,
                    };
                    if header.sequence >= self.next {
                        (self.next, self.at) = (header.sequence + 1, number);
                    }
                    if header.state == WAITING {
                        self.waiting.insert(header.sequence, place);
                    }
                    offset += header.bytes();
                    (segment.end, inside) = (offset as u64, false);
                }
                // Goes on where the next record begins.
                _ => {
                    damaged += u64::from(!inside);
                    inside = true;
                    offset += 1 + find(&rest[1..], MAGIC).unwrap_or(rest.len() - 1);
                }
            }
        }
        Ok(damaged)
    }

    /// Appends a profile; the number of older ones, or this one, that were dropped for want of room.
    ///
    /// # Errors
    /// When it cannot be written; nothing has changed then.
    pub fn push(&mut self, parcel: &Parcel, id: u64) -> io::Result<u64> {
        let record = record(self.next, id, parcel);
        let bytes = record.len() as u64;
        if bytes > self.file_bytes {
            return Ok(1);
        }
        let mut dropped = 0;
        if self.files[self.at].end + bytes > self.file_bytes {
            dropped = self.empty((self.at + 1) % self.files.len())?;
        }
        let segment = &mut self.files[self.at];
        segment.file.write_all_at(&record, segment.end)?;
        let place = Place {
            file: self.at,
            offset: segment.end,
            bytes,
        };
        segment.end += bytes;
        self.waiting.insert(self.next, place);
        self.next += 1;
        Ok(dropped)
    }

    fn empty(&mut self, number: usize) -> io::Result<u64> {
        self.files[number].file.set_len(0)?;
        self.files[number].end = 0;
        self.at = number;
        let before = self.waiting.len();
        self.waiting.retain(|_, place| place.file != number);
        Ok((before - self.waiting.len()) as u64)
    }

    /// The oldest that waits: its number, its id, and itself. One that cannot be read any more is passed over and counted.
    pub fn oldest(&mut self, damaged: &mut u64) -> Option<(u64, u64, Parcel)> {
        while let Some((&sequence, &place)) = self.waiting.first_key_value() {
            let mut bytes = vec![0; place.bytes as usize];
            let read = self.files[place.file]
                .file
                .read_exact_at(&mut bytes, place.offset);
            let whole =
                Header::read(&bytes).filter(|header| read.is_ok() && header.is_whole(&bytes));
            let parcel = whole.and_then(|header| {
                let body = HEADER + header.head_bytes;
                let parcel = Parcel::of(bytes.get(HEADER..body)?, bytes.get(body..)?.to_vec())?;
                Some((sequence, header.id, parcel))
            });
            if parcel.is_some() {
                return parcel;
            }
            self.waiting.remove(&sequence);
            *damaged += 1;
        }
        None
    }

    /// It needs not be sent again.
    pub fn done(&mut self, sequence: u64) {
        if let Some(place) = self.waiting.remove(&sequence) {
            // When this fails it is sent once more, by the same id.
            let state = self.files[place.file]
                .file
                .write_all_at(&[DONE], place.offset + STATE);
            drop(state);
        }
    }

    /// Profiles that wait, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        let bytes = self.waiting.values().map(|place| place.bytes).sum();
        (self.waiting.len() as u64, bytes)
    }
}

struct Header {
    state: u8,
    sequence: u64,
    id: u64,
    head_bytes: usize,
    body_bytes: usize,
    sum: [u8; 16],
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        (bytes.get(..4)? == MAGIC).then_some(())?;
        Some(Header {
            state: *bytes.get(4)?,
            sequence: word(8)?,
            id: word(16)?,
            head_bytes: half(24)? as usize,
            body_bytes: half(28)? as usize,
            sum: bytes.get(32..HEADER)?.try_into().ok()?,
        })
    }

    fn bytes(&self) -> usize {
        HEADER + self.head_bytes + self.body_bytes
    }

    fn is_whole(&self, bytes: &[u8]) -> bool {
        let parts = bytes.get(8..32).zip(bytes.get(HEADER..self.bytes()));
        parts.is_some_and(|(header, parts)| checksum(&[header, parts]) == self.sum)
    }
}

fn record(sequence: u64, id: u64, parcel: &Parcel) -> Vec<u8> {
    let head = parcel.head();
    let mut out = MAGIC.to_vec();
    out.extend([WAITING, 0, 0, 0]);
    out.extend(sequence.to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend((head.len() as u32).to_le_bytes());
    out.extend((parcel.body.len() as u32).to_le_bytes());
    out.extend([0; 16]);
    out.extend(head);
    out.extend_from_slice(&parcel.body);
    let sum = checksum(&[&out[8..32], &out[HEADER..]]);
    out[32..HEADER].copy_from_slice(&sum);
    out
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|some| some == wanted)
}
