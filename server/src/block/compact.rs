//! Parts of segments and blocks into one part of a block: rows stream, only symbols and the list of
//! profiles stand in memory.

use std::collections::{BTreeMap, HashSet};

use super::read::{BlockRow, Rows, Sidecar, read_sidecar, span};
use super::{Block, BlockWriter, Chunk, Layout, PartFiles, Stacks};
use crate::segment::{Labels, Part, PartBuilder, PartHeader, Section, SeriesEntry, TypeSet};
use crate::store::load::LoadError;

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

    /// Writes the part. `step_ns` > 0 adds up the profiles of each series in steps of that length.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub fn write(mut self, writer: &mut BlockWriter, step_ns: i64) -> Result<(), LoadError> {
        let (_, part) = self.symbols.finish();
        let (symbols, sources) = (part.symbols, &self.sources);
        let mut header = union(self.service, sources, self.dropped, &mut self.ids);
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
        merge.write(&mut writer, step_ns)?;
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
        merge.write(&mut writer, step_ns)?;
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

/// Sorted type sets and series of all sources. Sorted in every block, so that blocks merge by
/// reading each forwards.
fn union(service: &str, sources: &[Source], dropped: &[String], ids: &mut [Ids]) -> PartHeader {
    let kept = |entry: &SeriesEntry| -> Labels {
        let labels = entry.labels.iter();
        let labels = labels.filter(|(name, _)| !dropped.contains(name));
        labels.cloned().collect()
    };
    let mut type_sets: Vec<TypeSet> = Vec::new();
    let mut series: Vec<Labels> = Vec::new();
    for source in sources {
        type_sets.extend(source.header.type_sets.iter().cloned());
        series.extend(source.header.series.iter().map(kept));
    }
    type_sets.sort();
    type_sets.dedup();
    series.sort();
    series.dedup();
    let place = |at: Result<usize, usize>| at.unwrap_or_else(|at| at) as u32;
    for (source, ids) in sources.iter().zip(ids) {
        let sets = source.header.type_sets.iter();
        let sets = sets.map(|set| place(type_sets.binary_search(set)));
        let labels = source.header.series.iter();
        let labels = labels.map(|entry| place(series.binary_search(&kept(entry))));
        ids.type_sets = sets.collect();
        ids.series = labels.collect();
    }
    let blank = |labels: Labels| SeriesEntry {
        labels,
        type_sets: Vec::new(),
        min_time_ns: i64::MAX,
        max_time_ns: i64::MIN,
        profiles: 0,
    };
    PartHeader {
        service: service.to_owned(),
        series: series.into_iter().map(blank).collect(),
        type_sets,
        samples: 0,
        sections: [Section::default(); 3],
    }
}

/// Numbers the stacks that have rows, the most frequent first; the answer is the node of each.
fn by_frequency(sources: &[Source], ids: &mut [Ids], nodes: usize) -> Result<Vec<u32>, LoadError> {
    let mut counts = vec![0_u64; nodes];
    for (source, ids) in sources.iter().zip(ids.iter()) {
        match &source.data {
            Data::Segment(part) => {
                for &stack in &part.stacks {
                    counts[ids.stacks[stack as usize] as usize] += 1;
                }
            }
            Data::Block { files, fetch, .. } => {
                for group in &files.groups {
                    let chunks = fetch(&Rows::wanted(group, false, &[]))?;
                    let mut rows = Rows::open(group, false, 0, chunks)?;
                    rows.each(group.rows, |rows| {
                        for &stack in &rows.stacks {
                            if let Some(&node) = ids.stacks.get(stack as u32 as usize) {
                                counts[node as usize] += 1;
                            }
                        }
                        Ok(())
                    })?;
                }
            }
        }
    }
    let mut order: Vec<u32> = (0..nodes as u32)
        .filter(|&n| counts[n as usize] > 0)
        .collect();
    order.sort_unstable_by_key(|&node| (std::cmp::Reverse(counts[node as usize]), node));
    let mut ranks = vec![UNSET; nodes];
    for (rank, &node) in order.iter().enumerate() {
        ranks[node as usize] = rank as u32;
    }
    for ids in ids {
        ids.stacks
            .iter_mut()
            .for_each(|id| *id = ranks[*id as usize]);
    }
    Ok(order)
}

/// All profiles in the order of the new part; a push that came twice counts once.
fn entries(sources: &[Source], ids: &[Ids], step_ns: i64) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (at, (source, ids)) in sources.iter().zip(ids).enumerate() {
        let mut add = |index: usize, row: BlockRow| {
            entries.push(Entry {
                source: at,
                index,
                row: BlockRow {
                    series: ids.series[row.series as usize],
                    type_set: ids.type_sets[row.type_set as usize],
                    ..row
                },
            });
        };
        match &source.data {
            Data::Segment(part) => {
                for (index, row) in part.profiles.rows.iter().enumerate() {
                    let row = BlockRow {
                        series: row.series,
                        type_set: row.type_set,
                        time_ns: row.time_ns,
                        duration_ns: row.duration_ns,
                        period: row.period,
                        id: row.id,
                        profiles: 1,
                        samples: row.samples.into(),
                        first_row: row.first_sample.into(),
                        rows: row.samples,
                        first_total: row.first_total,
                    };
                    add(index, row);
                }
            }
            Data::Block { sidecar, .. } => {
                let rows = sidecar.profiles.rows.iter().enumerate();
                rows.for_each(|(index, row)| add(index, *row));
            }
        }
    }
    let mut seen = HashSet::new();
    entries.retain(|entry| entry.row.id == 0 || seen.insert(entry.row.id));
    entries.sort_unstable_by_key(|entry| {
        let row = &entry.row;
        let step = if step_ns > 0 {
            row.time_ns.div_euclid(step_ns)
        } else {
            0
        };
        // A source is read forwards: its profiles keep their order. In a step that adds up several
        // series of a source, that is the order of the source and not of time.
        let time_ns = if step_ns > 0 { 0 } else { row.time_ns };
        (
            row.type_set,
            row.series,
            step,
            time_ns,
            entry.source,
            entry.index,
        )
    });
    entries
}

fn same_output(a: &Entry, b: &Entry, step_ns: i64) -> bool {
    let step = |entry: &Entry| entry.row.time_ns.div_euclid(step_ns);
    step_ns > 0
        && (a.row.type_set, a.row.series) == (b.row.type_set, b.row.series)
        && step(a) == step(b)
}

/// Fills what the header says of series from what is really there.
fn describe(header: &mut PartHeader, sources: &[Source], ids: &[Ids], entries: &[Entry]) {
    for entry in entries {
        let row = &entry.row;
        let series = &mut header.series[row.series as usize];
        if let Err(at) = series.type_sets.binary_search(&row.type_set) {
            series.type_sets.insert(at, row.type_set);
        }
        series.profiles += u64::from(row.profiles);
        series.min_time_ns = series.min_time_ns.min(row.time_ns);
        series.max_time_ns = series.max_time_ns.max(row.time_ns);
        header.samples += row.samples;
    }
    // The latest time of a roll-up's series stands only here.
    for (source, ids) in sources.iter().zip(ids) {
        for (entry, &id) in source.header.series.iter().zip(&ids.series) {
            let series = &mut header.series[id as usize];
            series.max_time_ns = series.max_time_ns.max(entry.max_time_ns);
        }
    }
}

/// One profile row for a group, and its totals.
fn added(
    sources: &[Source],
    header: &PartHeader,
    group: &[Entry],
    totals: &mut Vec<i64>,
) -> BlockRow {
    let mut out = group[0].row;
    let width = header.type_sets[out.type_set as usize].values.len();
    totals.clear();
    totals.resize(width, 0);
    for (at, entry) in group.iter().enumerate() {
        let of = match &sources[entry.source].data {
            Data::Segment(part) => &part.profiles.totals,
            Data::Block { sidecar, .. } => &sidecar.profiles.totals,
        };
        let first = entry.row.first_total as usize;
        for (total, &value) in totals.iter_mut().zip(&of[first..first + width]) {
            *total = total.saturating_add(value);
        }
        if at > 0 {
            let row = &entry.row;
            out.duration_ns = out.duration_ns.saturating_add(row.duration_ns);
            out.period = out.period.max(row.period);
            out.time_ns = out.time_ns.min(row.time_ns);
            out.profiles = out.profiles.saturating_add(row.profiles);
            out.samples = out.samples.saturating_add(row.samples);
            out.id = 0;
        }
    }
    out
}

/// Reads the rows of sources forwards and puts those of one output profile together.
struct Merge<'a> {
    sources: &'a [Source<'a>],
    ids: &'a [Ids],
    cursors: Vec<Cursor>,
    /// (stack << 32 | label set, index into `values`).
    keys: Vec<(u64, u32)>,
    values: Vec<Vec<i64>>,
    out: Stacks,
}

/// Rows that one profile of a roll-up gathers before equal ones are added up: bounds the memory of
/// a service with many pods.
const FOLD_ROWS: usize = 1 << 20;

/// How far a block source is read.
#[derive(Default)]
struct Cursor {
    /// Open row group, the part's row that it begins at, and how many rows of it were taken.
    rows: Option<Rows>,
    group: usize,
    base: u64,
    taken: u64,
}

impl<'a> Merge<'a> {
    fn new(sources: &'a [Source<'a>], ids: &'a [Ids]) -> Self {
        Self {
            sources,
            ids,
            cursors: sources.iter().map(|_| Cursor::default()).collect(),
            keys: Vec::new(),
            values: Vec::new(),
            out: Stacks::default(),
        }
    }

    /// Fills `out` with the rows of a group of profiles of one type set.
    fn rows(&mut self, group: &[Entry], width: usize) -> Result<(), LoadError> {
        self.keys.clear();
        self.values.resize(width, Vec::new());
        self.values.iter_mut().for_each(Vec::clear);
        let mut most = FOLD_ROWS;
        for entry in group {
            self.take(entry, width)?;
            if self.keys.len() > most {
                self.fold(width);
                std::mem::swap(&mut self.out.values, &mut self.values);
                let out = self.out.stacks.iter().zip(&self.out.labels).enumerate();
                let key = |(at, (&stack, &set)): (usize, (&i32, &i32))| {
                    let key = u64::from(stack as u32) << 32 | u64::from(set as u32);
                    (key, at as u32)
                };
                self.keys.clear();
                self.keys.extend(out.map(key));
                most = FOLD_ROWS.max(self.keys.len() * 2);
            }
        }
        self.fold(width);
        Ok(())
    }

    /// Sorts what was taken and adds up rows of equal stack and labels, into `out`.
    fn fold(&mut self, width: usize) {
        self.keys.sort_unstable();
        let out = &mut self.out;
        out.stacks.clear();
        out.labels.clear();
        out.values.resize(width, Vec::new());
        out.values.iter_mut().for_each(Vec::clear);
        let mut last = None;
        for &(key, at) in &self.keys {
            let fresh = last != Some(key);
            last = Some(key);
            if fresh {
                out.stacks.push((key >> 32) as i32);
                out.labels.push(key as i32);
            }
            for (out, values) in out.values.iter_mut().zip(&self.values) {
                let value = values[at as usize];
                match out.last_mut() {
                    Some(sum) if !fresh => *sum = sum.saturating_add(value),
                    _ => out.push(value),
                }
            }
        }
    }

    fn take(&mut self, entry: &Entry, width: usize) -> Result<(), LoadError> {
        let ids = &self.ids[entry.source];
        let key = |stack: u32, set: u32| {
            let stack = *ids.stacks.get(stack as usize).unwrap_or(&UNSET);
            u64::from(stack) << 32 | u64::from(*ids.label_sets.get(set as usize).unwrap_or(&0))
        };
        match &self.sources[entry.source].data {
            Data::Segment(part) => {
                let row = &part.profiles.rows[entry.index];
                let sets = part.row_label_sets(row);
                for (at, &stack) in part.row_stacks(row).iter().enumerate() {
                    let index = (self.values.first().map_or(0, Vec::len) + at) as u32;
                    self.keys
                        .push((key(stack, *sets.get(at).unwrap_or(&0)), index));
                }
                for (index, values) in self.values.iter_mut().enumerate() {
                    values.extend_from_slice(part.row_values(row, index));
                }
            }
            Data::Block { files, fetch, .. } => {
                let cursor = &mut self.cursors[entry.source];
                cursor.seek(&entry.row, width, files, fetch)?;
                let (keys, values) = (&mut self.keys, &mut self.values);
                cursor.take(&entry.row, |rows| {
                    let base = values.first().map_or(0, Vec::len);
                    for (at, &stack) in rows.stacks.iter().enumerate() {
                        let set = rows.label_sets.get(at).map_or(0, |&set| set as u32);
                        keys.push((key(stack as u32, set), (base + at) as u32));
                    }
                    for (out, column) in values.iter_mut().zip(&rows.columns) {
                        out.extend_from_slice(column);
                    }
                })?;
            }
        }
        if self
            .keys
            .last()
            .is_some_and(|&(key, _)| key >> 32 == u64::from(UNSET))
        {
            return Err(LoadError::Damage(no_such_stack()));
        }
        Ok(())
    }
}

fn no_such_stack() -> crate::segment::Damage {
    crate::segment::Damage::Content {
        section: "samples",
        offset: 0,
        what: "no such stack",
    }
}

impl Cursor {
    /// Opens the row group that holds a profile, and passes over what is left out before it.
    fn seek(
        &mut self,
        row: &BlockRow,
        width: usize,
        files: &PartFiles,
        fetch: &Fetch,
    ) -> Result<(), LoadError> {
        if row.first_row < self.base + self.taken {
            // The next step of a roll-up begins again with the first series.
            *self = Self::default();
        }
        while let Some(group) = files.groups.get(self.group) {
            if row.first_row < self.base + group.rows {
                break;
            }
            self.base += group.rows;
            self.group += 1;
            (self.rows, self.taken) = (None, 0);
        }
        let Some(group) = files.groups.get(self.group) else {
            return Ok(());
        };
        if self.rows.is_none() {
            let values: Vec<usize> = (0..width).collect();
            let chunks = fetch(&Rows::wanted(group, files.labelled, &values))?;
            self.rows = Some(Rows::open(group, files.labelled, width, chunks)?);
            self.taken = 0;
        }
        let ahead = row.first_row.saturating_sub(self.base + self.taken);
        if let Some(rows) = &mut self.rows {
            rows.skip(ahead as usize)?;
        }
        self.taken += ahead;
        Ok(())
    }

    fn take(&mut self, row: &BlockRow, visit: impl FnOnce(&Rows)) -> Result<(), LoadError> {
        if let Some(rows) = &mut self.rows
            && row.rows > 0
        {
            rows.read(row.rows as usize)?;
            self.taken += u64::from(row.rows);
            visit(rows);
        }
        Ok(())
    }
}
