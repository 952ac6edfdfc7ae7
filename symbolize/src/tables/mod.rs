//! Lookup tables: all that a file knows of its addresses, built once, then read from a memory map.
//!
//! ```
//! use pilotlight_symbolize::tables::{Limits, Sources, Table, build};
//!
//! let object = std::fs::read("/proc/self/exe")?;
//! let mut bytes = Vec::new();
//! let report = build(&Sources::of(&object), &Limits::default(), &mut bytes)?;
//! let table = Table::open(&bytes)?;
//! for frame in table.frames(0x1234)? {
//!     println!("{} at {:?}:{:?}", frame.function, frame.file, frame.line);
//! }
//! assert_eq!(report.table_bytes, bytes.len() as u64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`inspect`] tells what a file is from its headers; [`build`] reads DWARF, Go's tables and symbol
//! tables, in this order for each address, and writes the table (`docs/formats/symbol-table.md`);
//! [`Table`] answers addresses. Files are hostile input: run [`build`] in a process that may be
//! killed.
//!
//! | module | job |
//! |---|---|
//! | `inspect` | ids, quality, kind |
//! | `sections`, `split` | debug sections, inflated; split DWARF |
//! | `units` | functions, inlined calls and lines of one unit as rows; `names`, `lines`, `own`, `flatten` help |
//! | `symbols`, `go` | what else names addresses |
//! | `extents` | where nameless functions begin |
//! | `coverage` | who was first to name an address |
//! | `write`, `read`, `format` | the table's bytes |

mod code;
mod coverage;
mod demangle;
mod extents;
mod flatten;
mod format;
mod go;
mod inspect;
mod lines;
mod mini;
mod names;
mod own;
mod read;
mod sections;
mod split;
mod symbols;
mod units;
mod write;

pub use inspect::{Inspection, Kind, Quality, htlhash, inspect};
pub use read::{Function, Place, Table};

use crate::Error;
use crate::elf::Elf;
use code::Code;
use sections::Sections;
use split::Split;
use std::io::Write;
use units::Units;
use write::{Row, Scope, Writer};

/// The bytes that a table is built from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// The executable, the library or its debug file.
    pub object: &'a [u8],
    /// The file of [`Inspection::supplementary`].
    pub supplementary: Option<&'a [u8]>,
    /// The `.dwp` file.
    pub package: Option<&'a [u8]>,
    /// `.dwo` files, each matched by its id.
    pub split: &'a [&'a [u8]],
}

impl<'a> Sources<'a> {
    /// One file alone.
    #[must_use]
    pub fn of(object: &'a [u8]) -> Sources<'a> {
        Sources {
            object,
            ..Sources::default()
        }
    }
}

/// What a build may use.
pub struct Limits {
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes of all compressed sections together, once inflated.
    pub inflated_bytes: u64,
    /// Called every 32 MiB of debug information: a caller that mapped the file drops its pages
    /// here (`madvise` with `MADV_DONTNEED`), so that they do not add up.
    pub relief: Option<Box<dyn Fn()>>,
}

/// Debug information between two calls of [`Limits::relief`].
const RELIEF_BYTES: usize = 32 << 20;

impl Limits {
    fn relieve(&self) {
        if let Some(relief) = &self.relief {
            relief();
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            table_bytes: 4 << 30,
            inflated_bytes: 8 << 30,
            relief: None,
        }
    }
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits")
            .field("table_bytes", &self.table_bytes)
            .field("inflated_bytes", &self.inflated_bytes)
            .finish_non_exhaustive()
    }
}

/// What [`build`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the table was built from.
    pub quality: Quality,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Ranges of addresses with one answer.
    pub rows: u64,
    /// Units of DWARF.
    pub units: u64,
    /// Units that could not be read to their end.
    pub damaged_units: u64,
    /// Units whose other half was among the sources.
    pub split_units: u64,
    /// Units whose other half was not: lines only.
    pub missing_split_units: u64,
    /// Functions that were cut because their ranges were more than the file could hold.
    pub lost_ranges: u64,
    /// Symbols of functions.
    pub symbols: u64,
    /// Ranges of which only the function's extent is known.
    pub extents: u64,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            quality: Quality::Nothing,
            table_bytes: 0,
            rows: 0,
            units: 0,
            damaged_units: 0,
            split_units: 0,
            missing_split_units: 0,
            lost_ranges: 0,
            symbols: 0,
            extents: 0,
        }
    }
}

/// One executable segment, as the table keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment32 {
    pub svma: u64,
    pub file_offset: u64,
    pub file_size: u64,
}

impl Segment32 {
    fn read(bytes: &[u8]) -> Segment32 {
        let field = |i: usize| read::u64_at(bytes, i * 8).unwrap_or(0);
        Segment32 {
            svma: field(0),
            file_offset: field(1),
            file_size: field(2),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        for field in [self.svma, self.file_offset, self.file_size] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
}

/// Builds the table of a file. Nothing of `sources` is copied as a whole: memory holds names'
/// places, an index and one unit at a time, and compressed sections inflated.
///
/// # Errors
/// When the object is no ELF file of our kind, tells nothing ([`Error::NoSymbols`]), asks for more
/// than `limits`, or `out` fails. Damaged DWARF is no error: [`Report`] counts it.
pub fn build(sources: &Sources<'_>, limits: &Limits, out: &mut dyn Write) -> Result<Report, Error> {
    let elf = Elf::parse(sources.object)?;
    let code = Code::of(&elf);
    if inspect::kind(&elf) == Kind::Relocatable {
        return Err(Error::Unsupported);
    }
    if code.is_empty() {
        return Err(Error::NoSymbols);
    }
    let mut left_bytes = limits.inflated_bytes;
    let parse = |bytes: Option<&[u8]>| bytes.map(Elf::parse).transpose();
    let (sup_elf, package_elf) = (parse(sources.supplementary)?, parse(sources.package)?);
    let split_elfs: Vec<Elf> = sources
        .split
        .iter()
        .map(|b| Elf::parse(b))
        .collect::<Result<_, _>>()?;
    let mut load = |bytes, elf| Sections::load(bytes, elf, limits, &mut left_bytes);
    let main = load(sources.object, &elf)?;
    let supplementary = match (sources.supplementary, &sup_elf) {
        (Some(bytes), Some(elf)) => Some(load(bytes, elf)?),
        _ => None,
    };
    let package = match (sources.package, &package_elf) {
        (Some(bytes), Some(elf)) => Some(load(bytes, elf)?),
        _ => None,
    };
    let split: Vec<Sections<'_>> = sources
        .split
        .iter()
        .zip(&split_elfs)
        .map(|(bytes, elf)| load(bytes, elf))
        .collect::<Result<_, _>>()?;
    let mini = mini::Mini::load(sources.object, &elf, &mut left_bytes);
    let go = go::Program::find(sources.object, &elf);

    let mut files = vec![(sources.object, &elf)];
    files.extend(mini.as_ref().map(|m| (&*m.bytes, &m.elf)));
    let symbols = symbols::Names::read(&files, &code);
    let mut dwarf = main.dwarf();
    if let Some(supplementary) = &supplementary {
        dwarf.set_sup(supplementary.dwarf());
    }
    let split = Split::new(package.as_ref(), &split);
    let mut writer = Writer::new(out, limits)?;
    let mut units = Units::new(&dwarf, &split, &code, &symbols, limits);
    units.read(&mut writer, limits)?;
    let Units {
        mut coverage,
        mut report,
        ..
    } = units;
    let from_dwarf = writer.rows;
    // Where there is DWARF it tells the same, and exact instances of generic functions.
    if let Some(go) = go.as_ref().filter(|_| from_dwarf == 0) {
        go.read(&code, &mut coverage, &mut writer)?;
    }
    let from_go = writer.rows - from_dwarf;
    rest(&symbols, &mut coverage, &mut writer)?;
    report.extents = extents::rest(sources.object, &elf, &code, &mut coverage, &mut writer)?;
    let found = inspect::quality(sources.object, &elf);
    report.quality = match found {
        Quality::Full | Quality::Split if from_dwarf > 0 => found,
        _ if from_go > 0 => Quality::Pclntab,
        Quality::Full | Quality::Split | Quality::Pclntab => Quality::Symtab,
        symbols => symbols,
    };
    report.symbols = symbols.len() as u64;
    report.rows = writer.rows;
    if report.rows == 0 {
        return Err(Error::NoSymbols);
    }
    report.table_bytes = writer.finish(code.base_svma, &code.segments, report.quality)?;
    Ok(report)
}

/// What only symbol tables name.
fn rest<'a>(
    symbols: &symbols::Names<'a>,
    coverage: &mut coverage::Coverage,
    writer: &mut Writer<'a, '_>,
) -> Result<(), Error> {
    let mut scopes: Vec<Scope> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    for (piece, name) in symbols.pieces() {
        scopes.push(Scope::of(writer.function(name, format::NONE, 0)));
        rows.push(Row {
            start: piece.start,
            end: piece.end,
            scope: scopes.len() as u32 - 1,
            file: format::NONE,
            line: 0,
        });
    }
    units::emit(&rows, &mut scopes, coverage, writer)
}
