//! The parts of an ELF file that unwinding needs, at their places in a buffer as long as the file.
//!
//! Files of a gigabyte are mostly debug sections. The buffer is fresh memory: what is not read costs nothing. It is read
//! rather than mapped, since a process that truncates its file would end the agent by SIGBUS.

use crate::limits;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

/// 64 bits, little-endian.
const MAGIC: &[u8; 6] = b"\x7fELF\x02\x01";
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const EHDR: usize = 64;
const PHDR: usize = 56;

/// Zeroed memory as long as a file, of which parts were read.
pub(super) struct Sparse {
    start: NonNull<u8>,
    length: usize,
}

impl Sparse {
    fn new(length: usize) -> io::Result<Sparse> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory.
        let mapped = unsafe { libc::mmap(null_mut(), length, access, flags, -1, 0) };
        let start = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error)?;
        Ok(Sparse { start, length })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this length, initialised by the kernel, and borrowed as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Reads `range` of the file to its place; a file that ended early leaves zeros.
    fn fill(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let end = range.end.min(self.length as u64);
        let mut at = range.start;
        while at < end {
            // SAFETY: inside the mapping, of which nobody else holds a slice: `&mut self`.
            let read = unsafe {
                let to = self.start.as_ptr().add(at as usize);
                let count = (end - at) as usize;
                libc::pread(file.as_raw_fd(), to.cast(), count, at as libc::off_t)
            };
            match read {
                0 => break,
                read if read > 0 => at += read as u64,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; slices of it borrowed `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The file begins as a 64-bit ELF file does.
pub(super) fn is_elf(file: &File) -> Result<(), String> {
    let mut start = [0; 6];
    let read = file.read_exact_at(&mut start, 0);
    match read.is_ok() && start == *MAGIC {
        true => Ok(()),
        false => Err("no 64-bit ELF file".to_owned()),
    }
}

/// Headers, notes, and the segment that holds `.eh_frame`.
pub(super) fn read(file: &File, size: u64) -> Result<Sparse, String> {
    let length = usize::try_from(size).ok().filter(|&length| length >= EHDR);
    let length = length.ok_or("too short for an ELF file")?;
    let mut sparse = Sparse::new(length).map_err(|error| error.to_string())?;
    let mut fill = |range| sparse.fill(file, range).map_err(|error| error.to_string());
    fill(0..EHDR as u64)?;
    let Some((offset, count)) = header_table(sparse.bytes()) else {
        return Err("no 64-bit ELF file".to_owned());
    };
    let table = offset..offset.saturating_add((count * PHDR) as u64);
    sparse
        .fill(file, table.clone())
        .map_err(|error| error.to_string())?;
    let parts = parts(sparse.bytes(), table);
    let sum: u64 = parts.iter().map(|part| part.end - part.start).sum();
    if sum > limits::FILE_BYTES {
        return Err(format!(
            "unwinding needs {sum} bytes of it, {} are allowed",
            limits::FILE_BYTES
        ));
    }
    for part in parts {
        sparse.fill(file, part).map_err(|error| error.to_string())?;
    }
    Ok(sparse)
}

fn header_table(bytes: &[u8]) -> Option<(u64, usize)> {
    let elf = bytes.get(..6) == Some(MAGIC) && u16_at(bytes, 54)? == PHDR as u16;
    let count = usize::from(u16_at(bytes, 56)?);
    (elf && count <= limits::PROGRAM_HEADERS).then_some((u64_at(bytes, 32)?, count))
}

/// File ranges of notes and of the segments that hold the index of `.eh_frame`.
fn parts(bytes: &[u8], table: Range<u64>) -> Vec<Range<u64>> {
    let size = bytes.len() as u64;
    let range = table.start.min(size) as usize..table.end.min(size) as usize;
    let headers = bytes.get(range).unwrap_or(&[]).chunks_exact(PHDR);
    let field = |header: &[u8], at| u64_at(header, at).unwrap_or(0);
    let place = |header: &[u8]| {
        let start = field(header, 8).min(size);
        start..start.saturating_add(field(header, 32)).min(size)
    };
    let kind = |header: &[u8], wanted| u32_at(header, 0) == Some(wanted);
    let index = headers
        .clone()
        .find(|h| kind(h, PT_GNU_EH_FRAME))
        .map(place);
    let holds_index = |header: &&[u8]| {
        let part = place(header);
        kind(header, PT_LOAD)
            && index
                .as_ref()
                .is_some_and(|index| part.contains(&index.start))
    };
    let loads = headers.clone().filter(holds_index).map(place);
    // Honest files have a handful of notes, of less than a page.
    let notes = headers.filter(|h| kind(h, PT_NOTE)).map(place);
    let small = |note: Range<u64>| note.start..note.end.min(note.start.saturating_add(1 << 16));
    loads.chain(notes.map(small)).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotlight_unwind::Module;

    #[test]
    fn what_was_read_gives_the_same_rows_and_build_id_as_the_whole_file() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let sparse = read(&file, whole.len() as u64).unwrap();
        let (of_parts, of_whole) = (
            Module::from_elf(sparse.bytes(), 0, "").unwrap(),
            Module::from_elf(&whole, 0, "").unwrap(),
        );
        assert_eq!(of_parts.table.rows(), of_whole.table.rows());
        assert_eq!(of_parts.build_id, of_whole.build_id);
        assert_eq!(of_parts.segments, of_whole.segments);
        let untouched = sparse
            .bytes()
            .iter()
            .zip(&whole)
            .filter(|(a, b)| a != b)
            .count();
        assert!(
            untouched > whole.len() / 4,
            "{untouched} bytes of {} not read",
            whole.len()
        );
    }

    #[test]
    fn forged_headers_are_refused_or_cut() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("pilotlight-sparse-{}", std::process::id()));
        let mut forged = b"\x7fELF\x02\x01".to_vec();
        forged.resize(200, 0xff);
        forged[54..56].copy_from_slice(&56u16.to_le_bytes());
        for count in [0u16, 2, 513, u16::MAX] {
            forged[56..58].copy_from_slice(&count.to_le_bytes());
            std::fs::write(&path, &forged).unwrap();
            let read = read(&File::open(&path).unwrap(), forged.len() as u64);
            assert_eq!(read.is_ok(), count <= 512, "{count}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
