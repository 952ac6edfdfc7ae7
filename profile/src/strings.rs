//! One table of byte strings: an arena and offsets.

use std::borrow::Cow;

/// Index into a [`Strings`] table. Id 0 is always the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrId(pub u32);

impl StrId {
    /// The empty string.
    pub const EMPTY: StrId = StrId(0);

    /// The id as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Strings of up to this many bytes are copied as this many: most names of functions.
pub(crate) const SHORT: usize = 32;

/// A table of byte strings. Bytes, not `str`: profiles in the field carry names that are not UTF-8,
/// and these must survive.
#[derive(Clone, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// `offsets[i]..offsets[i + 1]` is string `i`; never empty.
    offsets: Vec<u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings::new()
    }
}

impl Strings {
    /// A table that holds only the empty string, id 0.
    pub fn new() -> Self {
        Strings {
            bytes: Vec::new(),
            offsets: vec![0, 0],
        }
    }

    /// A table without even the empty string, for a decoder that brings its own.
    pub(crate) fn bare() -> Self {
        Strings {
            bytes: Vec::new(),
            offsets: vec![0],
        }
    }

    /// Number of strings, the empty one included.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no string at all (not even the empty one).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all strings together.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of a string; empty for an id that is not in the table.
    #[inline]
    pub fn get(&self, id: StrId) -> &[u8] {
        let i = id.index();
        match (self.offsets.get(i), self.offsets.get(i + 1)) {
            (Some(&start), Some(&end)) => self
                .bytes
                .get(start as usize..end as usize)
                .unwrap_or_default(),
            _ => &[],
        }
    }

    /// The string as text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self, id: StrId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get(id))
    }

    /// All strings in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len() as u32).map(|i| self.get(StrId(i)))
    }

    /// Appends without looking for an equal string. The arena holds at most 4 GiB; what comes after
    /// is kept as empty strings.
    pub fn push(&mut self, bytes: &[u8]) -> StrId {
        let id = StrId(self.len() as u32);
        if let Ok(end) = u32::try_from(self.bytes.len() + bytes.len()) {
            self.bytes.extend_from_slice(bytes);
            self.offsets.push(end);
        } else {
            self.offsets.push(self.bytes.len() as u32);
        }
        id
    }

    /// Like [`push`](Self::push) of the first `len` bytes: a copy of fixed length needs no call.
    #[inline(always)]
    pub(crate) fn push_short(&mut self, bytes: &[u8; SHORT], len: usize) {
        let start = self.bytes.len();
        match u32::try_from(start + len) {
            Ok(end) if len <= bytes.len() => {
                self.bytes.extend_from_slice(bytes);
                self.bytes.truncate(start + len);
                self.offsets.push(end);
            }
            _ => {
                self.push(&bytes[..len.min(bytes.len())]);
            }
        }
    }

    pub(crate) fn reserve(&mut self, strings: usize, bytes: usize) {
        self.offsets.reserve(strings);
        self.bytes.reserve(bytes);
    }

    pub(crate) fn all_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.iter().map(String::from_utf8_lossy))
            .finish()
    }
}
