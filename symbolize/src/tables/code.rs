//! Where a file has code, and its addresses in 32 bits.

use super::Segment32;
use crate::elf::Elf;

/// Executable parts, and the address that all others are counted from.
pub(crate) struct Code {
    pub base_svma: u64,
    /// Relative start and end, by start, disjoint.
    parts: Vec<(u32, u32)>,
    pub segments: Vec<Segment32>,
}

impl Code {
    /// Sections where there are any: a function that the linker dropped has address 0, which
    /// a segment may cover.
    pub fn of(elf: &Elf) -> Code {
        let sections = elf
            .sections
            .iter()
            .filter(|s| s.executable && !s.svma.is_empty());
        let mut parts: Vec<(u64, u64)> = sections.map(|s| (s.svma.start, s.svma.end)).collect();
        let segments = || elf.segments.iter().filter(|s| s.executable);
        if parts.is_empty() {
            parts = segments()
                .map(|s| (s.svma, s.svma.saturating_add(s.memory_size)))
                .collect();
        }
        parts.sort_unstable();
        let base_svma = parts.first().map_or(0, |p| p.0);
        let mut relative: Vec<(u32, u32)> = Vec::new();
        for (start, end) in parts {
            let cut = |a: u64| u32::try_from(a - base_svma).unwrap_or(u32::MAX - 1);
            let (start, end) = (cut(start), cut(end));
            match relative.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => relative.push((start, end)),
            }
        }
        let segment = |s: &crate::Segment| Segment32 {
            svma: s.svma,
            file_offset: s.file_offset,
            // A debug file has no contents of its own.
            file_size: s.memory_size,
        };
        Code {
            base_svma,
            parts: relative,
            segments: segments().map(segment).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The part that holds `at`.
    fn part(&self, at: u32) -> Option<(u32, u32)> {
        let after = self.parts.partition_point(|p| p.0 <= at);
        let part = *self.parts.get(after.checked_sub(1)?)?;
        (at < part.1).then_some(part)
    }

    /// An address of code.
    pub fn relative(&self, svma: u64) -> Option<u32> {
        let at = u32::try_from(svma.checked_sub(self.base_svma)?).ok()?;
        self.part(at).map(|_| at)
    }

    /// The end of a range: an address of code, or just after one.
    pub fn end(&self, svma: u64) -> Option<u32> {
        self.relative(svma.checked_sub(1)?).map(|at| at + 1)
    }

    /// A range that starts in code, cut at the end of that.
    pub fn range(&self, start: u64, end: u64) -> Option<(u32, u32)> {
        let at = u32::try_from(start.checked_sub(self.base_svma)?).ok()?;
        let (_, part_end) = self.part(at)?;
        let length = u32::try_from(end.checked_sub(start)?).unwrap_or(u32::MAX);
        let end = at.saturating_add(length).min(part_end);
        (at < end).then_some((at, end))
    }
}
