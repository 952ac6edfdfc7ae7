//! Line programs as sorted rows, and their files.

use super::code::Code;
use super::format::NONE;
use super::sections::Slice;
use super::write::Writer;
use addr2line::gimli::{self, Unit, UnitRef};

/// From `start` on; up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub start: u32,
    /// Index in the unit's list of files; [`NONE`] where nothing is known from here on.
    pub file: u32,
    pub line: u32,
}

/// Rows of a unit, by address. What follows an error in the program is lost.
pub(crate) fn lines(unit: &Unit<Slice<'_>>, code: &Code) -> Vec<Line> {
    let Some(program) = unit.line_program.clone() else {
        return Vec::new();
    };
    // Sequences: rows, then the end.
    let mut sequences: Vec<(Vec<Line>, u32)> = Vec::new();
    let mut rows = program.rows();
    let mut sequence: Vec<Line> = Vec::new();
    while let Ok(Some((_, row))) = rows.next_row() {
        if row.end_sequence() {
            let end = code.end(row.address());
            let sequence = std::mem::take(&mut sequence);
            if let Some(end) = end.filter(|_| !sequence.is_empty()) {
                sequences.push((sequence, end));
            }
            continue;
        }
        let Some(start) = code.relative(row.address()) else {
            continue;
        };
        let line = row
            .line()
            .map_or(0, |l| u32::try_from(l.get()).unwrap_or(0));
        let line = Line {
            start,
            file: u32::try_from(row.file_index()).unwrap_or(NONE - 1),
            line,
        };
        match sequence.last_mut() {
            // The last row of an address holds.
            Some(last) if last.start == start => *last = line,
            // Addresses never go back within a sequence.
            Some(last) if last.start > start => {}
            _ => sequence.push(line),
        }
    }
    sequences.sort_by_key(|(rows, _)| rows.first().map_or(0, |r| r.start));
    join(sequences)
}

fn join(sequences: Vec<(Vec<Line>, u32)>) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::with_capacity(sequences.iter().map(|s| s.0.len() + 1).sum());
    let mut reached = 0;
    for (rows, end) in sequences {
        let rows = rows
            .into_iter()
            .filter(|r| r.start >= reached && r.start < end);
        for row in rows {
            // The gap before it.
            if all.last().is_some_and(|last| last.start == row.start) {
                all.pop();
            }
            all.push(row);
        }
        if end > reached {
            reached = end;
            all.push(Line {
                start: end,
                file: NONE,
                line: 0,
            });
        }
    }
    all
}

const UNKNOWN: u32 = NONE - 1;

/// Numbers of a unit's files in the table, found when first asked for.
pub(crate) struct Files(Vec<u32>);

impl Files {
    pub fn new() -> Files {
        Files(Vec::new())
    }

    /// Number of the file with this index; [`NONE`] when there is none.
    pub fn get(
        &mut self,
        unit: UnitRef<'_, Slice<'_>>,
        index: u64,
        writer: &mut Writer<'_, '_>,
    ) -> u32 {
        let count = unit
            .line_program
            .as_ref()
            .map_or(0, |p| p.header().file_names().len());
        // Indices begin with 0 or 1.
        let Some(slot) = usize::try_from(index).ok().filter(|&i| i <= count) else {
            return NONE;
        };
        if self.0.is_empty() {
            self.0.resize(count + 1, UNKNOWN);
        }
        if self.0[slot] == UNKNOWN {
            self.0[slot] = match path(unit, index) {
                Some(path) => writer.file(&path),
                None => NONE,
            };
        }
        self.0[slot]
    }
}

/// Compilation directory, directory and name, joined.
fn path(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    // Before DWARF 5 index 0 means no file.
    if index == 0 && header.version() < 5 {
        return None;
    }
    let file = header.file(index)?;
    let text = |value| -> Option<String> {
        let found = unit.attr_string(value).ok()?;
        Some(found.to_string_lossy().into_owned())
    };
    // Directory 0 is the compilation directory; since DWARF 5 it stands in the list too.
    let (first, listed) = (file.directory_index() == 0, header.version() >= 5);
    let root = unit.comp_dir.filter(|_| !(first && listed));
    let mut path = root.map_or_else(String::new, |d| d.to_string_lossy().into_owned());
    if let Some(directory) = file.directory(header).filter(|_| listed || !first) {
        push(&mut path, &text(directory)?);
    }
    push(&mut path, &text(file.path_name())?);
    Some(path)
}

fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

/// A number that must fit 32 bits; 0 means that none was given.
pub(crate) fn small(value: gimli::AttributeValue<Slice<'_>>) -> u64 {
    match value {
        gimli::AttributeValue::FileIndex(index) => index,
        other => other.udata_value().unwrap_or(0),
    }
}
