//! Segments and blocks on disk → one block on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::Segment;
use super::disk::Disk;
use super::load::{self, LoadError};
use crate::block::compact::{Data, PartMerge, Source};
use crate::block::{self, Block, BlockWriter, Files, Layout};
use crate::segment::{Header, Labels, Part, PartHeader};

/// A source that could not be read, and why.
pub struct Failed {
    /// Which, and which part of it; `None` = the new block could not be written.
    pub source: Option<(Arc<Segment>, usize)>,
    /// Why.
    pub error: LoadError,
}

impl Failed {
    fn writing(error: LoadError) -> Self {
        Self {
            source: None,
            error,
        }
    }
}

impl Plan<'_> {
    /// Name of the block's manifest.
    pub fn name(&self) -> String {
        block::file_name(self.created_ns, self.level, self.random)
    }
}

/// What is to be written.
pub struct Plan<'a> {
    /// What goes in.
    pub sources: &'a [Arc<Segment>],
    /// See [`Header::level`].
    pub level: u32,
    /// See [`Header::created_ns`].
    pub created_ns: i64,
    /// See [`Header::replaces`].
    pub replaces: Vec<String>,
    /// See [`Files::step_ns`].
    pub step_ns: i64,
    /// See [`Files::of`].
    pub of: String,
    /// See [`Files::dropped`].
    pub dropped: Vec<String>,
    /// Which series go in; `None` = all.
    pub keep: Option<&'a dyn Fn(&Labels) -> bool>,
    /// Makes the name unique.
    pub random: u64,
}

/// Writes a block. The put of its manifest is the commit: what it names as replaced counts no more
/// from then on. `may_commit` is asked right before it.
///
/// # Errors
/// When a source cannot be read (nothing was written then) or a file not be written. Files of the
/// block may be there then, even its manifest: the caller must see to it that they do not count.
pub fn write(
    disk: &dyn Disk,
    plan: Plan,
    may_commit: &dyn Fn() -> bool,
) -> Result<Segment, Failed> {
    let block = merge(disk, &plan)?;
    put(disk, plan, block, may_commit).map_err(Failed::writing)
}

/// Writes the block of an epoch: of the same profiles as the segments of the plan, still in memory.
///
/// # Errors
/// When a file cannot be written.
pub fn write_epoch(
    disk: &dyn Disk,
    plan: Plan,
    parts: Vec<(PartHeader, Part)>,
    may_commit: &dyn Fn() -> bool,
) -> Result<Segment, Failed> {
    let sets = parts.iter().flat_map(|(header, _)| &header.type_sets);
    let width = sets.map(|set| set.values.len()).max().unwrap_or(1).max(1);
    let parquet = |error| Failed::writing(LoadError::Io(std::io::Error::other(error)));
    let mut writer = BlockWriter::new(&Layout::default(), width).map_err(parquet)?;
    for (header, part) in parts {
        let merge = PartMerge::of_part(&header, part);
        merge
            .write(&mut writer, 0, &|_| true)
            .map_err(Failed::writing)?;
    }
    let block = writer.finish().map_err(parquet)?;
    put(disk, plan, block, may_commit).map_err(Failed::writing)
}

fn merge(disk: &dyn Disk, plan: &Plan) -> Result<Block, Failed> {
    let keeps = |labels: &Labels| plan.keep.is_none_or(|keep| keep(labels));
    let mut services: BTreeMap<&str, Vec<(&Arc<Segment>, usize)>> = BTreeMap::new();
    let mut width = 1;
    for source in plan.sources {
        for (index, part) in source.header.parts.iter().enumerate() {
            if !part.series.iter().any(|entry| keeps(&entry.labels)) {
                continue;
            }
            services
                .entry(&part.service)
                .or_default()
                .push((source, index));
            let widths = part.type_sets.iter().map(|set| set.values.len());
            width = width.max(widths.max().unwrap_or(0));
        }
    }
    let parquet = |error| Failed::writing(LoadError::Io(std::io::Error::other(error)));
    let mut writer = BlockWriter::new(&Layout::default(), width).map_err(parquet)?;
    for (service, parts) in services {
        let mut merge = PartMerge::new(service).without(&plan.dropped);
        let mut blocks = Vec::new();
        for (source, index) in parts {
            let part = read(disk, source, index).map_err(|error| Failed {
                source: Some((source.clone(), index)),
                error,
            })?;
            if source.block.is_some() {
                blocks.push((source, index));
            }
            merge.add(part);
        }
        merge
            .write(&mut writer, plan.step_ns, &keeps)
            .map_err(|error| Failed {
                // Rows are read while the part is written; which source it was only a read can tell.
                source: blocks
                    .into_iter()
                    .find(|(block, index)| verify_part(disk, block, *index).is_err())
                    .map(|(block, index)| (block.clone(), index)),
                error,
            })?;
    }
    writer.finish().map_err(parquet)
}

fn read<'a>(
    disk: &'a dyn Disk,
    segment: &'a Segment,
    index: usize,
) -> Result<Source<'a>, LoadError> {
    let header = &segment.header.parts[index];
    let data = match &segment.block {
        None => Data::Segment(Box::new(load::read_part(disk, segment, index)?)),
        Some(files) => Data::Block {
            files: &files.parts[index],
            sidecar: Box::new(load::read_sidecar(disk, segment, files, index)?),
            fetch: Box::new(move |chunks| load::chunks(disk, segment, chunks)),
        },
    };
    Ok(Source { header, data })
}

/// Reads a segment or block once and checks every byte of it.
///
/// # Errors
/// When a bit of it changed.
pub fn verify(disk: &dyn Disk, segment: &Segment) -> Result<(), LoadError> {
    (0..segment.header.parts.len()).try_for_each(|index| verify_part(disk, segment, index))
}

/// The same for what belongs to one service.
///
/// # Errors
/// When a bit of it changed.
pub fn verify_part(disk: &dyn Disk, segment: &Segment, index: usize) -> Result<(), LoadError> {
    let Some(files) = &segment.block else {
        return load::read_part(disk, segment, index).map(drop);
    };
    load::read_sidecar(disk, segment, files, index)?;
    let groups = &files.parts[index].groups;
    for chunk in groups.iter().flat_map(|group| &group.chunks) {
        for (chunk, bytes) in load::chunks(disk, segment, &[*chunk])? {
            if crc32fast::hash(&bytes) != chunk.crc {
                return Err(crate::segment::Damage::Checksum("samples").into());
            }
        }
    }
    Ok(())
}

fn put(
    disk: &dyn Disk,
    plan: Plan,
    block: Block,
    may_commit: &dyn Fn() -> bool,
) -> Result<Segment, LoadError> {
    let name = plan.name();
    let files = Files {
        step_ns: plan.step_ns,
        of: plan.of,
        dropped: plan.dropped,
        ..block.files
    };
    let mut header = Header {
        level: plan.level,
        created_ns: plan.created_ns,
        replaces: plan.replaces,
        parts: block.parts,
        file_len: 0,
    };
    let manifest = block::encode_manifest(&header, &files);
    header.file_len = manifest.len() as u64 + files.samples_len + files.symbols_len;
    let [samples, symbols] = [block::SAMPLES, block::SYMBOLS].map(|end| block::sibling(&name, end));
    let segment = Segment {
        name,
        header,
        block: Some(files),
    };
    let written = disk
        .put_new(&symbols, &block.symbols)
        .and_then(|()| disk.put_new(&samples, &block.samples))
        .map_err(LoadError::from)
        // Nothing is taken away before what stands in its place was read back.
        .and_then(|()| verify(disk, &segment))
        .and_then(|()| match may_commit() {
            true => Ok(disk.put_new(&segment.name, &manifest)?),
            false => Err(std::io::Error::other("another server has taken over merging").into()),
        });
    written.map(|()| segment)
}
