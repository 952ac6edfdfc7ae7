//! Go's own tables (`.gopclntab`), which `-ldflags=-s -w` leaves in place.

use super::code::Code;
use super::coverage::Coverage;
use super::write::Writer;
use crate::Error;
use crate::elf::Elf;

/// The file has such tables.
pub(crate) fn is_there(_object: &[u8], elf: &Elf) -> bool {
    [".gopclntab", ".data.rel.ro.gopclntab"]
        .iter()
        .any(|n| elf.section(n).is_some_and(|s| !s.file.is_empty()))
}

/// The tables of one program.
pub(crate) struct Program<'a> {
    _bytes: &'a [u8],
}

impl<'a> Program<'a> {
    pub fn find(_object: &'a [u8], _elf: &Elf) -> Option<Program<'a>> {
        None
    }

    pub fn read(
        &self,
        _code: &Code,
        _coverage: &mut Coverage,
        _writer: &mut Writer<'a, '_>,
    ) -> Result<(), Error> {
        Ok(())
    }
}
