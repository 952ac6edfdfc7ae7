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
    /// The bytes are no lookup table.
    NotATable,
    /// A lookup table of a version that this program does not read: build it again.
    TableVersion {
        /// The version found.
        version: u32,
    },
    /// A lookup table contradicts itself at this byte offset: build it again.
    Damaged {
        /// Offset in the table, or in the part of it that was read.
        offset: u64,
    },
    /// A compressed section of the file, at this byte offset, cannot be inflated.
    Inflate {
        /// Offset in the file.
        offset: u64,
    },
    /// A file asks for more than it may have.
    Limit {
        /// What there was too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// The table could not be written; the text is the system's.
    Write(String),
    /// The file names no function and no line.
    NoSymbols,
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
            Error::NotATable => f.write_str("not a lookup table"),
            Error::TableVersion { version } => {
                write!(f, "a lookup table of version {version}: build it again")
            }
            Error::Damaged { offset } => {
                write!(
                    f,
                    "the lookup table is damaged at {offset:#x}: build it again"
                )
            }
            Error::Inflate { offset } => {
                write!(f, "the compressed section at offset {offset:#x} is damaged")
            }
            Error::Limit { what, limit } => write!(f, "more {what} than {limit}"),
            Error::Write(error) => write!(f, "cannot write the lookup table: {error}"),
            Error::NoSymbols => {
                f.write_str("the file has no symbols: no debug information, no symbol table")
            }
        }
    }
}

impl std::error::Error for Error {}
