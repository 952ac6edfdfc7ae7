//! What a new part is about: series, types, stacks by frequency, and its profiles in order.

use std::collections::HashSet;

use super::super::{BlockRow, Rows};
use super::{Data, Entry, Ids, Source, UNSET};
use crate::segment::{Labels, PartHeader, Section, SeriesEntry, TypeSet};
use crate::store::load::LoadError;

/// Sorted type sets and series of all sources. Sorted in every block, so that blocks merge by
/// reading each forwards.
pub(super) fn union(
    service: &str,
    sources: &[Source],
    dropped: &[String],
    ids: &mut [Ids],
    keeps: &dyn Fn(&Labels) -> bool,
) -> PartHeader {
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
    series.retain(|labels| keeps(labels));
    let place = |at: Result<usize, usize>| at.unwrap_or_else(|at| at) as u32;
    for (source, ids) in sources.iter().zip(ids) {
        let sets = source.header.type_sets.iter();
        let sets = sets.map(|set| place(type_sets.binary_search(set)));
        let labels = source.header.series.iter();
        // A series that is left out has no place.
        let labels = labels.map(|entry| match series.binary_search(&kept(entry)) {
            Ok(at) => at as u32,
            Err(_) => UNSET,
        });
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
pub(super) fn by_frequency(
    sources: &[Source],
    ids: &mut [Ids],
    nodes: usize,
) -> Result<Vec<u32>, LoadError> {
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
pub(super) fn entries(sources: &[Source], ids: &[Ids], step_ns: i64) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (at, (source, ids)) in sources.iter().zip(ids).enumerate() {
        let mut add = |index: usize, row: BlockRow| {
            if ids.series[row.series as usize] == UNSET {
                return;
            }
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

pub(super) fn same_output(a: &Entry, b: &Entry, step_ns: i64) -> bool {
    let step = |entry: &Entry| entry.row.time_ns.div_euclid(step_ns);
    step_ns > 0
        && (a.row.type_set, a.row.series) == (b.row.type_set, b.row.series)
        && step(a) == step(b)
}

/// Fills what the header says of series from what is really there.
pub(super) fn describe(
    header: &mut PartHeader,
    sources: &[Source],
    ids: &[Ids],
    entries: &[Entry],
) {
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
            let Some(series) = header.series.get_mut(id as usize) else {
                continue;
            };
            series.max_time_ns = series.max_time_ns.max(entry.max_time_ns);
        }
    }
}

/// One profile row for a group, and its totals.
pub(super) fn added(
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
