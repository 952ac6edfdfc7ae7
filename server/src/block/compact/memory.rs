//! Blocks in memory: of segments' parts, of other blocks.

use std::collections::BTreeMap;

use super::super::{Block, BlockWriter, Chunk, Layout, read_sidecar, span};
use super::{Data, PartMerge, Source, failed};
use crate::segment::{Part, PartHeader};
use crate::store::load::LoadError;

/// A block of whole services in memory, without what it replaces. `step_ns` as in [`PartMerge::write`].
///
/// # Errors
/// When the Parquet library fails.
pub fn from_parts(
    parts: Vec<(PartHeader, Part)>,
    layout: &Layout,
    step_ns: i64,
) -> Result<Block, LoadError> {
    roll_up(parts, layout, step_ns, &[])
}

/// The same without some labels: series that differ in these alone are one.
///
/// # Errors
/// When the Parquet library fails.
pub fn roll_up(
    parts: Vec<(PartHeader, Part)>,
    layout: &Layout,
    step_ns: i64,
    dropped: &[String],
) -> Result<Block, LoadError> {
    let sets = parts.iter().flat_map(|(header, _)| &header.type_sets);
    let width = sets.map(|set| set.values.len()).max().unwrap_or(1);
    let mut writer = BlockWriter::new(layout, width.max(1)).map_err(failed)?;
    for (header, part) in parts {
        let source = Source {
            header: &header,
            data: Data::Segment(Box::new(part)),
        };
        let mut merge = PartMerge::new(&header.service).without(dropped);
        merge.add(source);
        merge.write(&mut writer, step_ns, &|_| true)?;
    }
    writer.finish().map_err(failed)
}

/// One block of several in memory, without what it replaces. `step_ns` as in [`PartMerge::write`].
///
/// # Errors
/// When a source is damaged.
pub fn from_blocks(blocks: &[Block], layout: &Layout, step_ns: i64) -> Result<Block, LoadError> {
    merged(blocks, layout, step_ns, &[])
}

/// A block's roll-up in memory without some labels.
///
/// # Errors
/// When it is damaged.
pub fn roll_up_of(
    block: &Block,
    layout: &Layout,
    step_ns: i64,
    dropped: &[String],
) -> Result<Block, LoadError> {
    merged(std::slice::from_ref(block), layout, step_ns, dropped)
}

fn merged(
    blocks: &[Block],
    layout: &Layout,
    step_ns: i64,
    dropped: &[String],
) -> Result<Block, LoadError> {
    let width = blocks.iter().map(|block| block.files.width).max();
    let width = width.unwrap_or(1) as usize;
    let mut writer = BlockWriter::new(layout, width).map_err(failed)?;
    let mut services: BTreeMap<&str, Vec<(&Block, usize)>> = BTreeMap::new();
    for block in blocks {
        for (at, part) in block.parts.iter().enumerate() {
            services.entry(&part.service).or_default().push((block, at));
        }
    }
    for (service, parts) in services {
        let mut merge = PartMerge::new(service).without(dropped);
        for (block, at) in parts {
            merge.add(in_memory(block, at)?);
        }
        merge.write(&mut writer, step_ns, &|_| true)?;
    }
    writer.finish().map_err(failed)
}

fn in_memory(block: &Block, at: usize) -> Result<Source<'_>, LoadError> {
    let (header, files) = (&block.parts[at], &block.files.parts[at]);
    let bytes = |file: &[u8], range: std::ops::Range<u64>| {
        let range = range.start as usize..range.end as usize;
        file.get(range).unwrap_or_default().to_vec()
    };
    let sidecar = read_sidecar(header, files, bytes(&block.symbols, span(&files.symbols)))?;
    let fetch = move |chunks: &[Chunk]| {
        let read = |chunk: &Chunk| (*chunk, bytes(&block.samples, span(&[*chunk])));
        Ok(chunks.iter().map(read).collect())
    };
    let data = Data::Block {
        files,
        sidecar: Box::new(sidecar),
        fetch: Box::new(fetch),
    };
    Ok(Source { header, data })
}
