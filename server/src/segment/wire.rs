//! Numbers and strings as they stand in a segment: LEB128, zigzag, length-prefixed bytes.

/// Why a segment cannot be read. `offset` counts in the (inflated) section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file does not begin as a segment does.
    #[error("not a pilotlight segment (wrong magic)")]
    Magic,
    /// A later version wrote the file.
    #[error("segment format version {0} is not known to this server; use a newer one")]
    Version(u32),
    /// File shorter or longer than its header says.
    #[error("{what} has {have} bytes, its header says {want}")]
    Length {
        /// Which part of the file.
        what: &'static str,
        /// Bytes found.
        have: u64,
        /// Bytes announced.
        want: u64,
    },
    /// A checksum does not hold.
    #[error("checksum of {0} does not match its bytes")]
    Checksum(&'static str),
    /// A section does not inflate.
    #[error("section {0} does not inflate")]
    Inflate(&'static str),
    /// The checksum holds, but the content makes no sense.
    #[error("section {section}, offset {offset}: {what}")]
    Content {
        /// Section name.
        section: &'static str,
        /// Byte offset in the section.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

pub fn put_uint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_int(out: &mut Vec<u8>, value: i64) {
    put_uint(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    put_uint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Checked reader over one section.
pub struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    section: &'static str,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8], section: &'static str) -> Self {
        Self {
            data,
            at: 0,
            section,
        }
    }

    pub fn fail<T>(&self, what: &'static str) -> Result<T, Damage> {
        Err(Damage::Content {
            section: self.section,
            offset: self.at,
            what,
        })
    }

    #[inline]
    pub fn uint(&mut self) -> Result<u64, Damage> {
        if let Some(&byte) = self.data.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        self.long_uint()
    }

    fn long_uint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.data.get(self.at) else {
                return self.fail("cut inside a number");
            };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.fail("number longer than 64 bits")
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Damage> {
        let value = self.uint()?;
        u32::try_from(value).or_else(|_| self.fail("number longer than 32 bits"))
    }

    #[inline]
    pub fn int(&mut self) -> Result<i64, Damage> {
        let value = self.uint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A count of elements that take at least one byte each: never larger than what is left,
    /// so a damaged count cannot make us allocate more than the section is long.
    pub fn count(&mut self) -> Result<usize, Damage> {
        let value = self.uint()?;
        if value > (self.data.len() - self.at) as u64 {
            return self.fail("more elements announced than the section can hold");
        }
        Ok(value as usize)
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        match self.data.get(self.at..).and_then(|rest| rest.get(..len)) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => self.fail("cut inside bytes"),
        }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.count()?;
        self.take(len)
    }

    pub fn string(&mut self) -> Result<String, Damage> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.fail("label text is not UTF-8"),
        }
    }

    /// An index below `len`.
    #[inline]
    pub fn index(&mut self, len: usize, what: &'static str) -> Result<u32, Damage> {
        let value = self.u32()?;
        if value as usize >= len {
            return self.fail(what);
        }
        Ok(value)
    }

    pub fn end(&self) -> Result<(), Damage> {
        if self.at == self.data.len() {
            Ok(())
        } else {
            self.fail("bytes left over at the end")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were() {
        let mut out = Vec::new();
        let ints = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN];
        ints.iter().for_each(|&value| put_int(&mut out, value));
        put_uint(&mut out, u64::MAX);
        let mut reader = Reader::new(&out, "test");
        for value in ints {
            assert_eq!(reader.int(), Ok(value));
        }
        assert_eq!(reader.uint(), Ok(u64::MAX));
        assert_eq!(reader.end(), Ok(()));
        assert!(reader.uint().is_err());
    }
}
