//! Protobuf's wire format over borrowed bytes, with the leniencies of google/pprof's reader: any
//! field number, overflowing bits of a ten-byte number ignored, no groups.

use crate::error::DecodeError;
use crate::fields::{BYTES, FIXED32, FIXED64};

pub type Fault = Box<DecodeError>;

/// Reads one message. Positions are those of the whole input: a nested message is a reader over
/// the same bytes, cut at its end.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, pos: 0 }
    }

    #[inline(always)]
    pub fn pos(&self) -> usize {
        self.pos
    }

    #[inline(always)]
    pub fn at_end(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    /// Bytes left to read.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.pos..]
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
        if let Some(word) = self.rest().first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                // The lowest set bit is the top bit of the last byte.
                let bits = ends.trailing_zeros() + 1;
                self.pos += bits as usize / 8;
                return Ok(gather(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.slow_varint()
    }

    #[cold]
    fn slow_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for (i, &byte) in self.rest().iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.pos += i + 1;
                return Ok(value);
            }
        }
        Err(self.fault("number cut off or longer than 10 bytes"))
    }

    /// The body of a length-delimited field, as a message.
    #[inline(always)]
    pub fn message(&mut self) -> Result<Reader<'a>, Fault> {
        let len = self.varint()?;
        let left = (self.bytes.len() - self.pos) as u64;
        if len > left {
            return Err(self.fault("length beyond the end"));
        }
        let end = self.pos + len as usize;
        let body = Reader {
            bytes: &self.bytes[..end],
            pos: self.pos,
        };
        self.pos = end;
        Ok(body)
    }

    /// Passes over the value of a field that is not of interest.
    #[inline]
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
        if self.bytes.len() - self.pos < count {
            return Err(self.fault("number cut off"));
        }
        self.pos += count;
        Ok(())
    }

    /// For a field of a message all whose fields up to `known` are numbers, after a key that is not
    /// that of a number: passes over it, or fails when it is one of those.
    #[cold]
    pub fn not_a_number(&mut self, key: u64, known: u64) -> Result<(), Fault> {
        self.skip(key)?;
        if (1..=known).contains(&(key >> 3)) {
            return Err(self.mismatch());
        }
        Ok(())
    }

    #[cold]
    pub fn mismatch(&self) -> Fault {
        self.fault("field of the wrong wire type")
    }

    #[cold]
    pub fn fault(&self, reason: &'static str) -> Fault {
        let offset = self.pos as u64;
        Box::new(DecodeError::Malformed { offset, reason })
    }
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
                assert!(reader.at_end());
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
