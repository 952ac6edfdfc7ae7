//! The manifest: the one file of a block that says that the block counts.

use super::VERSION;
use crate::segment::wire::{Damage, Reader, put_bytes, put_int, put_uint};
use crate::segment::{FIXED_LEN, Header, PartHeader, put, read};

const MAGIC: &[u8; 4] = b"PLBK";

/// Version of the manifest of a roll-up whose series were stripped of labels; all else is version 1.
const VERSION_DROPPED: u32 = 2;

/// Bytes of one column of one row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// From the start of its file.
    pub offset: u64,
    /// Length.
    pub len: u64,
    /// CRC-32 of the bytes.
    pub crc: u32,
}

/// A row group of the samples file: rows of one service and one type set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowGroup {
    /// Index into [`PartHeader::type_sets`].
    pub type_set: u32,
    /// Rows.
    pub rows: u64,
    /// Columns in the order of the schema.
    pub chunks: Vec<Chunk>,
}

/// Where a service stands in the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartFiles {
    /// Whether a sample of the part has labels.
    pub labelled: bool,
    /// Its row groups of the samples file, in order.
    pub groups: Vec<RowGroup>,
    /// Columns of its row group of the symbols file.
    pub symbols: Vec<Chunk>,
}

/// What a manifest says beside the header that it shares with segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Length of the roll-up's steps in nanoseconds; 0 = the samples as pushed.
    pub step_ns: i64,
    /// Name of the block that a roll-up was made from, or that this one was before retention took some
    /// of its series; empty where there is none.
    pub of: String,
    /// Labels that a roll-up's series were stripped of; empty where there are none.
    pub dropped: Vec<String>,
    /// Value columns of the samples file.
    pub width: u32,
    /// Bytes of the samples file.
    pub samples_len: u64,
    /// Bytes of the symbols file.
    pub symbols_len: u64,
    /// One for each part of the header.
    pub parts: Vec<PartFiles>,
}

/// Encodes a manifest.
pub fn encode_manifest(header: &Header, files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    put_uint(&mut out, header.level.into());
    put_int(&mut out, header.created_ns);
    put_uint(&mut out, header.replaces.len() as u64);
    for name in &header.replaces {
        put_bytes(&mut out, name.as_bytes());
    }
    put_int(&mut out, files.step_ns);
    put_bytes(&mut out, files.of.as_bytes());
    if !files.dropped.is_empty() {
        put_uint(&mut out, files.dropped.len() as u64);
        for name in &files.dropped {
            put_bytes(&mut out, name.as_bytes());
        }
    }
    put_uint(&mut out, files.width.into());
    put_uint(&mut out, files.samples_len);
    put_uint(&mut out, files.symbols_len);
    put_uint(&mut out, header.parts.len() as u64);
    for (part, at) in header.parts.iter().zip(&files.parts) {
        put::part_about(&mut out, part);
        put_uint(&mut out, at.labelled.into());
        put_uint(&mut out, at.groups.len() as u64);
        for group in &at.groups {
            put_uint(&mut out, group.type_set.into());
            put_uint(&mut out, group.rows);
            chunks(&mut out, &group.chunks);
        }
        chunks(&mut out, &at.symbols);
    }
    // A server of version 1 would take a roll-up without these labels for one with all.
    let version = if files.dropped.is_empty() {
        VERSION
    } else {
        VERSION_DROPPED
    };
    put::fixed(MAGIC, version, &out, (FIXED_LEN + out.len()) as u64)
}

fn chunks(out: &mut Vec<u8>, chunks: &[Chunk]) {
    put_uint(out, chunks.len() as u64);
    for chunk in chunks {
        put_uint(out, chunk.offset);
        put_uint(out, chunk.len);
        out.extend_from_slice(&chunk.crc.to_le_bytes());
    }
}

/// Reads a manifest from all its bytes.
///
/// # Errors
/// When the file is no manifest, was cut or grown, or a bit of it changed.
pub fn decode_manifest(bytes: &[u8]) -> Result<(Header, Files), Damage> {
    let dropped = bytes.get(4..8) == Some(&VERSION_DROPPED.to_le_bytes()[..]);
    let version = if dropped { VERSION_DROPPED } else { VERSION };
    let body = read::fixed(bytes, MAGIC, version, bytes.len() as u64)?;
    let mut reader = Reader::new(body, "manifest");
    let mut header = Header {
        level: reader.u32()?,
        created_ns: reader.int()?,
        replaces: read::list(&mut reader, Reader::string)?,
        parts: Vec::new(),
        file_len: bytes.len() as u64,
    };
    let mut files = Files {
        step_ns: reader.int()?,
        of: reader.string()?,
        dropped: if dropped {
            read::list(&mut reader, Reader::string)?
        } else {
            Vec::new()
        },
        width: reader.u32()?,
        samples_len: reader.uint()?,
        symbols_len: reader.uint()?,
        parts: Vec::new(),
    };
    for _ in 0..reader.count()? {
        let part = read::part_about(&mut reader)?;
        files.parts.push(part_files(&mut reader, &part, &files)?);
        header.parts.push(part);
    }
    reader.end()?;
    header.file_len = header
        .file_len
        .saturating_add(files.samples_len)
        .saturating_add(files.symbols_len);
    Ok((header, files))
}

fn part_files(reader: &mut Reader, part: &PartHeader, files: &Files) -> Result<PartFiles, Damage> {
    let mut out = PartFiles {
        labelled: reader.uint()? != 0,
        ..PartFiles::default()
    };
    for _ in 0..reader.count()? {
        let group = RowGroup {
            type_set: reader.index(part.type_sets.len(), "no such type set")?,
            rows: reader.uint()?,
            chunks: read_chunks(reader, files.samples_len)?,
        };
        if group.chunks.len() != super::schema::FIRST_VALUE + files.width as usize {
            return reader.fail("a row group has another number of columns than the file");
        }
        out.groups.push(group);
    }
    out.symbols = read_chunks(reader, files.symbols_len)?;
    if out.symbols.len() != super::schema::LISTS.len() + 1 {
        return reader.fail("the symbols have another number of columns than version 1");
    }
    Ok(out)
}

fn read_chunks(reader: &mut Reader, file_len: u64) -> Result<Vec<Chunk>, Damage> {
    let mut chunks = Vec::new();
    for _ in 0..reader.count()? {
        let (offset, len) = (reader.uint()?, reader.uint()?);
        if offset.saturating_add(len) > file_len {
            return reader.fail("a column reaches past the end of its file");
        }
        let mut crc = [0; 4];
        crc.copy_from_slice(reader.take(4)?);
        let crc = u32::from_le_bytes(crc);
        chunks.push(Chunk { offset, len, crc });
    }
    Ok(chunks)
}
