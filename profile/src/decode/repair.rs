//! Tolerant mode: takes out what cannot be kept, and counts.

use crate::model::{Profile, row};
use crate::report::{Reason, Report};

use super::columns::Columns;
use super::ids::NOWHERE;

/// Drops samples whose number of values is not the number of sample types.
pub fn drop_misfits(columns: &mut Columns, report: &mut Report) {
    let types = columns.sample_types.len();
    if columns.values.ends.is_empty() && columns.values.width == types {
        return;
    }
    let samples = columns.sample_labels.len();
    let keep: Vec<bool> = (0..samples)
        .map(|sample| columns.value_count(sample) == types)
        .collect();
    let dropped = keep.iter().filter(|&&keep| !keep).count();
    if dropped == 0 {
        return;
    }
    report.add(Reason::ValueCount, dropped as u64);
    let ends: Vec<usize> = (0..samples)
        .scan(0, |end, sample| {
            *end += columns.value_count(sample);
            Some(*end)
        })
        .collect();
    let mut values = Vec::new();
    let mut stacks = crate::model::Lists::default();
    let mut labels = Vec::new();
    for sample in (0..samples).filter(|&sample| keep[sample]) {
        values.extend_from_slice(&columns.values.all[ends[sample] - types..ends[sample]]);
        stacks.push(columns.stacks.get(sample));
        labels.push(columns.sample_labels[sample]);
    }
    columns.values.all = values;
    columns.values.ends = Vec::new();
    columns.values.width = types;
    columns.stacks = stacks;
    columns.sample_labels = labels;
}

/// Drops lines whose function does not exist.
pub fn drop_lost_lines(columns: &mut Columns, report: &mut Report) {
    let before = columns.lines.len();
    let is_lost = |line: &crate::model::Line| line.function.0 == NOWHERE;
    drop_items(&mut columns.line_offsets, &mut columns.lines, is_lost);
    report.add(
        Reason::UnknownFunction,
        (before - columns.lines.len()) as u64,
    );
}

/// Drops frames whose location does not exist.
pub fn drop_lost_frames(columns: &mut Columns, report: &mut Report) {
    let stacks = &mut columns.stacks;
    let before = stacks.items.len();
    drop_items(&mut stacks.offsets, &mut stacks.items, |&l| l == NOWHERE);
    report.add(
        Reason::UnknownLocation,
        (before - stacks.items.len()) as u64,
    );
}

/// Takes items out of rows that stand behind each other.
fn drop_items<T: Copy>(offsets: &mut [u32], items: &mut Vec<T>, lost: impl Fn(&T) -> bool) {
    let mut kept = Vec::with_capacity(items.len());
    let old = offsets.to_vec();
    for (index, end) in offsets.iter_mut().skip(1).enumerate() {
        kept.extend(
            row(&old, items, index)
                .iter()
                .copied()
                .filter(|item| !lost(item)),
        );
        *end = kept.len() as u32;
    }
    *items = kept;
}

/// Counts what is kept although odd.
pub fn note_oddities(profile: &Profile, report: &mut Report) {
    let offsets = &profile.stacks.offsets;
    let empty = offsets.windows(2).filter(|pair| pair[0] == pair[1]).count();
    report.add(Reason::EmptyStack, empty as u64);
    if !profile.strings.all_bytes().is_ascii() {
        let broken = |bytes: &&[u8]| std::str::from_utf8(bytes).is_err();
        let count = profile.strings.iter().filter(broken).count();
        report.add(Reason::NonUtf8String, count as u64);
    }
}
