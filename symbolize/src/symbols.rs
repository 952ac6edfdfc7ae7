//! The symbol table as a sorted index: the name of any function, with no debug information.

use crate::elf::{Elf, Fields, Section, string};

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SYMBOL_SIZE: usize = 24;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// One function symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Name as in the symbol table (mangled).
    pub name: &'a [u8],
    /// First address (svma).
    pub start: u64,
    /// Bytes; 0 when the symbol table does not tell.
    pub size: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    size: u32,
    /// Offset of the name in the file.
    name: u32,
    /// Better names first: typed, then global.
    rank: u8,
}

/// Function symbols by address.
pub(crate) struct Symbols(Vec<Entry>);

impl Symbols {
    /// Bytes that [`Symbols::read`] will take at most.
    pub fn bytes_needed(elf: &Elf) -> usize {
        let count = table_of(elf).map_or(0, |table| table.file.len() / SYMBOL_SIZE);
        count * size_of::<Entry>()
    }

    /// Reads `.symtab`, or `.dynsym` where that is stripped.
    pub fn read(bytes: &[u8], elf: &Elf) -> Symbols {
        let Some(table) = table_of(elf) else {
            return Symbols(Vec::new());
        };
        let mut entries = read_table(bytes, elf, table);
        entries.sort_unstable_by_key(|e| (e.start, e.rank, e.name));
        entries.dedup_by_key(|e| e.start);
        entries.shrink_to_fit();
        Symbols(entries)
    }

    /// The function that holds `svma`: the innermost symbol whose size reaches it, or the nearest
    /// label before it (hand-written assembly), which reaches to the next symbol.
    pub fn find<'a>(&self, bytes: &'a [u8], svma: u64) -> Option<Symbol<'a>> {
        /// Labels inside one function that are looked past.
        const LABELS: usize = 64;
        let before = &self.0[..self.0.partition_point(|e| e.start <= svma)];
        let holds = |e: &&Entry| svma - e.start < u64::from(e.size);
        let sized = before.iter().rev().take(LABELS).find(holds);
        let entry = sized.or_else(|| before.last().filter(|e| e.size == 0))?;
        let name = string(bytes, entry.name as usize);
        Some(Symbol {
            name,
            start: entry.start,
            size: u64::from(entry.size),
        })
    }

    /// All symbols by address: start, end, name. One without a size reaches to the next.
    #[cfg(feature = "tables")]
    pub fn spans<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (u64, u64, &'a [u8])> {
        self.0.iter().enumerate().map(move |(i, e)| {
            let next = self.0.get(i + 1).map_or(u64::MAX, |next| next.start);
            let sized = e.start.saturating_add(u64::from(e.size));
            let end = if e.size == 0 { next } else { sized };
            (e.start, end, string(bytes, e.name as usize))
        })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn table_of(elf: &Elf) -> Option<&Section> {
    let of_kind = |kind| elf.sections.iter().find(|s| s.kind == kind);
    let table = of_kind(SHT_SYMTAB).filter(|s| !s.file.is_empty());
    table.or_else(|| of_kind(SHT_DYNSYM))
}

fn read_table(bytes: &[u8], elf: &Elf, table: &Section) -> Vec<Entry> {
    let names = elf
        .sections
        .get(table.link)
        .map_or(0..0, |s| s.file.clone());
    let symbols = bytes[table.file.clone()]
        .chunks_exact(SYMBOL_SIZE)
        .map(Fields);
    let code = |svma: u64| {
        elf.segments
            .iter()
            .any(|s| s.executable && svma.wrapping_sub(s.svma) < s.memory_size)
    };
    symbols
        .filter_map(|s| {
            let (kind, binding, section) = (s.u8(4) & 15, s.u8(4) >> 4, s.u16(6));
            let start = s.u64(8);
            let typed = match kind {
                STT_FUNC | STT_GNU_IFUNC => true,
                // Labels of hand-written assembly.
                STT_NOTYPE => false,
                _ => return None,
            };
            let name = names.start.checked_add(s.u32(0) as usize)?;
            if section == 0 || s.u32(0) == 0 || name >= names.end || !code(start) {
                return None;
            }
            Some(Entry {
                start,
                size: u32::try_from(s.u64(16)).unwrap_or(u32::MAX),
                name: u32::try_from(name).ok()?,
                rank: u8::from(!typed) << 1 | u8::from(binding != 1),
            })
        })
        .collect()
}
