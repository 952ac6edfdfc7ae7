//! The bytes of a table: constants and variable-length numbers. docs/formats/symbol-table.md has
//! the whole layout.

/// First and last eight bytes of a table.
pub(crate) const MAGIC: [u8; 8] = *b"PLSYMTAB";
/// Layout of everything between the magics.
pub(crate) const VERSION: u32 = 1;
/// Magic, version, four bytes of zero.
pub(crate) const HEADER_BYTES: usize = 16;
/// Fields of the footer, each a `u64`, before version and magic.
pub(crate) const FOOTER_FIELDS: usize = 14;
/// The whole footer.
pub(crate) const FOOTER_BYTES: usize = FOOTER_FIELDS * 8 + HEADER_BYTES;
/// No function, file, scope or string.
pub(crate) const NONE: u32 = u32::MAX;
/// Bytes of a function's record: name, file, line.
pub(crate) const FUNCTION_BYTES: usize = 12;
/// Bytes of a segment's record: svma, file offset, bytes in the file.
pub(crate) const SEGMENT_BYTES: usize = 24;
/// A row begins another scope.
pub(crate) const ROW_SCOPE: u64 = 1;
/// A row names its file.
pub(crate) const ROW_FILE: u64 = 2;
/// A scope names the file of its call.
pub(crate) const CALL_FILE: u64 = 1;

/// Appends `value`, seven bits a byte, low ones first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small for numbers near zero on both sides.
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The number that [`zigzag`] was given.
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads numbers one after another.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Numbers<'_> {
    /// The next number; `None` outside the bytes or beyond 64 bits.
    #[inline]
    pub fn next(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next number, where it fits 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> Option<u32> {
        u32::try_from(self.next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut out = Vec::new();
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        values.iter().for_each(|&v| put(&mut out, v));
        let mut numbers = Numbers { bytes: &out, at: 0 };
        for v in values {
            assert_eq!(numbers.next(), Some(v));
        }
        assert_eq!(numbers.next(), None);
        for v in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(v)), v);
        }
    }

    #[test]
    fn a_number_without_end_is_none() {
        let mut numbers = Numbers {
            bytes: &[0xff; 32],
            at: 0,
        };
        assert_eq!(numbers.next(), None);
    }
}
