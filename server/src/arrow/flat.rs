//! Tables of FlatBuffers, read in place: each offset is checked before it is followed.

use super::Fault;

/// A table, or a struct of a vector: a place in the bytes of a message.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where its list of places is, and how many bytes that has.
    places: (usize, usize),
}

/// A vector: where its first element is, and how many there are.
#[derive(Clone, Copy)]
pub struct Vector<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of elements.
    pub len: usize,
}

fn broken() -> Fault {
    Fault::new("an offset of the metadata leads out of it")
}

/// `N` bytes at `at`.
fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Fault> {
    let end = at.checked_add(N).ok_or_else(broken)?;
    let found = bytes.get(at..end).and_then(|word| word.try_into().ok());
    found.ok_or_else(broken)
}

/// Follows the offset at `at`, which is forward from there.
fn follow(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    let by = u32::from_le_bytes(word(bytes, at)?) as usize;
    at.checked_add(by).ok_or_else(broken)
}

impl<'a> Table<'a> {
    /// The table that a message begins with.
    pub fn root(bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Self, Fault> {
        let back = i64::from(i32::from_le_bytes(word(bytes, at)?));
        let start = usize::try_from(at as i64 - back).map_err(|_| broken())?;
        let len = usize::from(u16::from_le_bytes(word(bytes, start)?));
        Ok(Self {
            bytes,
            at,
            places: (start, len),
        })
    }

    /// Where field `slot` is, if it is there.
    fn place(&self, slot: usize) -> Result<Option<usize>, Fault> {
        let (start, len) = self.places;
        let entry = 4 + 2 * slot;
        if entry + 2 > len {
            return Ok(None);
        }
        match u16::from_le_bytes(word(self.bytes, start + entry)?) {
            0 => Ok(None),
            by => Ok(Some(self.at + usize::from(by))),
        }
    }

    fn value<const N: usize>(&self, slot: usize) -> Result<Option<[u8; N]>, Fault> {
        let place = self.place(slot)?;
        place.map(|at| word(self.bytes, at)).transpose()
    }

    /// A byte, 0 when it is not there.
    pub fn u8(&self, slot: usize) -> Result<u8, Fault> {
        Ok(self.value::<1>(slot)?.map_or(0, |word| word[0]))
    }

    /// A number of 16 bits.
    pub fn i16(&self, slot: usize) -> Result<i16, Fault> {
        Ok(self.value(slot)?.map_or(0, i16::from_le_bytes))
    }

    /// A number of 32 bits.
    pub fn i32(&self, slot: usize) -> Result<i32, Fault> {
        Ok(self.value(slot)?.map_or(0, i32::from_le_bytes))
    }

    /// A number of 64 bits.
    pub fn i64(&self, slot: usize) -> Result<i64, Fault> {
        Ok(self.value(slot)?.map_or(0, i64::from_le_bytes))
    }

    /// Another table.
    pub fn table(&self, slot: usize) -> Result<Option<Table<'a>>, Fault> {
        let Some(at) = self.place(slot)? else {
            return Ok(None);
        };
        Table::at(self.bytes, follow(self.bytes, at)?).map(Some)
    }

    /// A vector of elements of `width` bytes; none when it is not there.
    pub fn vector(&self, slot: usize, width: usize) -> Result<Vector<'a>, Fault> {
        let bytes = self.bytes;
        let Some(at) = self.place(slot)? else {
            return Ok(Vector {
                bytes,
                at: 0,
                len: 0,
            });
        };
        let at = follow(bytes, at)?;
        let len = u32::from_le_bytes(word(bytes, at)?) as usize;
        let end = len.checked_mul(width).and_then(|n| n.checked_add(at + 4));
        match end {
            Some(end) if end <= bytes.len() => Ok(Vector {
                bytes,
                at: at + 4,
                len,
            }),
            _ => Err(broken()),
        }
    }

    /// A text; empty when it is not there.
    pub fn text(&self, slot: usize) -> Result<String, Fault> {
        let vector = self.vector(slot, 1)?;
        let bytes = &self.bytes[vector.at..vector.at + vector.len];
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl<'a> Vector<'a> {
    /// Element `index` of a vector of tables.
    pub fn table(&self, index: usize) -> Result<Table<'a>, Fault> {
        Table::at(self.bytes, follow(self.bytes, self.at + 4 * index)?)
    }

    /// The number at byte `at` of the vector.
    pub fn i64(&self, at: usize) -> Result<i64, Fault> {
        word(self.bytes, self.at + at).map(i64::from_le_bytes)
    }
}
