//! An ELF image seen through its program headers only.
//!
//! Section headers are not mapped at run time and may be stripped, so nothing here needs them: the
//! same code reads file bytes and mapped memory (vDSO, deleted files).

use crate::Error;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const EHDR_SIZE: usize = 64;
const PHDR_SIZE: usize = 56;
const NT_GNU_BUILD_ID: u32 = 3;

/// One ELF64 program header, laid out as in the file and in `dl_phdr_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramHeader {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`: 1 execute, 2 write, 4 read.
    pub flags: u32,
    /// `p_offset`, bytes from the start of the file.
    pub offset: u64,
    /// `p_vaddr`, a stated virtual address (svma).
    pub vaddr: u64,
    /// `p_paddr`, unused.
    pub paddr: u64,
    /// `p_filesz` in bytes.
    pub file_size: u64,
    /// `p_memsz` in bytes.
    pub memory_size: u64,
    /// `p_align` in bytes.
    pub align: u64,
}

/// One `PT_LOAD` with the bytes behind it.
pub(crate) struct Load<'a> {
    pub svma: u64,
    pub memory_size: u64,
    pub file_offset: u64,
    pub executable: bool,
    /// Empty for a writable segment read from memory: nobody may hold a slice of those.
    pub bytes: &'a [u8],
}

/// The loadable parts of an image and the headers that point into them.
pub(crate) struct Image<'a> {
    pub loads: Vec<Load<'a>>,
    eh_frame_hdr: Option<u64>,
    notes: Vec<(u64, u64)>,
}

impl<'a> Image<'a> {
    /// Reads an image laid out as a file.
    pub fn from_file(bytes: &'a [u8]) -> Result<Image<'a>, Error> {
        let (offset, count) = program_header_table(bytes)?;
        let end = offset.saturating_add(count * PHDR_SIZE);
        let table = bytes.get(offset..end).ok_or(Error::Truncated {
            offset: offset as u64,
        })?;
        let headers = table.chunks_exact(PHDR_SIZE).map(read_program_header);
        Ok(Image::new(headers, |h| {
            let start = usize::try_from(h.offset).ok()?;
            let end = start.checked_add(usize::try_from(h.file_size).ok()?)?;
            // A truncated file still gives what it has.
            bytes.get(start..end.min(bytes.len()))
        }))
    }

    /// Reads an image as the loader mapped it.
    ///
    /// # Safety
    /// The `PT_LOAD` segments of `headers` must be mapped at `bias + vaddr`, readable where not
    /// writable, and stay so for `'a`.
    pub unsafe fn from_memory(bias: u64, headers: &[ProgramHeader]) -> Image<'a> {
        Image::new(headers.iter().copied(), |h| {
            if h.flags & PF_W != 0 {
                return None;
            }
            let start = bias.wrapping_add(h.vaddr) as *const u8;
            // SAFETY: the caller promises that the segment is mapped, readable and not written.
            Some(unsafe { std::slice::from_raw_parts(start, h.file_size as usize) })
        })
    }

    fn new(
        headers: impl Iterator<Item = ProgramHeader>,
        mut bytes_of: impl FnMut(&ProgramHeader) -> Option<&'a [u8]>,
    ) -> Image<'a> {
        let mut image = Image {
            loads: Vec::new(),
            eh_frame_hdr: None,
            notes: Vec::new(),
        };
        for h in headers {
            match h.kind {
                PT_LOAD if h.memory_size > 0 => image.loads.push(Load {
                    svma: h.vaddr,
                    memory_size: h.memory_size,
                    file_offset: h.offset,
                    executable: h.flags & PF_X != 0,
                    bytes: bytes_of(&h).unwrap_or(&[]),
                }),
                PT_NOTE => image.notes.push((h.vaddr, h.file_size)),
                PT_GNU_EH_FRAME => image.eh_frame_hdr = Some(h.vaddr),
                _ => {}
            }
        }
        image
    }

    /// Lowest mapped address, rounded down to a page: the zero of relative addresses.
    pub fn base_svma(&self) -> u64 {
        self.loads.iter().map(|l| l.svma).min().unwrap_or(0) & !0xfff
    }

    /// Bytes from `svma` to the end of the segment that holds it.
    pub fn bytes_at(&self, svma: u64) -> Option<&'a [u8]> {
        let load = self.loads.iter().find(|l| {
            svma.checked_sub(l.svma)
                .is_some_and(|d| d < l.bytes.len() as u64)
        })?;
        load.bytes.get((svma - load.svma) as usize..)
    }

    /// The segment that holds `svma`.
    pub fn load_at(&self, svma: u64) -> Option<&Load<'a>> {
        self.loads
            .iter()
            .find(|l| svma.checked_sub(l.svma).is_some_and(|d| d < l.memory_size))
    }

    /// `PT_GNU_EH_FRAME`: its address.
    pub fn eh_frame_hdr(&self) -> Option<u64> {
        self.eh_frame_hdr
    }

    /// Highest executable address.
    pub fn text_end(&self) -> u64 {
        let end = |l: &Load<'_>| l.svma.saturating_add(l.memory_size);
        self.loads
            .iter()
            .filter(|l| l.executable)
            .map(end)
            .max()
            .unwrap_or(0)
    }

    /// The GNU build id.
    pub fn build_id(&self) -> Option<&'a [u8]> {
        self.notes.iter().find_map(|&(svma, size)| {
            let bytes = self.bytes_at(svma)?;
            build_id_note(bytes.get(..size as usize)?)
        })
    }
}

/// Checks the file header; returns offset and count of program headers.
fn program_header_table(bytes: &[u8]) -> Result<(usize, usize), Error> {
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err(Error::NotElf);
    }
    let header = bytes
        .get(..EHDR_SIZE)
        .ok_or(Error::Truncated { offset: 0 })?;
    let machine = u16_at(header, 18);
    if header[4] != 2 || header[5] != 1 || ![EM_X86_64, EM_AARCH64].contains(&machine) {
        return Err(Error::Machine(machine));
    }
    let offset = u64_at(header, 32);
    if usize::from(u16_at(header, 54)) != PHDR_SIZE && u16_at(header, 56) != 0 {
        return Err(Error::Truncated { offset });
    }
    let offset = usize::try_from(offset).map_err(|_| Error::Truncated { offset })?;
    Ok((offset, usize::from(u16_at(header, 56))))
}

/// Program headers of an image mapped whole (vDSO), from its ELF header in memory.
///
/// # Safety
/// `start` must point at an ELF header whose program headers are mapped behind it.
pub(crate) unsafe fn mapped_headers(start: *const u8) -> Result<Vec<ProgramHeader>, Error> {
    // SAFETY: the caller promises a mapped ELF header.
    let header = unsafe { std::slice::from_raw_parts(start, EHDR_SIZE) };
    let (offset, count) = program_header_table(header)?;
    // SAFETY: the caller promises that the program headers are mapped behind the header.
    let table = unsafe { std::slice::from_raw_parts(start.add(offset), count * PHDR_SIZE) };
    Ok(table
        .chunks_exact(PHDR_SIZE)
        .map(read_program_header)
        .collect())
}

fn read_program_header(bytes: &[u8]) -> ProgramHeader {
    ProgramHeader {
        kind: u32_at(bytes, 0),
        flags: u32_at(bytes, 4),
        offset: u64_at(bytes, 8),
        vaddr: u64_at(bytes, 16),
        paddr: u64_at(bytes, 24),
        file_size: u64_at(bytes, 32),
        memory_size: u64_at(bytes, 40),
        align: u64_at(bytes, 48),
    }
}

/// Finds the GNU build id among ELF notes.
fn build_id_note(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let name_size = u32_at(notes, 0) as usize;
        let data_size = u32_at(notes, 4) as usize;
        let data = 12usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let end = data.checked_add(data_size)?;
        if u32_at(notes, 8) == NT_GNU_BUILD_ID && notes.get(12..12 + name_size)? == b"GNU\0" {
            return notes.get(data..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        out.copy_from_slice(found);
    }
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}
