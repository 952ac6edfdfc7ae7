//! Protobuf's wire format over borrowed bytes, with the leniencies of google/pprof's reader: any
//! field number, overflowing bits of a ten-byte number ignored, no groups.

use crate::error::DecodeError;
use crate::fields::{BYTES, FIXED32, FIXED64};

pub type Fault = Box<DecodeError>;

/// Reads one message. Positions are those of the whole input: a nested message is a reader over
/// the same bytes with an earlier end.
///
/// A number may be read past the end of its message (eight bytes are loaded at once); that is found
/// when the reader is asked for [`more`](Self::more), before anything is made of the message.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader {
            bytes,
            pos: 0,
            end: bytes.len(),
        }
    }

    #[inline(always)]
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Whether there are more bytes.
    #[inline(always)]
    pub fn more(&self) -> Result<bool, Fault> {
        if self.pos < self.end {
            return Ok(true);
        }
        if self.pos == self.end {
            return Ok(false);
        }
        Err(self.fault("number cut off by the end of its message"))
    }

    /// Number of bytes left to read.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.end.saturating_sub(self.pos)
    }

    /// Bytes left to read.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.pos..self.end).unwrap_or_default()
    }

    /// As many bytes of the input from here on, be they of this message or behind it.
    #[inline(always)]
    pub fn next_bytes<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.bytes.get(self.pos..)?.first_chunk()
    }

    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        match self.bytes.get(self.pos) {
            Some(&byte) if byte < 0x80 => {
                self.pos += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(always)]
    fn long_varint(&mut self) -> Result<u64, Fault> {
        let loaded = self
            .bytes
            .get(self.pos..)
            .and_then(<[u8]>::first_chunk::<8>);
        if let Some(word) = loaded {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            // Two bytes are by far the commonest of the longer ones.
            if ends & 0x8000 != 0 {
                self.pos += 2;
                return Ok((word & 0x7f) | (word >> 1 & 0x3f80));
            }
            if ends != 0 {
                // The lowest set bit is the top bit of the last byte.
                let bits = ends.trailing_zeros() + 1;
                self.pos += bits as usize / 8;
                return Ok(gather(word & (u64::MAX >> (64 - bits))));
            }
        }
        let (value, len) = slow_varint(self.bytes, self.pos)?;
        self.pos += len;
        Ok(value)
    }

    /// Reads the rest as a packed list of numbers and appends them to `out`, which must have been
    /// found to have room for [`left`](Self::left) entries.
    #[inline(always)]
    pub fn packed<T: Copy + Default + From<u8>>(
        mut self,
        out: &mut Vec<T>,
        mut map: impl FnMut(u64) -> Result<T, Fault>,
    ) -> Result<(), Fault> {
        let bytes = self.rest();
        let before = out.len();
        if bytes.is_ascii() {
            // All numbers below 128, as ids of frequent locations are: a copy without branches.
            out.extend(bytes.iter().map(|&byte| T::from(byte)));
            return Ok(());
        }
        out.resize(before + bytes.len(), T::default());
        let mut count = 0;
        for entry in &mut out[before..] {
            if !self.more()? {
                break;
            }
            *entry = map(self.varint()?)?;
            count += 1;
        }
        out.truncate(before + count);
        self.more().map(|_| ())
    }

    /// The body of a length-delimited field, as a message.
    #[inline(always)]
    pub fn message(&mut self) -> Result<Reader<'a>, Fault> {
        let len = self.varint()?;
        let start = self.pos;
        if len > self.left() as u64 || start > self.end {
            return Err(self.fault("length beyond the end"));
        }
        self.pos += len as usize;
        Ok(Reader {
            bytes: self.bytes,
            pos: start,
            end: self.pos,
        })
    }

    /// Passes over the value of a field that is not of interest.
    #[inline(always)]
    pub fn skip(&mut self, key: u64) -> Result<(), Fault> {
        match key & 7 {
            crate::fields::VARINT => self.varint().map(|_| ()),
            BYTES => self.message().map(|_| ()),
            FIXED64 => self.skip_bytes(8),
            FIXED32 => self.skip_bytes(4),
            _ => Err(self.fault("unknown wire type")),
        }
    }

    fn skip_bytes(&mut self, count: usize) -> Result<(), Fault> {
        if self.left() < count {
            return Err(self.fault("number cut off"));
        }
        self.pos += count;
        Ok(())
    }

    /// For a field of a message all whose fields up to `known` are numbers, after a key that is not
    /// that of a number: the reader behind it, or a fault when it is one of those.
    // Cold functions take the reader by value, so that the hot ones can keep it in registers.
    #[cold]
    pub fn past_unknown(mut self, key: u64, known: u64) -> Result<Self, Fault> {
        self.skip(key)?;
        if (1..=known).contains(&(key >> 3)) {
            return Err(self.mismatch());
        }
        Ok(self)
    }

    #[cold]
    pub fn mismatch(self) -> Fault {
        self.fault("field of the wrong wire type")
    }

    #[inline(always)]
    pub fn fault(self, reason: &'static str) -> Fault {
        fault(self.pos, reason)
    }
}

#[cold]
fn fault(pos: usize, reason: &'static str) -> Fault {
    let offset = pos as u64;
    Box::new(DecodeError::Malformed { offset, reason })
}

/// A number near the end of the input or longer than eight bytes: value and length.
#[cold]
fn slow_varint(bytes: &[u8], pos: usize) -> Result<(u64, usize), Fault> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().skip(pos).take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok((value, i + 1));
        }
    }
    Err(fault(pos, "number cut off or longer than 10 bytes"))
}

/// Joins the low seven bits of each byte.
#[inline(always)]
fn gather(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
    (word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    #[test]
    fn numbers_of_every_length_are_read_with_and_without_bytes_behind_them() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut bytes = encode(value);
                let len = bytes.len();
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.varint().unwrap(), value);
                assert!(!reader.more().unwrap());
                bytes.extend([0xff; 16]);
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.varint().unwrap(), value);
                assert_eq!(reader.pos(), len);
            }
        }
    }

    #[test]
    fn ten_byte_numbers_drop_overflowing_bits_and_eleven_bytes_are_refused() {
        let ten = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(Reader::new(&ten).varint().unwrap(), u64::MAX);
        let padded = [0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(Reader::new(&padded).varint().unwrap(), 5);
        let eleven = [0x80; 11];
        assert!(Reader::new(&eleven).varint().is_err());
        assert!(Reader::new(&[0x80, 0x80]).varint().is_err());
    }
}
