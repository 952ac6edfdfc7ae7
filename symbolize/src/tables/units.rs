//! One unit of DWARF after another: its functions, inlined calls and lines, as rows.

use super::code::Code;
use super::coverage::Coverage;
use super::flatten::{Piece, flatten};
use super::format::NONE;
use super::lines::{Files, Line, lines};
use super::names::{Entry, Names};
use super::own;
use super::sections::Slice;
use super::split::Split;
use super::symbols::Names as SymbolNames;
use super::write::{Row, Scope, Writer};
use super::{Limits, Report};
use crate::Error;
use addr2line::gimli::{self, AttributeValue, Dwarf, Reader, Section, Unit, UnitRef};
use std::collections::HashMap;

/// Reads all units.
pub(crate) struct Units<'a, 's> {
    pub dwarf: &'s Dwarf<Slice<'a>>,
    pub split: &'s Split<'a>,
    pub code: &'s Code,
    pub symbols: &'s SymbolNames<'a>,
    pub coverage: Coverage,
    pub report: Report,
    /// Ranges that may still be read: entries can share a list of them, and a forged file would
    /// have many read a long one.
    ranges_left: u64,
    names: Names<'a>,
}

/// Scopes of a unit and what they cover.
#[derive(Default)]
struct Walked {
    scopes: Vec<Scope>,
    pieces: Vec<Piece>,
}

impl<'a, 's> Units<'a, 's> {
    pub fn new(
        dwarf: &'s Dwarf<Slice<'a>>,
        split: &'s Split<'a>,
        code: &'s Code,
        symbols: &'s SymbolNames<'a>,
        limits: &Limits,
    ) -> Units<'a, 's> {
        let info = dwarf.debug_info.reader().len() as u64;
        let ranges = dwarf.ranges.debug_ranges().reader().len()
            + dwarf.ranges.debug_rnglists().reader().len();
        Units {
            dwarf,
            split,
            code,
            symbols,
            coverage: Coverage::default(),
            report: Report::default(),
            ranges_left: (info + ranges as u64 + split.info_bytes()) * 2,
            names: Names::new(dwarf, &|| limits.relieve()),
        }
    }

    pub fn read(&mut self, writer: &mut Writer<'a, '_>, limits: &Limits) -> Result<(), Error> {
        let mut headers = self.dwarf.units();
        let mut since_relief = 0;
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return Ok(()),
                Err(_) => {
                    // Nobody knows where the next one starts.
                    self.report.damaged_units += 1;
                    return Ok(());
                }
            };
            since_relief += header.length_including_self();
            self.report.units += 1;
            // Types have no code, but may have the lines of a unit that does.
            if matches!(header.type_(), gimli::UnitType::Type { .. }) {
                continue;
            }
            match self.dwarf.unit(header) {
                Ok(unit) => self.unit(&unit, writer)?,
                Err(_) => self.report.damaged_units += 1,
            }
            if since_relief > super::RELIEF_BYTES {
                since_relief = 0;
                limits.relieve();
            }
        }
    }

    fn unit(&mut self, unit: &Unit<Slice<'a>>, writer: &mut Writer<'a, '_>) -> Result<(), Error> {
        let here = UnitRef::new(self.dwarf, unit);
        let mut files = Files::new();
        let walked = match self.split.find(self.dwarf, unit) {
            Some((dwarf, split)) => {
                let mut names = Names::new(&dwarf, &|| {});
                self.report.split_units += 1;
                self.walk(
                    UnitRef::new(&dwarf, &split),
                    here,
                    &mut files,
                    &mut names,
                    writer,
                )
            }
            None => {
                self.report.missing_split_units += u64::from(unit.dwo_id.is_some());
                let mut names = std::mem::replace(&mut self.names, Names::empty());
                names.next_unit();
                let walked = self.walk(here, here, &mut files, &mut names, writer);
                self.names = names;
                walked
            }
        };
        let Walked {
            mut scopes,
            mut pieces,
        } = walked;
        let pieces = flatten(&mut pieces);
        let lines = lines(unit, self.code);
        let mut file = |index: u32| files.get(here, u64::from(index), writer);
        let rows = join(&pieces, &lines, &mut file);
        let own = own::ranges(self.dwarf, unit, self.code, &mut self.ranges_left);
        self.report.lost_ranges += u64::from(own.is_none());
        let mut rows = own::within(&own.unwrap_or_default(), rows);
        self.name_by_symbols(&mut rows, &mut scopes, writer);
        emit(&rows, &mut scopes, &mut self.coverage, writer)
    }

    /// All functions and inlined calls of a unit. Files are those of `main`, which differs from
    /// `unit` where DWARF is split.
    fn walk(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        main: UnitRef<'_, Slice<'a>>,
        files: &mut Files,
        names: &mut Names<'a>,
        writer: &mut Writer<'a, '_>,
    ) -> Walked {
        let mut walked = Walked::default();
        if self
            .walk_entries(unit, main, files, names, writer, &mut walked)
            .is_err()
        {
            self.report.damaged_units += 1;
        }
        walked
    }

    fn walk_entries(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        main: UnitRef<'_, Slice<'a>>,
        files: &mut Files,
        names: &mut Names<'a>,
        writer: &mut Writer<'a, '_>,
        walked: &mut Walked,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        // Depth and scope of the functions around the current entry.
        let mut around: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while around.last().is_some_and(|a| a.0 >= depth) {
                around.pop();
            }
            let tag = abbreviation.tag();
            let inlined = tag == gimli::DW_TAG_inlined_subroutine;
            if !inlined && tag != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let parent = around.last().map_or(NONE, |a| a.1);
            if inlined && parent == NONE {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let entry = Entry::read(&mut entries, abbreviation)?;
            let scope = walked.scopes.len() as u32;
            let before = walked.pieces.len();
            self.ranges(unit, &entry, scope, &mut walked.pieces);
            if walked.pieces.len() == before {
                // An abstract instance, or code that is gone: so is what is inlined into it.
                around.push((depth, NONE));
                continue;
            }
            let function = if inlined {
                names.origin(unit, main, files, &entry, writer)
            } else {
                let start = self.code.base_svma + u64::from(walked.pieces[before].start);
                names.function(unit, main, files, &entry, self.symbols.at(start), writer)
            };
            walked.scopes.push(Scope {
                parent: if inlined { parent } else { NONE },
                function,
                call_file: if inlined {
                    files.get(main, entry.call_file, writer)
                } else {
                    NONE
                },
                call_line: u32::try_from(entry.call_line).unwrap_or(0),
                written: NONE,
            });
            around.push((depth, scope));
        }
        Ok(())
    }

    /// Where the code of an entry is.
    fn ranges(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        entry: &Entry<'a>,
        scope: u32,
        pieces: &mut Vec<Piece>,
    ) {
        let mut add = |start: u64, end: u64| {
            let range = self.code.range(start, end);
            pieces.extend(range.map(|(start, end)| Piece { start, end, scope }));
        };
        if let Some(ranges) = entry.ranges {
            let Ok(Some(mut ranges)) = unit.attr_ranges(ranges) else {
                return;
            };
            while let Ok(Some(range)) = ranges.next() {
                let Some(left) = self.ranges_left.checked_sub(1) else {
                    self.report.lost_ranges += 1;
                    return;
                };
                self.ranges_left = left;
                add(range.begin, range.end);
            }
            return;
        }
        let low = entry.low.and_then(|low| unit.attr_address(low).ok()?);
        let (Some(low), Some(high)) = (low, entry.high) else {
            return;
        };
        let high = match high {
            AttributeValue::Udata(size) => low.checked_add(size),
            other => unit.attr_address(other).ok().flatten(),
        };
        if let Some(high) = high {
            add(low, high);
        }
    }

    /// Lines without a function, of assembly mostly: the symbol table knows more.
    fn name_by_symbols(
        &self,
        rows: &mut [Row],
        scopes: &mut Vec<Scope>,
        writer: &mut Writer<'a, '_>,
    ) {
        let mut known: HashMap<u64, u32> = HashMap::new();
        for row in rows.iter_mut().filter(|r| r.scope == NONE) {
            let svma = self.code.base_svma + u64::from(row.start);
            let Some((start, name)) = self.symbols.holding(svma) else {
                continue;
            };
            row.scope = *known.entry(start).or_insert_with(|| {
                scopes.push(Scope::of(writer.function(name, NONE, 0)));
                scopes.len() as u32 - 1
            });
        }
    }
}

/// Rows by address from scopes by address and lines by address.
fn join(pieces: &[Piece], lines: &[Line], file: &mut impl FnMut(u32) -> u32) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(pieces.len() + lines.len());
    let (mut i, mut j) = (0, 0);
    let first = |p: Option<&Piece>, l: Option<&Line>| {
        let (p, l) = (
            p.map_or(u32::MAX, |p| p.start),
            l.map_or(u32::MAX, |l| l.start),
        );
        p.min(l)
    };
    let mut at = first(pieces.first(), lines.first());
    while at < u32::MAX {
        while pieces.get(i).is_some_and(|p| p.end <= at) {
            i += 1;
        }
        while lines.get(j).is_some_and(|l| l.start <= at) {
            j += 1;
        }
        let piece = pieces.get(i).filter(|p| p.start <= at);
        let line = j
            .checked_sub(1)
            .map(|j| &lines[j])
            .filter(|l| l.file != NONE);
        let next_piece = pieces
            .get(i)
            .map_or(u32::MAX, |p| if p.start <= at { p.end } else { p.start });
        let end = next_piece.min(lines.get(j).map_or(u32::MAX, |l| l.start));
        if (piece.is_some() || line.is_some()) && end < u32::MAX {
            let row = Row {
                start: at,
                end,
                scope: piece.map_or(NONE, |p| p.scope),
                file: line.map_or(NONE, |l| file(l.file)),
                line: line.map_or(0, |l| l.line),
            };
            match rows.last_mut() {
                Some(last)
                    if Row {
                        start: last.start,
                        end,
                        ..row
                    } == Row { end, ..*last }
                        && last.end == at =>
                {
                    last.end = end
                }
                _ => rows.push(row),
            }
        }
        at = end;
    }
    rows
}

/// Writes the parts of the rows that no earlier one covers.
pub(crate) fn emit(
    rows: &[Row],
    scopes: &mut [Scope],
    coverage: &mut Coverage,
    writer: &mut Writer<'_, '_>,
) -> Result<(), Error> {
    for run in rows.chunk_by(|a, b| a.end == b.start) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        for (start, end) in coverage.claim(first.start, last.end) {
            if (start, end) == (first.start, last.end) {
                writer.rows(run, scopes)?;
                continue;
            }
            let from = run.partition_point(|r| r.end <= start);
            let to = run.partition_point(|r| r.start < end);
            let cut = |r: &Row| Row {
                start: r.start.max(start),
                end: r.end.min(end),
                ..*r
            };
            let part: Vec<Row> = run[from..to].iter().map(cut).collect();
            writer.rows(&part, scopes)?;
        }
    }
    Ok(())
}
