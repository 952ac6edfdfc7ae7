//! Parts of segments and blocks into one part of a block: rows stream, only symbols and the list of
//! profiles stand in memory.

mod gather;
mod memory;
mod rows;

use self::gather::{added, by_frequency, describe, entries, same_output, union};
use self::rows::Merge;
use super::{BlockRow, BlockWriter, Chunk, PartFiles, Sidecar};
use crate::segment::{Labels, Part, PartBuilder, PartHeader};
use crate::store::load::LoadError;

pub use memory::{from_blocks, from_parts, roll_up, roll_up_of};

/// Reads chunks of a samples file.
pub type Fetch<'a> = Box<dyn Fn(&[Chunk]) -> Result<Vec<(Chunk, Vec<u8>)>, LoadError> + 'a>;

/// A part that goes into a block.
pub struct Source<'a> {
    /// Its header.
    pub header: &'a PartHeader,
    /// Its data.
    pub data: Data<'a>,
}

/// Data of a source.
pub enum Data<'a> {
    /// Of a segment.
    Segment(Box<Part>),
    /// Of a block.
    Block {
        /// Where its bytes stand.
        files: &'a PartFiles,
        /// Profiles and symbols.
        sidecar: Box<Sidecar>,
        /// Reads them.
        fetch: Fetch<'a>,
    },
}

/// A profile of a source on its way.
#[derive(Clone, Copy)]
struct Entry {
    source: usize,
    index: usize,
    row: BlockRow,
}

/// Where a source's ids stand in the new part.
#[derive(Default)]
struct Ids {
    type_sets: Vec<u32>,
    series: Vec<u32>,
    /// Stack id there (node, where it is a segment) → node here, later → stack id here.
    stacks: Vec<u32>,
    label_sets: Vec<u32>,
}

const UNSET: u32 = u32::MAX;

fn failed(error: parquet::errors::ParquetError) -> LoadError {
    LoadError::Io(std::io::Error::other(error))
}

/// The parts of one service on their way into one.
pub struct PartMerge<'a> {
    service: &'a str,
    /// Labels that the new part does not have.
    dropped: &'a [String],
    symbols: PartBuilder,
    sources: Vec<Source<'a>>,
    ids: Vec<Ids>,
}

impl<'a> PartMerge<'a> {
    /// Nothing yet.
    pub fn new(service: &'a str) -> Self {
        Self {
            service,
            dropped: &[],
            symbols: PartBuilder::new(service),
            sources: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// A part that is complete in memory, names and all.
    pub fn of_part(header: &'a PartHeader, mut part: Part) -> Self {
        let symbols = std::mem::take(&mut part.symbols);
        let all = |count: usize| (0..count as u32).collect::<Vec<u32>>();
        let ids = Ids {
            stacks: all(symbols.parents.len()),
            label_sets: all(symbols.label_set_ends.len()),
            ..Ids::default()
        };
        let data = Data::Segment(Box::new(part));
        Self {
            service: &header.service,
            dropped: &[],
            symbols: PartBuilder::of_symbols(&header.service, symbols),
            sources: vec![Source { header, data }],
            ids: vec![ids],
        }
    }

    /// Leaves labels out: series that differ in these alone become one, their profiles only where
    /// a step adds them up.
    pub fn without(mut self, labels: &'a [String]) -> Self {
        self.dropped = labels;
        self
    }

    /// Takes a part in. Its symbols are merged at once and dropped: those of many small segments
    /// would take more memory than all their rows.
    pub fn add(&mut self, mut source: Source<'a>) {
        let own = match &mut source.data {
            Data::Segment(part) => std::mem::take(&mut part.symbols),
            Data::Block { sidecar, .. } => std::mem::take(&mut sidecar.symbols),
        };
        let (nodes, label_sets) = self.symbols.add_symbols(&own);
        let stacks = match &source.data {
            Data::Segment(_) => nodes,
            Data::Block { sidecar, .. } => {
                let old = sidecar.stack_nodes.iter();
                old.map(|&node| nodes[node as usize]).collect()
            }
        };
        self.ids.push(Ids {
            stacks,
            label_sets,
            ..Ids::default()
        });
        self.sources.push(source);
    }

    /// Writes the part, with the series that `keeps` holds for. `step_ns` > 0 adds up the profiles of
    /// each series in steps of that length.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub fn write(
        mut self,
        writer: &mut BlockWriter,
        step_ns: i64,
        keeps: &dyn Fn(&Labels) -> bool,
    ) -> Result<(), LoadError> {
        let (_, part) = self.symbols.finish();
        let (symbols, sources) = (part.symbols, &self.sources);
        let mut header = union(self.service, sources, self.dropped, &mut self.ids, keeps);
        let stack_nodes = by_frequency(sources, &mut self.ids, symbols.parents.len())?;
        let ids = &self.ids;
        let entries = entries(sources, ids, step_ns);
        describe(&mut header, sources, ids, &entries);
        writer.begin_part(&header);
        let mut merge = Merge::new(sources, ids);
        let mut totals = Vec::new();
        for group in entries.chunk_by(|a, b| same_output(a, b, step_ns)) {
            let row = added(sources, &header, group, &mut totals);
            let width = header.type_sets[row.type_set as usize].values.len();
            merge.rows(group, width)?;
            let added = writer.add_profile(&row, &totals, &merge.out);
            added.map_err(failed)?;
        }
        let ended = writer.end_part(header, &symbols, &stack_nodes);
        ended.map_err(failed)
    }
}
