//! Lines and inlined frames from DWARF, borrowed from the object's bytes.

use crate::elf::{Elf, Fields, Section};
use addr2line::{Context, gimli};
use gimli::{EndianSlice, LittleEndian};
use std::io::Read;
use std::sync::Mutex;

type Slice = EndianSlice<'static, LittleEndian>;

/// A frame as DWARF tells it.
pub(crate) struct Found {
    pub name: Option<Vec<u8>>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// A parsed DWARF context. It borrows from the object's bytes and from `_inflated`, both of which
/// outlive it: fields drop in order, and [`crate::Object`] drops this before its bytes.
pub(crate) struct Dwarf {
    context: Mutex<Context<Slice>>,
    _inflated: Vec<Box<[u8]>>,
}

impl Dwarf {
    /// `None` when there is no usable DWARF.
    ///
    /// # Safety
    /// `bytes` must stay in place and unchanged until the result is dropped.
    pub unsafe fn parse(bytes: &[u8], elf: &Elf) -> Option<Dwarf> {
        elf.section(".debug_info").filter(|s| !s.file.is_empty())?;
        let mut inflated: Vec<Box<[u8]>> = Vec::new();
        let mut section = |id: gimli::SectionId| {
            let Some(section) = elf.section(id.name()) else {
                return EndianSlice::default();
            };
            let raw = &bytes[section.file.clone()];
            let data: &[u8] = if section.compressed {
                inflated.push(inflate(raw, section).unwrap_or_default());
                inflated.last().map_or(&[], |b| b)
            } else {
                raw
            };
            // SAFETY: `bytes` outlives the result by this function's contract; the contents of a
            // boxed slice do not move when the vector of boxes grows, and are kept with the
            // context that borrows them.
            let data = unsafe { std::slice::from_raw_parts(data.as_ptr(), data.len()) };
            EndianSlice::new(data, LittleEndian)
        };
        let load = |id| Ok::<Slice, gimli::Error>(section(id));
        let dwarf = gimli::Dwarf::load(load).ok()?;
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Dwarf {
            context: Mutex::new(context),
            _inflated: inflated,
        })
    }

    /// Frames at `svma`, innermost first; empty when DWARF does not know the address.
    pub fn frames(&self, svma: u64) -> Vec<Found> {
        // A panic inside addr2line leaves only unfilled caches behind.
        let context = self
            .context
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut found = Vec::new();
        // Split DWARF is not loaded: skeleton units still give lines.
        let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location;
            found.push(Found {
                name: frame.function.map(|f| f.name.slice().to_vec()),
                file: location.as_ref().and_then(|l| l.file).map(str::to_owned),
                line: location.and_then(|l| l.line),
            });
        }
        found
    }
}

/// `SHF_COMPRESSED` with zlib (Go's default); zstd would need a C build or another crate.
fn inflate(raw: &[u8], _section: &Section) -> Option<Box<[u8]>> {
    const ZLIB: u32 = 1;
    const HEADER: usize = 24;
    let header = Fields(raw);
    if header.u32(0) != ZLIB {
        return None;
    }
    // Deflate cannot exceed 1,032:1, so a lying size reserves and inflates no more than that.
    let most = (raw.len() as u64).saturating_mul(1032);
    let size = header.u64(8).min(most);
    let mut out = Vec::new();
    let reader = flate2::read::ZlibDecoder::new(raw.get(HEADER..)?);
    reader.take(size).read_to_end(&mut out).ok()?;
    Some(out.into())
}
