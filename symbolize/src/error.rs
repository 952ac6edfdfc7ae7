//! Why an object could not be read.

use std::fmt;

/// Why an ELF object could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with the ELF magic.
    NotElf,
    /// A 32-bit or big-endian ELF file.
    Unsupported,
    /// A header table at this byte offset points outside the file.
    Truncated {
        /// Offset in the file.
        offset: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotElf => f.write_str("not an ELF file"),
            Error::Unsupported => f.write_str("not a 64-bit little-endian ELF file"),
            Error::Truncated { offset } => {
                write!(
                    f,
                    "the ELF header table at offset {offset:#x} points outside the file"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
