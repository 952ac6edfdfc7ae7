//! Why an image could not be read.

use std::fmt;

/// Why no table could be made from an image.
///
/// An image *without* unwind information is no error: its table is empty and every address in it
/// takes the frame-pointer rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with the ELF magic.
    NotElf,
    /// An ELF file of another class, byte order or machine than little-endian x86-64 or aarch64;
    /// carries `e_machine`.
    Machine(u16),
    /// A header at this byte offset points outside the image.
    Truncated {
        /// Offset of the header in the image.
        offset: u64,
    },
    /// Code lies more than 4 GiB above the image base, out of reach of 32-bit rows.
    TooLarge {
        /// Highest address of the image, relative to its base.
        span: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotElf => f.write_str("not an ELF image"),
            Error::Machine(m) => write!(
                f,
                "not a little-endian x86-64 or aarch64 ELF image (machine {m})"
            ),
            Error::Truncated { offset } => {
                write!(
                    f,
                    "the ELF header at offset {offset:#x} points outside the image"
                )
            }
            Error::TooLarge { span } => {
                write!(f, "image spans {span:#x} bytes; unwind rows reach 4 GiB")
            }
        }
    }
}

impl std::error::Error for Error {}
