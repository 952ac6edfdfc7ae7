//! A part that a selection touches, read: its selected profiles, their samples, and their names.

use std::sync::Arc;

use super::engine::{Cancel, Coverage, Engine, Selected};
use super::scan::Stop;
use super::touched::Touched;
use crate::block::{Chunk, PartFiles, Sidecar};
use crate::segment::{Part, Symbols};
use crate::store::load;

/// Where the samples are.
pub(super) enum Data<'a> {
    /// In memory.
    Segment(Arc<Part>),
    /// On disk, to be fetched by column.
    Block(Arc<Sidecar>, &'a PartFiles),
}

/// Chunks with their bytes.
type Fetched = Vec<(Chunk, Vec<u8>)>;

/// A part of which profiles are selected.
pub(super) struct Opened<'a> {
    /// At least one.
    pub rows: Vec<Selected>,
    pub data: Data<'a>,
    /// Its symbols with names in the place of addresses, where there are any.
    pub named: Option<Arc<Symbols>>,
}

impl Opened<'_> {
    /// The names to answer with.
    pub fn symbols(&self) -> &Symbols {
        let stored = match &self.data {
            Data::Segment(part) => &part.symbols,
            Data::Block(sidecar, _) => &sidecar.symbols,
        };
        self.named.as_deref().unwrap_or(stored)
    }
}

impl Engine {
    /// Reads a part; `None` = none of its profiles is selected.
    pub(super) fn open<'a>(
        &self,
        touched: &'a Touched,
        cancel: &Cancel,
        coverage: &mut Coverage,
    ) -> Result<Option<Opened<'a>>, Stop> {
        let (disk, segment, index) = (&*self.disk, &*touched.view.segment, touched.part);
        let ((rows, left_out), data) = match &segment.block {
            None => {
                cancel.read(touched.stored_bytes())?;
                let part = load::part(disk, &self.cache, segment, index)?;
                (touched.of_segment(&part.profiles), Data::Segment(part))
            }
            Some(files) => {
                let part = &files.parts[index];
                cancel.read(part.symbols.iter().map(|chunk| chunk.len).sum())?;
                let sidecar = load::sidecar(disk, &self.cache, segment, files, index)?;
                let chosen = touched.of_block(&sidecar.profiles);
                (chosen, Data::Block(sidecar, part))
            }
        };
        coverage.superseded += left_out;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut opened = Opened {
            rows,
            data,
            named: None,
        };
        opened.named = self.debuginfo.name(&segment.name, index, opened.symbols());
        Ok(Some(opened))
    }

    /// Columns of the samples of a block, within the budget.
    pub(super) fn fetch<'a>(
        &'a self,
        touched: &'a Touched,
        cancel: &'a Cancel,
    ) -> impl Fn(&[Chunk]) -> Result<Fetched, Stop> + 'a {
        move |chunks| {
            cancel.read(chunks.iter().map(|chunk| chunk.len).sum())?;
            Ok(load::chunks(&*self.disk, &touched.view.segment, chunks)?)
        }
    }
}
