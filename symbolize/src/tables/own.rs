//! What a unit calls its own code: its line program may reach into the padding between functions.

use super::code::Code;
use super::format::NONE;
use super::sections::Slice;
use super::write::Row;
use addr2line::gimli::{Dwarf, Unit};

/// Ranges of a unit, sorted, apart from each other; empty where it does not say. Each takes one of
/// `left`; `None` when there are too many.
pub(crate) fn ranges(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    code: &Code,
    left: &mut u64,
) -> Option<Vec<(u32, u32)>> {
    let mut own: Vec<(u32, u32)> = Vec::new();
    let Ok(mut ranges) = dwarf.unit_ranges(unit) else {
        return Some(own);
    };
    while let Ok(Some(range)) = ranges.next() {
        *left = left.checked_sub(1)?;
        own.extend(code.range(range.begin, range.end));
    }
    own.sort_unstable();
    own.dedup_by(|next, last| {
        let joined = next.0 <= last.1;
        if joined {
            last.1 = last.1.max(next.1);
        }
        joined
    });
    Some(own)
}

/// `rows` without lines beyond `own`, where no function is known either.
pub(crate) fn within(own: &[(u32, u32)], rows: Vec<Row>) -> Vec<Row> {
    if own.is_empty() {
        return rows;
    }
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        if row.scope != NONE {
            kept.push(row);
            continue;
        }
        let first = own.partition_point(|range| range.1 <= row.start);
        let parts = own[first..].iter().take_while(|range| range.0 < row.end);
        kept.extend(parts.map(|&(start, end)| Row {
            start: row.start.max(start),
            end: row.end.min(end),
            ..row
        }));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_unit_go_and_functions_stay() {
        let row = |start, end, scope| Row {
            start,
            end,
            scope,
            file: 0,
            line: 1,
        };
        let rows = vec![
            row(0, 10, NONE),
            row(10, 20, 3),
            row(20, 40, NONE),
            row(50, 60, NONE),
        ];
        let kept: Vec<(u32, u32)> = within(&[(5, 8), (22, 25), (30, 55)], rows)
            .iter()
            .map(|row| (row.start, row.end))
            .collect();
        assert_eq!(kept, [(5, 8), (10, 20), (22, 25), (30, 40), (50, 55)]);
        assert_eq!(
            within(&[], vec![row(0, 9, NONE)]).len(),
            1,
            "a unit that says nothing"
        );
    }
}
