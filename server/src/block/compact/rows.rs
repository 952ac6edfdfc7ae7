//! Rows of the sources into rows of the new part.

use super::super::{BlockRow, PartFiles, Rows, Stacks};
use super::{Data, Entry, Fetch, Ids, Source, UNSET};
use crate::store::load::LoadError;

/// Reads the rows of sources forwards and puts those of one output profile together.
pub(super) struct Merge<'a> {
    sources: &'a [Source<'a>],
    ids: &'a [Ids],
    cursors: Vec<Cursor>,
    /// (stack << 32 | label set, index into `values`).
    keys: Vec<(u64, u32)>,
    values: Vec<Vec<i64>>,
    pub(super) out: Stacks,
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
    pub(super) fn new(sources: &'a [Source<'a>], ids: &'a [Ids]) -> Self {
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
    pub(super) fn rows(&mut self, group: &[Entry], width: usize) -> Result<(), LoadError> {
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
