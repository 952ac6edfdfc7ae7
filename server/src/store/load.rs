//! From a listed segment to its decoded parts.

use std::io;
use std::sync::Arc;

use super::cache::{Cache, Held};
use super::catalog::Segment;
use super::disk::Disk;
use crate::block::{self, Chunk, Files, Sidecar};
use crate::segment::{
    self, Damage, FIXED_LEN, Header, Part, Profiles, decode_header, decode_part, decode_profiles,
};

/// Why a segment's content could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system refused.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not what was written.
    #[error("{0}")]
    Damage(#[from] Damage),
}

impl LoadError {
    /// Whether a file of this name is there already, of somebody else.
    pub fn taken(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Most headers are shorter than this: one read gets them.
const FIRST_READ: u64 = 16 << 10;

/// Reads the header of a file of `file_len` bytes.
///
/// # Errors
/// See [`LoadError`].
pub fn header(disk: &dyn Disk, name: &str, file_len: u64) -> Result<Header, LoadError> {
    if file_len < FIXED_LEN as u64 {
        let want = FIXED_LEN as u64;
        return Err(Damage::Length {
            what: "file",
            have: file_len,
            want,
        }
        .into());
    }
    let mut start = disk.read(name, 0..FIRST_READ.min(file_len))?;
    let len = segment::header_len(&start)? as u64;
    if len > start.len() as u64 && len <= file_len {
        start = disk.read(name, 0..len)?;
    }
    Ok(decode_header(&start, file_len)?)
}

/// Reads one part, all sections in one read.
///
/// # Errors
/// See [`LoadError`].
pub fn read_part(disk: &dyn Disk, segment: &Segment, index: usize) -> Result<Part, LoadError> {
    let header = &segment.header.parts[index];
    let start = header.sections[0].offset;
    let last = &header.sections[2];
    let bytes = disk.read(&segment.name, start..last.offset + last.stored)?;
    let section = |at: usize| {
        let section = &header.sections[at];
        let from = section.offset.saturating_sub(start) as usize;
        bytes.get(from..).map_or(&[][..], |rest| {
            &rest[..rest.len().min(section.stored as usize)]
        })
    };
    Ok(decode_part(header, [section(0), section(1), section(2)])?)
}

/// One part of a segment, from the cache or from disk.
///
/// # Errors
/// See [`LoadError`].
pub fn part(
    disk: &dyn Disk,
    cache: &Cache,
    segment: &Segment,
    index: usize,
) -> Result<Arc<Part>, LoadError> {
    if let Some(Held::Part(part)) = cache.get(&segment.name, index) {
        return Ok(part);
    }
    let part = Arc::new(read_part(disk, segment, index)?);
    cache.put(&segment.name, index, &Held::Part(part.clone()));
    Ok(part)
}

/// The profiles section alone: times, ids and totals.
///
/// # Errors
/// See [`LoadError`].
pub fn profiles(disk: &dyn Disk, segment: &Segment, index: usize) -> Result<Profiles, LoadError> {
    let header = &segment.header.parts[index];
    let section = &header.sections[0];
    let stored = disk.read(
        &segment.name,
        section.offset..section.offset + section.stored,
    )?;
    Ok(decode_profiles(header, &stored)?)
}

/// Reads the manifest of a block.
///
/// # Errors
/// See [`LoadError`].
pub fn manifest(disk: &dyn Disk, name: &str, len: u64) -> Result<(Header, Files), LoadError> {
    let bytes = disk.read(name, 0..len)?;
    Ok(block::decode_manifest(&bytes)?)
}

/// All of a block's part but its samples.
///
/// # Errors
/// See [`LoadError`].
pub fn read_sidecar(
    disk: &dyn Disk,
    segment: &Segment,
    files: &Files,
    index: usize,
) -> Result<Sidecar, LoadError> {
    let part = &files.parts[index];
    let name = block::sibling(&segment.name, block::SYMBOLS);
    let bytes = disk.read(&name, block::span(&part.symbols))?;
    let header = &segment.header.parts[index];
    Ok(block::read_sidecar(header, part, bytes)?)
}

/// The same, from the cache or from disk.
///
/// # Errors
/// See [`LoadError`].
pub fn sidecar(
    disk: &dyn Disk,
    cache: &Cache,
    segment: &Segment,
    files: &Files,
    index: usize,
) -> Result<Arc<Sidecar>, LoadError> {
    if let Some(Held::Sidecar(sidecar)) = cache.get(&segment.name, index) {
        return Ok(sidecar);
    }
    let sidecar = Arc::new(read_sidecar(disk, segment, files, index)?);
    cache.put(&segment.name, index, &Held::Sidecar(sidecar.clone()));
    Ok(sidecar)
}

/// The profiles of a block's part alone.
///
/// # Errors
/// See [`LoadError`].
pub fn block_profiles(
    disk: &dyn Disk,
    segment: &Segment,
    files: &Files,
    index: usize,
) -> Result<block::Profiles, LoadError> {
    let part = &files.parts[index];
    let chunks = block::profile_chunks(part);
    let name = block::sibling(&segment.name, block::SYMBOLS);
    let bytes = disk.read(&name, block::span(chunks))?;
    let header = &segment.header.parts[index];
    Ok(block::read_profiles(header, part, bytes)?)
}

/// The identities of the profiles of a block's part alone.
///
/// # Errors
/// See [`LoadError`].
pub fn block_ids(
    disk: &dyn Disk,
    segment: &Segment,
    files: &Files,
    index: usize,
) -> Result<Vec<u128>, LoadError> {
    let part = &files.parts[index];
    let name = block::sibling(&segment.name, block::SYMBOLS);
    let bytes = disk.read(&name, block::span(block::id_chunk(part)))?;
    Ok(block::read_ids(part, bytes)?)
}

/// Columns of the samples file.
///
/// # Errors
/// When the system refuses; the checksums are checked by whoever decodes them.
pub fn chunks(
    disk: &dyn Disk,
    segment: &Segment,
    chunks: &[Chunk],
) -> Result<Vec<(Chunk, Vec<u8>)>, LoadError> {
    let name = block::sibling(&segment.name, block::SAMPLES);
    let read = |chunk: &Chunk| {
        let bytes = disk.read(&name, chunk.offset..chunk.offset + chunk.len)?;
        Ok((*chunk, bytes))
    };
    chunks.iter().map(read).collect()
}
