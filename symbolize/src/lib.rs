//! Addresses to functions, files and lines, from ELF symbol tables and DWARF.
//!
//! ```
//! use pilotlight_symbolize::Object;
//!
//! let object = Object::parse(std::fs::read("/proc/self/exe")?)?;
//! let text = object.segments().iter().find(|s| s.executable).ok_or("no code")?;
//! for frame in object.frames(text.svma + 0x400) {
//!     println!("{} at {}:{}", frame.function, frame.file.unwrap_or_default(),
//!         frame.line.unwrap_or(0));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who is responsible for what
//! - **This crate** is sans-I/O: it gets bytes and answers addresses. It copies no file, reads
//!   symbol table and DWARF when first asked, and survives damaged input.
//! - **The caller** finds the file, maps or reads it, turns addresses of a process into stated
//!   ones (svma) by module base or by [`Object::file_offset_to_svma`], and subtracts 1 from return
//!   addresses.
//!
//! # Map
//! | module | job |
//! |---|---|
//! | `elf` | sections, segments, build id |
//! | `symbols` | function symbols by address |
//! | `dwarf` | lines and inlined frames, over addr2line |
//! | `object` | all of one file |
//! | `memory` | how much all of it may hold |
//! | `tables` (feature `tables`) | lookup tables of whole files, built once, read from a memory map |
//!
//! # Blind spots
//! [`Object`]: C++ names stay mangled; split DWARF, what dwz shared and zstd-compressed sections
//! are not read, so such code has symbol-table names only. `tables` reads all of these.

mod dwarf;
mod elf;
mod error;
mod memory;
mod object;
mod symbols;
#[cfg(feature = "tables")]
pub mod tables;

pub use elf::Segment;
pub use error::Error;
pub use memory::Memory;
pub use object::Object;
pub use symbols::Symbol;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Demangled name, without Rust's hash.
    pub function: String,
    /// Name as the linker knows it.
    pub system_name: String,
    /// Source file, as the compiler wrote it down.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
}

impl Frame {
    fn new(name: &[u8], file: Option<String>, line: Option<u32>) -> Frame {
        let system_name = String::from_utf8_lossy(name).into_owned();
        Frame {
            function: demangle(&system_name),
            system_name,
            file,
            line,
        }
    }
}

/// The readable form of a Rust symbol, without its hash; other names come back unchanged.
///
/// ```
/// assert_eq!(pilotlight_symbolize::demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
///            "core::fmt::write");
/// assert_eq!(pilotlight_symbolize::demangle("malloc"), "malloc");
/// ```
pub fn demangle(name: &str) -> String {
    // ThinLTO and some linkers append suffixes such as `.llvm.123`; rustc-demangle knows them.
    match rustc_demangle::try_demangle(name) {
        Ok(demangled) => format!("{demangled:#}"),
        Err(_) => name.to_owned(),
    }
}
