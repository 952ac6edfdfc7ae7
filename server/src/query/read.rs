//! Samples of selected profiles → sums, from a segment's part or a block's.

use std::collections::HashMap;

use super::engine::Selected;
use crate::block::{BlockRow, PartFiles, Rows, Sidecar};
use crate::block::{Chunk, RowGroup};
use crate::segment::{Damage, Part, ProfileRow, Symbols};

/// What an answer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Sums by stack.
    Stacks,
    /// Sums by stack and label set.
    Labels,
}

/// What a part adds to an answer.
pub struct Added<'a> {
    /// Names of the nodes.
    pub symbols: &'a Symbols,
    /// The profiles that were added up.
    pub rows: &'a [Selected],
    /// Sum of each node, of all samples for [`Want::Stacks`], of those without labels for
    /// [`Want::Labels`].
    pub nodes: Vec<i64>,
    /// (node, label set) → sum of the samples with labels, for [`Want::Labels`].
    pub labelled: HashMap<(u32, u32), i64>,
}

impl<'a> Added<'a> {
    /// The same with names in the place of addresses; nodes and locations are the same.
    pub fn with_names(self, named: Option<&'a Symbols>) -> Self {
        let symbols = named.unwrap_or(self.symbols);
        Self { symbols, ..self }
    }
}

impl Selected {
    /// A profile of a segment.
    pub fn of_segment(at: usize, row: &ProfileRow, column: usize) -> Self {
        Self {
            at,
            column,
            series: row.series,
            time_ns: row.time_ns,
            duration_ns: row.duration_ns,
            period: row.period,
            profiles: 1,
            samples: row.samples.into(),
        }
    }

    /// A profile of a block.
    pub fn of_block(at: usize, row: &BlockRow, column: usize) -> Self {
        Self {
            at,
            column,
            series: row.series,
            time_ns: row.time_ns,
            duration_ns: row.duration_ns,
            period: row.period,
            profiles: row.profiles.into(),
            samples: row.samples,
        }
    }
}

#[inline]
fn add(sum: &mut i64, value: i64) {
    *sum = sum.saturating_add(value);
}

/// Adds up profiles of a segment.
pub fn of_part<'a>(part: &'a Part, rows: &'a [Selected], want: Want) -> Added<'a> {
    let mut nodes = vec![0_i64; part.symbols.parents.len()];
    let mut labelled = HashMap::new();
    for selected in rows {
        let row = &part.profiles.rows[selected.at];
        let sets = match want {
            Want::Stacks => &[],
            Want::Labels => part.row_label_sets(row),
        };
        let values = part.row_values(row, selected.column);
        for (at, (&stack, &value)) in part.row_stacks(row).iter().zip(values).enumerate() {
            match sets.get(at) {
                None | Some(0) => add(&mut nodes[stack as usize], value),
                Some(&set) => add(labelled.entry((stack, set)).or_default(), value),
            }
        }
    }
    Added {
        symbols: &part.symbols,
        rows,
        nodes,
        labelled,
    }
}

/// Adds up profiles of a block, reading only the columns and pages that they need.
///
/// # Errors
/// When a chunk cannot be read or is damaged.
pub fn of_block<'a, E: From<Damage>>(
    sidecar: &'a Sidecar,
    files: &PartFiles,
    rows: &'a [Selected],
    want: Want,
    fetch: impl Fn(&[Chunk]) -> Result<Vec<(Chunk, Vec<u8>)>, E>,
) -> Result<Added<'a>, E> {
    let labels = want == Want::Labels && files.labelled;
    let mut sums = Sums {
        stacks: vec![0; sidecar.stack_nodes.len()],
        labelled: HashMap::new(),
        sets: sidecar.symbols.label_set_ends.len(),
    };
    let (mut first, mut rest) = (0, rows);
    for group in &files.groups {
        let end = first + group.rows;
        let inside = |selected: &Selected| sidecar.profiles.rows[selected.at].first_row < end;
        let (here, later) = rest.split_at(rest.partition_point(inside));
        if let Some(selected) = here.first() {
            let column = selected.column;
            let chunks = fetch(&Rows::wanted(group, labels, &[column]))?;
            group_sums(sidecar, group, first, here, labels, chunks, &mut sums)?;
        }
        (first, rest) = (end, later);
    }
    let mut nodes = vec![0_i64; sidecar.symbols.parents.len()];
    for (&node, &sum) in sidecar.stack_nodes.iter().zip(&sums.stacks) {
        add(&mut nodes[node as usize], sum);
    }
    let labelled = sums.labelled.into_iter();
    let labelled =
        labelled.map(|((stack, set), sum)| ((sidecar.stack_nodes[stack as usize], set), sum));
    Ok(Added {
        symbols: &sidecar.symbols,
        rows,
        nodes,
        labelled: labelled.collect(),
    })
}

struct Sums {
    stacks: Vec<i64>,
    labelled: HashMap<(u32, u32), i64>,
    sets: usize,
}

fn group_sums(
    sidecar: &Sidecar,
    group: &RowGroup,
    first: u64,
    here: &[Selected],
    labels: bool,
    chunks: Vec<(Chunk, Vec<u8>)>,
    sums: &mut Sums,
) -> Result<(), Damage> {
    let mut rows = Rows::open(group, labels, 1, chunks)?;
    let mut at = first;
    let mut left = here.iter().map(|selected| {
        let row = &sidecar.profiles.rows[selected.at];
        (row.first_row, row.first_row + u64::from(row.rows))
    });
    let mut next = left.next();
    while let Some((start, mut end)) = next {
        next = left.next();
        // Profiles behind each other are one run of rows.
        while let Some((more, further)) = next
            && more == end
        {
            end = further;
            next = left.next();
        }
        rows.skip((start - at) as usize)?;
        rows.each(end - start, |rows| sums.add(rows))?;
        at = end;
    }
    Ok(())
}

impl Sums {
    fn add(&mut self, rows: &Rows) -> Result<(), Damage> {
        let values = rows.columns.first().map_or(&[][..], Vec::as_slice);
        if rows.label_sets.is_empty() {
            for (&stack, &value) in rows.stacks.iter().zip(values) {
                let sum = self.stacks.get_mut(stack as u32 as usize);
                add(sum.ok_or(NO_STACK)?, value);
            }
            return Ok(());
        }
        for ((&stack, &set), &value) in rows.stacks.iter().zip(&rows.label_sets).zip(values) {
            let sum = self.stacks.get_mut(stack as u32 as usize);
            let sum = sum.ok_or(NO_STACK)?;
            match set {
                0 => add(sum, value),
                set if (set as u32 as usize) < self.sets => {
                    let key = (stack as u32, set as u32);
                    add(self.labelled.entry(key).or_default(), value);
                }
                _ => return Err(NO_STACK),
            }
        }
        Ok(())
    }
}

pub(super) const NO_STACK: Damage = Damage::Content {
    section: "samples",
    offset: 0,
    what: "no such stack or label set",
};
