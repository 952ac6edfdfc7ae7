//! Section ranges by name, for the oracles; the crate itself reads program headers only.

use std::ops::Range;

/// File bytes of one ELF and where its sections are.
pub struct Elf {
    pub bytes: Vec<u8>,
    sections: Vec<(String, u64, Range<usize>, u64)>,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(field(bytes, at)) as usize
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(field(bytes, at)) as usize
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes(field(bytes, at)) as usize
}

impl Elf {
    pub fn open(path: &str) -> Elf {
        Elf::parse(std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    pub fn parse(bytes: Vec<u8>) -> Elf {
        let (table, count) = (u64_at(&bytes, 40), u16_at(&bytes, 60));
        let header = |i: usize| table + i * 64;
        let names = u64_at(&bytes, header(u16_at(&bytes, 62)) + 24);
        let mut sections = Vec::new();
        for h in (0..count).map(header) {
            let name = &bytes[names + u32_at(&bytes, h)..];
            let name = name.split(|&b| b == 0).next().unwrap();
            let (offset, size) = (u64_at(&bytes, h + 24), u64_at(&bytes, h + 32));
            let size = if u32_at(&bytes, h + 4) == 8 { 0 } else { size };
            let name = String::from_utf8_lossy(name).into_owned();
            let flags = u64_at(&bytes, h + 8) as u64;
            sections.push((
                name,
                u64_at(&bytes, h + 16) as u64,
                offset..offset + size,
                flags,
            ));
        }
        Elf { bytes, sections }
    }

    /// Address range and bytes of a section.
    pub fn section(&self, name: &str) -> Option<(Range<u64>, &[u8])> {
        let (_, svma, file, _) = self.sections.iter().find(|s| s.0 == name)?;
        Some((*svma..svma + file.len() as u64, &self.bytes[file.clone()]))
    }

    /// Address ranges of all sections with code.
    pub fn code(&self) -> Vec<Range<u64>> {
        let code = self.sections.iter().filter(|s| s.3 & 4 != 0);
        code.map(|s| s.1..s.1 + s.2.len() as u64).collect()
    }

    /// Position independent, so that it may be loaded anywhere.
    pub fn is_pie(&self) -> bool {
        u16_at(&self.bytes, 16) == 3
    }
}
