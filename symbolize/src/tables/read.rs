//! Lookup in the bytes of a table.

use super::format::*;
use super::{Quality, Segment32};
use crate::Error;
use std::borrow::Cow;

/// A table over borrowed bytes, a memory map for example. Opening reads the footer alone; every
/// lookup checks what it reads, so that damaged or forged bytes are an error.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
    code: &'a [u8],
    strings: &'a [u8],
    string_ends: &'a [u8],
    functions: &'a [u8],
    starts: &'a [u8],
    offsets: &'a [u8],
    segments: &'a [u8],
    base_svma: u64,
    names: u32,
    quality: u64,
}

/// One function at an address, as numbers of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// For [`Table::function`]; `None` where only a line is known.
    pub function: Option<u32>,
    /// For [`Table::file`].
    pub file: Option<u32>,
    /// From 1; `None` where the compiler gave none.
    pub line: Option<u32>,
}

/// A function's names and where it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Name as the linker knows it; bytes that are no UTF-8 are replaced.
    pub system_name: Cow<'a, str>,
    /// The readable form; equal to `system_name` where there is no other.
    pub name: Cow<'a, str>,
    /// Number of the file of its declaration, for [`Table::file`].
    pub file: Option<u32>,
    /// Line of its declaration.
    pub line: Option<u32>,
}

impl<'a> Table<'a> {
    /// Checks header and footer.
    ///
    /// # Errors
    /// [`Error::NotATable`] for other bytes, [`Error::TableVersion`] for a table of another
    /// version, [`Error::Damaged`] when a part lies outside the bytes.
    pub fn open(bytes: &'a [u8]) -> Result<Table<'a>, Error> {
        let at = bytes.len().checked_sub(FOOTER_BYTES);
        let at = at
            .filter(|&at| at >= HEADER_BYTES)
            .ok_or(Error::NotATable)?;
        let end = bytes.len() - 8;
        if bytes[..8] != MAGIC || bytes[end..] != MAGIC {
            return Err(Error::NotATable);
        }
        let version = u32_at(bytes, end - 8).unwrap_or(0);
        if version != VERSION {
            return Err(Error::TableVersion { version });
        }
        let field = |i: usize| u64_at(bytes, at + i * 8).unwrap_or(u64::MAX);
        let part = |i: usize, size: usize| {
            let start = usize::try_from(field(i)).ok()?;
            let length = usize::try_from(field(i + 1)).ok()?.checked_mul(size)?;
            bytes.get(..at)?.get(start..start.checked_add(length)?)
        };
        let part = |i, size| {
            part(i, size).ok_or(Error::Damaged {
                offset: (at + i * 8) as u64,
            })
        };
        let (code, strings) = (part(0, 1)?, part(2, 1)?);
        let (string_ends, functions) = (part(4, 4)?, part(6, FUNCTION_BYTES)?);
        let blocks = part(8, 8)?;
        let (starts, offsets) = blocks.split_at(blocks.len() / 2);
        Ok(Table {
            bytes,
            code,
            strings,
            string_ends,
            functions,
            starts,
            offsets,
            segments: part(10, SEGMENT_BYTES)?,
            base_svma: field(12),
            names: (field(13) & u64::from(u32::MAX)) as u32,
            quality: field(13) >> 32,
        })
    }

    /// All bytes of the table.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What the table was built from.
    #[must_use]
    pub fn quality(&self) -> Option<Quality> {
        Quality::from_rank(self.quality as u8)
    }

    /// From the first address that has an answer to the start of the last block of them.
    #[must_use]
    pub fn code(&self) -> std::ops::Range<u64> {
        let at =
            |at: Option<usize>| u64::from(at.and_then(|at| u32_at(self.starts, at)).unwrap_or(0));
        let address = |at| self.base_svma.saturating_add(at);
        address(at(Some(0)))..address(at(self.starts.len().checked_sub(4)))
    }

    /// Number of functions.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions.len() / FUNCTION_BYTES
    }

    /// The stated address of the byte at `file_offset` of the executable.
    #[must_use]
    pub fn file_offset_to_svma(&self, file_offset: u64) -> Option<u64> {
        let mut segments = self
            .segments
            .chunks_exact(SEGMENT_BYTES)
            .map(Segment32::read);
        segments.find_map(|s| {
            let inside = file_offset.checked_sub(s.file_offset)?;
            (inside < s.file_size).then(|| s.svma.wrapping_add(inside))
        })
    }

    /// Puts the functions at `svma` into `places`, the innermost inlined one first; none when
    /// nothing is known. Subtract 1 from a return address before asking.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the offset of what contradicts itself.
    #[inline]
    pub fn lookup(&self, svma: u64, places: &mut Vec<Place>) -> Result<(), Error> {
        places.clear();
        let Some((block, row)) = self.row(svma)? else {
            return Ok(());
        };
        self.chain(block, &row, places).ok_or(Error::Damaged {
            offset: block as u64,
        })
    }

    /// Where the function that holds `svma` begins, when that is all that is known of it.
    ///
    /// # Errors
    /// As [`Table::lookup`].
    pub fn extent(&self, svma: u64) -> Result<Option<u64>, Error> {
        let Some((block, row)) = self.row(svma)? else {
            return Ok(None);
        };
        let mut places = Vec::new();
        let read = self.chain(block, &row, &mut places);
        read.ok_or(Error::Damaged {
            offset: block as u64,
        })?;
        Ok(places
            .is_empty()
            .then(|| self.base_svma.saturating_add(u64::from(row.start))))
    }

    /// The row that holds `svma`, and its block's offset in `code`.
    #[inline]
    fn row(&self, svma: u64) -> Result<Option<(usize, FoundRow)>, Error> {
        let address = svma.checked_sub(self.base_svma);
        let Some(address) = address.and_then(|address| u32::try_from(address).ok()) else {
            return Ok(None);
        };
        let Some(block) = self.blocks_until(address).checked_sub(1) else {
            return Ok(None);
        };
        let start = u32_at(self.starts, block * 4);
        let offset = u32_at(self.offsets, block * 4);
        let (Some(start), Some(offset)) = (start, offset) else {
            return Ok(None);
        };
        let row = self.row_in_block(offset as usize, start, address);
        let row = row.ok_or(Error::Damaged {
            offset: u64::from(offset),
        })?;
        Ok(row.map(|row| (offset as usize, row)))
    }

    /// Number of blocks that start at or before `address`.
    fn blocks_until(&self, address: u32) -> usize {
        let (mut low, mut high) = (0, self.starts.len() / 4);
        while low < high {
            let middle = low + (high - low) / 2;
            if u32_at(self.starts, middle * 4).is_some_and(|start| start <= address) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// `None` when the bytes contradict themselves.
    fn row_in_block(&self, at: usize, start: u32, wanted: u32) -> Option<Option<FoundRow>> {
        let mut numbers = Numbers {
            bytes: self.code,
            at,
        };
        let mut reached = u64::from(start);
        let (mut scope, mut known, mut file, mut line) = (at as i64, false, Some(NONE), 0i64);
        for _ in 0..numbers.next()? {
            let head = numbers.next()?;
            if head & ROW_SCOPE != 0 {
                match numbers.next()? {
                    0 => known = false,
                    delta => {
                        known = true;
                        scope = scope.checked_add(unzigzag(delta - 1))?;
                    }
                }
                file = None;
            }
            if head & ROW_FILE != 0 {
                file = Some(numbers.next_u32()?.wrapping_sub(1));
            }
            line = line.checked_add(unzigzag(numbers.next()?))?;
            let start = reached;
            reached = reached.checked_add(head >> 2)?;
            if u64::from(wanted) < reached {
                return Some(Some(FoundRow {
                    start: u32::try_from(start).ok()?,
                    scope: known.then_some(scope),
                    file,
                    line: u32::try_from(line).ok()?,
                }));
            }
        }
        Some(None)
    }

    /// The inlined functions outward from the scope of a row.
    fn chain(&self, block: usize, row: &FoundRow, places: &mut Vec<Place>) -> Option<()> {
        /// More inlined functions at one address than any compiler makes.
        const DEPTH: usize = 1024;
        let (mut file, mut line) = (row.file, row.line);
        let Some(scope) = row.scope else {
            places.push(place(NONE, file.unwrap_or(NONE), line));
            return Some(());
        };
        let mut at = usize::try_from(scope).ok().filter(|&at| at < block)?;
        for _ in 0..DEPTH {
            let mut numbers = Numbers {
                bytes: self.code,
                at,
            };
            let back = usize::try_from(numbers.next()?).ok()?;
            let function = numbers.next_u32()?;
            let named = function as usize * FUNCTION_BYTES + 4;
            let file_of_function = match function {
                NONE if places.is_empty() && file.is_none_or(|file| file == NONE) && line == 0 => {
                    // Only its extent is known.
                    return Some(());
                }
                NONE => NONE,
                _ => u32_at(self.functions, named)?,
            };
            places.push(place(function, file.unwrap_or(file_of_function), line));
            if back == 0 {
                return Some(());
            }
            let call = numbers.next()?;
            line = u32::try_from(call >> 1).ok()?;
            file = None;
            if call & CALL_FILE != 0 {
                file = Some(numbers.next_u32()?.wrapping_sub(1));
            }
            // Always backwards: no loops.
            at = at.checked_sub(back)?;
        }
        None
    }

    /// Names of a function that [`Table::lookup`] gave.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a number outside the table.
    pub fn function(&self, function: u32) -> Result<Function<'a>, Error> {
        let at = function as usize * FUNCTION_BYTES;
        let read = || {
            let name = u32_at(self.functions, at)?;
            let system_name = self.string(u64::from(name) * 2)?;
            let readable = self.string(u64::from(name) * 2 + 1)?;
            Some(Function {
                system_name: String::from_utf8_lossy(system_name),
                name: String::from_utf8_lossy(if readable.is_empty() {
                    system_name
                } else {
                    readable
                }),
                file: Some(u32_at(self.functions, at + 4)?).filter(|&f| f != NONE),
                line: Some(u32_at(self.functions, at + 8)?).filter(|&l| l != 0),
            })
        };
        read().ok_or(Error::Damaged { offset: at as u64 })
    }

    /// Path of a file, as the compiler wrote it down.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a number outside the table.
    pub fn file(&self, file: u32) -> Result<Cow<'a, str>, Error> {
        let string = self.string(u64::from(self.names) * 2 + u64::from(file));
        string.map(String::from_utf8_lossy).ok_or(Error::Damaged {
            offset: u64::from(file),
        })
    }

    fn string(&self, number: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(number).ok()?.checked_mul(4)?;
        let end = u32_at(self.string_ends, at)? as usize;
        let start = match at.checked_sub(4) {
            Some(before) => u32_at(self.string_ends, before)? as usize,
            None => 0,
        };
        self.strings.get(start..end)
    }

    /// The functions at `svma` with all their texts, the innermost inlined one first.
    ///
    /// # Errors
    /// As [`Table::lookup`].
    pub fn frames(&self, svma: u64) -> Result<Vec<crate::Frame>, Error> {
        let mut places = Vec::new();
        self.lookup(svma, &mut places)?;
        let frame = |place: &Place| {
            let function = place.function.map(|f| self.function(f)).transpose()?;
            let file = place.file.map(|f| self.file(f)).transpose()?;
            let (function, system_name) = function
                .map(|f| (f.name.into_owned(), f.system_name.into_owned()))
                .unwrap_or_default();
            Ok(crate::Frame {
                function,
                system_name,
                file: file.map(Cow::into_owned),
                line: place.line,
            })
        };
        places.iter().map(frame).collect()
    }
}

/// One row, as a block tells it.
struct FoundRow {
    /// Relative.
    start: u32,
    /// Offset in `code`.
    scope: Option<i64>,
    /// `None`: that of the scope's function.
    file: Option<u32>,
    line: u32,
}

fn place(function: u32, file: u32, line: u32) -> Place {
    Place {
        function: Some(function).filter(|&f| f != NONE),
        file: Some(file).filter(|&f| f != NONE),
        line: Some(line).filter(|&l| l != 0),
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(found.try_into().ok()?))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(found.try_into().ok()?))
}
