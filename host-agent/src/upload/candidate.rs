//! A file that may be sent: held open, since its process or its name may go.

use crate::files::{self, File};
use crate::process::Mapping;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

/// Sections of one file that are looked at.
const SECTIONS: usize = 4096;
const PIECE: usize = 1 << 20;

/// An open file.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// As [`File::build_id`].
    pub build_id: String,
    /// The last part of its path.
    pub name: String,
    pub size_bytes: u64,
    /// How much it tells, in the words of the server's API.
    pub quality: &'static str,
    file: fs::File,
}

impl Candidate {
    /// Opens the file behind a mapping. `None`: it is gone or has changed, or is larger than `limit_bytes`, or names nothing.
    pub fn open(pid: u32, mapping: &Mapping, known: &File, limit_bytes: u64) -> Option<Candidate> {
        let (file, key) = files::open(pid, mapping)?;
        if key != known.key || key.size > limit_bytes {
            return None;
        }
        let quality = quality(&file)?;
        let name = mapping
            .path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or(&[]);
        Some(Candidate {
            build_id: known.build_id.clone(),
            name: String::from_utf8_lossy(name).into_owned(),
            size_bytes: key.size,
            quality,
            file,
        })
    }

    /// SHA-256 of the whole file, hexadecimal.
    pub fn sha256(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        let mut at = 0;
        while at < self.size_bytes {
            let bytes = self.piece(at, PIECE)?;
            hash.update(&bytes);
            at += bytes.len() as u64;
        }
        Ok(hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Up to `length` bytes from `offset` on.
    ///
    /// # Errors
    /// When the file became shorter.
    pub fn piece(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let left = self.size_bytes.saturating_sub(offset).min(length as u64);
        let mut bytes = vec![0; left as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// By the names of the sections; `None` when there is nothing to name addresses by.
fn quality(file: &fs::File) -> Option<&'static str> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let number = |bytes: &[u8], at: usize, size: usize| -> Option<u64> {
        let bytes = bytes.get(at..at + size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        )
    };
    let (offset, count) = (number(&header, 40, 8)?, number(&header, 60, 2)? as usize);
    let names = number(&header, 62, 2)? as usize;
    let mut table = vec![0; count.min(SECTIONS) * 64];
    file.read_exact_at(&mut table, offset).ok()?;
    let section = |index: usize| table.get(index * 64..(index + 1) * 64);
    let strings = section(names)?;
    let size = number(strings, 32, 8)?.min(1 << 20);
    let mut text = vec![0; size as usize];
    file.read_exact_at(&mut text, number(strings, 24, 8)?)
        .ok()?;
    let has = |wanted: &[u8]| {
        (0..count).filter_map(section).any(|section| {
            let at = number(section, 0, 4).unwrap_or(u64::MAX) as usize;
            let name = text.get(at..).unwrap_or(&[]);
            // Compressed sections of old begin with a z.
            name.strip_prefix(wanted)
                .is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    let qualities: [(&[u8], &str); 6] = [
        (b".debug_info", "dwarf"),
        (b".gopclntab", "pclntab"),
        (b".data.rel.ro.gopclntab", "pclntab"),
        (b".symtab", "symtab"),
        (b".gnu_debugdata", "mini_debuginfo"),
        (b".dynsym", "dynsym"),
    ];
    qualities
        .iter()
        .find(|(name, _)| has(name))
        .map(|(_, quality)| *quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_tells_all_and_other_files_tell_nothing() {
        let open = |path: &str| fs::File::open(path).unwrap();
        assert_eq!(quality(&open("/proc/self/exe")), Some("dwarf"));
        assert_eq!(quality(&open("/etc/passwd")), None);
        assert_eq!(quality(&open("/proc/version")), None);
    }
}
