//! Mini-debuginfo: a symbol table in `.gnu_debugdata`, compressed by xz.

use crate::elf::Elf;
use std::io::Read;

/// Dictionary of `xz -9` and what else its reader holds.
const READER_KB: u32 = 80 << 10;

/// The ELF file inside.
pub(crate) struct Mini {
    pub bytes: Vec<u8>,
    pub elf: Elf,
}

impl Mini {
    /// `None` when there is none, or it is damaged or too large.
    pub fn load(object: &[u8], elf: &Elf, left_bytes: &mut u64) -> Option<Mini> {
        let packed = super::inspect::contents(object, elf, ".gnu_debugdata");
        if packed.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        let reader = lzma_rust2::XzReader::new_mem_limit(packed, true, READER_KB);
        reader
            .take(left_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .ok()?;
        *left_bytes = left_bytes.checked_sub(bytes.len() as u64)?;
        let elf = Elf::parse(&bytes).ok()?;
        Some(Mini { bytes, elf })
    }
}
