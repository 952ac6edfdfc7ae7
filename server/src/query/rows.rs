//! Samples one by one, for answers that sums over a whole part cannot give: values over time, the
//! heatmap, exemplars, and series of a span.

use super::engine::{Cancel, Coverage, Engine, QueryError, Selected, Selection};
use super::open::Data;
use super::read::NO_STACK;
use super::scan::{Stop, on_threads, shares};
use super::touched::Touched;
use crate::block::{Chunk, PartFiles, Rows, Sidecar};
use crate::segment::{Damage, Part, PartHeader, Symbols};

/// Samples of one profile, or of a step of a roll-up.
pub struct RowSamples<'a> {
    /// The profile.
    pub row: &'a Selected,
    /// Node of each sample.
    pub nodes: &'a [u32],
    /// Label set of each sample; empty = none has labels.
    pub sets: &'a [u32],
    /// Value of each sample.
    pub values: &'a [i64],
}

/// What samples are collected in; each thread has its own.
pub trait PerRow: Send {
    /// A part begins.
    fn part(&mut self, header: &PartHeader, symbols: &Symbols);

    /// Samples of a profile of that part; a large profile comes in several pieces.
    fn row(&mut self, header: &PartHeader, symbols: &Symbols, samples: &RowSamples);

    /// Adds what stands in another one.
    fn join(&mut self, other: Self);

    /// Bytes that it holds, roughly.
    fn heap_bytes(&self) -> usize;
}

impl Engine {
    /// Shows all selected samples, profile by profile, to what `empty` makes. Roll-ups do not
    /// answer: their steps are coarser than profiles.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or a spent budget.
    pub fn each_row<A: PerRow>(
        &self,
        selection: &Selection,
        cancel: &Cancel,
        empty: impl Fn() -> A + Sync,
    ) -> Result<(A, Coverage), QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        let touched = self.counted_once(selection, false, &mut coverage, cancel)?;
        let shares = shares(&touched, self.threads());
        let scan = |share: &[Touched]| self.rows_of_share(selection, share, cancel, empty());
        let mut all = empty();
        for read in on_threads(&shares, scan) {
            let (sum, covered) = read?;
            all.join(sum);
            cancel.hold(all.heap_bytes())?;
            coverage.join(covered);
        }
        Ok((all, coverage))
    }

    fn rows_of_share<A: PerRow>(
        &self,
        selection: &Selection,
        share: &[Touched],
        cancel: &Cancel,
        mut sum: A,
    ) -> Result<(A, Coverage), QueryError> {
        let coverage = self.each_part(share, cancel, |touched, coverage| {
            self.rows_of_part(selection, touched, cancel, coverage, &mut sum)?;
            Ok(sum.heap_bytes())
        })?;
        Ok((sum, coverage))
    }

    fn rows_of_part<A: PerRow>(
        &self,
        selection: &Selection,
        touched: &Touched,
        cancel: &Cancel,
        coverage: &mut Coverage,
        sum: &mut A,
    ) -> Result<(), Stop> {
        let Some(opened) = self.open(touched, cancel, coverage)? else {
            return Ok(());
        };
        let mut feed = Feed::new(selection, touched.header(), opened.symbols(), sum);
        match &opened.data {
            Data::Segment(part) => of_part(part, &opened.rows, &mut feed),
            Data::Block(sidecar, files) => {
                let fetch = self.fetch(touched, cancel);
                of_block(sidecar, files, &opened.rows, fetch, &mut feed)?;
            }
        }
        coverage.count(&opened.rows);
        Ok(())
    }
}

/// Hands samples on, without those that the selection's sample labels leave out.
struct Feed<'a, A> {
    header: &'a PartHeader,
    symbols: &'a Symbols,
    sum: &'a mut A,
    /// For each label set, whether it is wanted; `None` = all are.
    wanted: Option<Vec<bool>>,
    kept: (Vec<u32>, Vec<u32>, Vec<i64>),
}

impl<'a, A: PerRow> Feed<'a, A> {
    fn new(
        selection: &Selection,
        header: &'a PartHeader,
        symbols: &'a Symbols,
        sum: &'a mut A,
    ) -> Self {
        sum.part(header, symbols);
        let wanted = selection.sample_labels.as_ref();
        Self {
            header,
            symbols,
            sum,
            wanted: wanted.map(|labels| labels.sets(symbols)),
            kept: Default::default(),
        }
    }

    fn row(&mut self, samples: &RowSamples) {
        let Some(wanted) = &self.wanted else {
            return self.sum.row(self.header, self.symbols, samples);
        };
        let (nodes, sets, values) = &mut self.kept;
        nodes.clear();
        sets.clear();
        values.clear();
        for (at, (&node, &value)) in samples.nodes.iter().zip(samples.values).enumerate() {
            let set = samples.sets.get(at).copied().unwrap_or(0);
            if wanted[set as usize] {
                nodes.push(node);
                sets.push(set);
                values.push(value);
            }
        }
        if !nodes.is_empty() {
            let row = samples.row;
            let kept = RowSamples {
                row,
                nodes,
                sets,
                values,
            };
            self.sum.row(self.header, self.symbols, &kept);
        }
    }
}

fn of_part<A: PerRow>(part: &Part, rows: &[Selected], feed: &mut Feed<A>) {
    for selected in rows {
        let row = &part.profiles.rows[selected.at];
        feed.row(&RowSamples {
            row: selected,
            nodes: part.row_stacks(row),
            sets: part.row_label_sets(row),
            values: part.row_values(row, selected.column),
        });
    }
}

fn of_block<A: PerRow, E: From<Damage>>(
    sidecar: &Sidecar,
    files: &PartFiles,
    rows: &[Selected],
    fetch: impl Fn(&[Chunk]) -> Result<Vec<(Chunk, Vec<u8>)>, E>,
    feed: &mut Feed<A>,
) -> Result<(), E> {
    let (mut first, mut rest) = (0, rows);
    for group in &files.groups {
        let end = first + group.rows;
        let inside = |selected: &Selected| sidecar.profiles.rows[selected.at].first_row < end;
        let (here, later) = rest.split_at(rest.partition_point(inside));
        if let Some(selected) = here.first() {
            let chunks = fetch(&Rows::wanted(group, files.labelled, &[selected.column]))?;
            let mut samples = Rows::open(group, files.labelled, 1, chunks)?;
            let mut at = first;
            for selected in here {
                let row = &sidecar.profiles.rows[selected.at];
                samples.skip((row.first_row - at) as usize)?;
                samples.each(row.rows.into(), |samples| {
                    piece(sidecar, selected, samples, feed)
                })?;
                at = row.first_row + u64::from(row.rows);
            }
        }
        (first, rest) = (end, later);
    }
    Ok(())
}

fn piece<A: PerRow>(
    sidecar: &Sidecar,
    row: &Selected,
    samples: &Rows,
    feed: &mut Feed<A>,
) -> Result<(), Damage> {
    let node = |&stack: &i32| sidecar.stack_nodes.get(stack as u32 as usize).copied();
    let nodes: Option<Vec<u32>> = samples.stacks.iter().map(node).collect();
    let all = sidecar.symbols.label_set_ends.len();
    let set = |&set: &i32| ((set as u32 as usize) < all).then_some(set as u32);
    let sets: Option<Vec<u32>> = samples.label_sets.iter().map(set).collect();
    feed.row(&RowSamples {
        row,
        nodes: &nodes.ok_or(NO_STACK)?,
        sets: &sets.ok_or(NO_STACK)?,
        values: samples.columns.first().map_or(&[], Vec::as_slice),
    });
    Ok(())
}
