//! Where functions begin and end, from `.eh_frame`: it stays in stripped files, and tells apart what nothing names.

use super::code::Code;
use super::coverage::Coverage;
use super::format::NONE;
use super::inspect::contents;
use super::units::emit;
use super::write::{Row, Scope, Writer};
use crate::Error;
use crate::elf::Elf;
use addr2line::gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};

const NAME: &str = ".eh_frame";

/// Writes a row without a name for each function that no other source knows; how many there are.
pub(crate) fn rest(
    object: &[u8],
    elf: &Elf,
    code: &Code,
    coverage: &mut Coverage,
    writer: &mut Writer<'_, '_>,
) -> Result<u64, Error> {
    let before = writer.rows;
    let row = |(start, end)| Row {
        start,
        end,
        scope: 0,
        file: NONE,
        line: 0,
    };
    let mut rows: Vec<Row> = ranges(object, elf, code).into_iter().map(row).collect();
    // Of forged ones that overlap, the first keeps its addresses.
    rows.sort_unstable_by_key(|row| (row.start, row.end));
    emit(&rows, &mut [Scope::of(NONE)], coverage, writer)?;
    Ok(writer.rows - before)
}

/// What can be read of them; entries after a damaged one are lost.
fn ranges(object: &[u8], elf: &Elf, code: &Code) -> Vec<(u32, u32)> {
    let Some(section) = elf.section(NAME) else {
        return Vec::new();
    };
    let frames = EhFrame::from(EndianSlice::new(contents(object, elf, NAME), LittleEndian));
    let bases = BaseAddresses::default()
        .set_eh_frame(section.svma.start)
        .set_text(code.base_svma);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let start = fde.initial_address();
        found.extend(code.range(start, start.saturating_add(fde.len())));
    }
    found
}
