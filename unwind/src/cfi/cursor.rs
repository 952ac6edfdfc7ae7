//! Reading DWARF primitives; every read is bounds-checked and says `None` at the end.

/// Pointer encodings of `.eh_frame` (`DW_EH_PE_*`).
const ABSOLUTE: u8 = 0x00;
const PC_RELATIVE: u8 = 0x10;
const DATA_RELATIVE: u8 = 0x30;
pub(crate) const OMIT: u8 = 0xff;

/// A position in a byte slice whose first byte has address `svma`.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    /// Address of `bytes[0]`.
    pub svma: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], svma: u64) -> Self {
        Cursor { bytes, at: 0, svma }
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let out = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(out)
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let b = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let b = self.u8()?;
            if shift < 64 {
                value |= u64::from(b & 0x7f) << shift;
            }
            shift += 7;
            if b & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    #[inline]
    pub fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0);
        loop {
            let b = self.u8()?;
            if shift < 64 {
                value |= i64::from(b & 0x7f) << shift;
            }
            shift += 7;
            if b & 0x80 == 0 {
                if shift < 64 && b & 0x40 != 0 {
                    value |= -1 << shift;
                }
                return Some(value);
            }
        }
    }

    /// Reads a pointer of encoding `encoding`; `data` is the base of data-relative ones.
    /// The indirect bit is ignored: only personality pointers carry it, and they are skipped.
    pub fn encoded(&mut self, encoding: u8, data: u64) -> Option<u64> {
        let here = self.svma.wrapping_add(self.at as u64);
        let base = match encoding & 0x70 {
            ABSOLUTE => 0,
            PC_RELATIVE => here,
            DATA_RELATIVE => data,
            _ => return None,
        };
        Some(base.wrapping_add(self.encoded_value(encoding)?))
    }

    /// Reads the value part of an encoded pointer, sign-extended, without its base.
    pub fn encoded_value(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64(),
            0x01 => self.uleb(),
            0x02 => self.u16().map(u64::from),
            0x03 => self.u32().map(u64::from),
            0x09 => self.sleb().map(|v| v as u64),
            0x0a => self.u16().map(|v| v as i16 as u64),
            0x0b => self.u32().map(|v| v as i32 as u64),
            _ => None,
        }
    }
}
