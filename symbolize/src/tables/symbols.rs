//! Function symbols of all sources of a file, by address.

use super::code::Code;
use super::flatten::{Piece, flatten};
use crate::elf::Elf;
use crate::symbols::Symbols;

/// Names by address.
pub(crate) struct Names<'a> {
    base_svma: u64,
    /// Start and name, by start; the better name of an address first.
    names: Vec<(u32, &'a [u8])>,
    /// What covers each address: `scope` is an index into `names`.
    flat: Vec<Piece>,
}

impl<'a> Names<'a> {
    /// Symbols of each of the files, the better file first.
    pub fn read(files: &[(&'a [u8], &Elf)], code: &Code) -> Names<'a> {
        let mut spans: Vec<(u32, u32, &'a [u8])> = Vec::new();
        for (bytes, elf) in files {
            let symbols = Symbols::read(bytes, elf);
            let relative = |(start, end, name)| {
                let (start, end) = code.range(start, end)?;
                Some((start, end, name))
            };
            spans.extend(symbols.spans(bytes).filter_map(relative));
        }
        // Stable: of one address the first file's stays.
        spans.sort_by_key(|s| s.0);
        spans.dedup_by_key(|s| s.0);
        let piece = |(i, s): (usize, &(u32, u32, &[u8]))| Piece {
            start: s.0,
            end: s.1,
            scope: i as u32,
        };
        let mut pieces: Vec<Piece> = spans.iter().enumerate().map(piece).collect();
        Names {
            base_svma: code.base_svma,
            flat: flatten(&mut pieces),
            names: spans
                .into_iter()
                .map(|(start, _, name)| (start, name))
                .collect(),
        }
    }

    /// The name of the code that starts here.
    pub fn at(&self, svma: u64) -> Option<&'a [u8]> {
        let at = u32::try_from(svma.checked_sub(self.base_svma)?).ok()?;
        let found = self.names.binary_search_by_key(&at, |n| n.0).ok()?;
        Some(self.names[found].1)
    }

    /// Start and name of the symbol that holds an address.
    pub fn holding(&self, svma: u64) -> Option<(u64, &'a [u8])> {
        let at = u32::try_from(svma.checked_sub(self.base_svma)?).ok()?;
        let after = self.flat.partition_point(|p| p.start <= at);
        let piece = self.flat.get(after.checked_sub(1)?)?;
        let (start, name) = *self.names.get(piece.scope as usize)?;
        (at < piece.end).then_some((self.base_svma + u64::from(start), name))
    }

    /// All of them: pieces, and for each its name by `scope`.
    pub fn pieces(&self) -> impl Iterator<Item = (Piece, &'a [u8])> {
        self.flat
            .iter()
            .filter_map(|p| Some((*p, self.names.get(p.scope as usize)?.1)))
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }
}
