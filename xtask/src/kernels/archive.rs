//! The archive that a kernel unpacks into its first file system (`Documentation/driver-api/early-userspace/buffer-format`
//! in the kernel: cpio, format "newc").

use crate::steps;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files so far.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<PathBuf>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

impl Archive {
    /// A program at the path that it has here, with all libraries that it needs.
    pub fn program(&mut self, path: &Path) -> Result<(), String> {
        self.copy(path)?;
        for line in steps::lines_of("ldd", &[&path.to_string_lossy()])? {
            let library = line.split_whitespace().find(|word| word.starts_with('/'));
            if let Some(library) = library {
                self.copy(Path::new(library))?;
            }
        }
        Ok(())
    }

    /// A file at the path that it has here; links are followed.
    pub fn copy(&mut self, path: &Path) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.file(&path.to_string_lossy(), 0o755, &bytes);
        Ok(())
    }

    /// A file and the folders that it is in.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        if let Some(folder) = Path::new(path).parent() {
            self.folder(&folder.to_string_lossy());
        }
        self.entry(path, FILE | mode, bytes);
    }

    /// A folder and those that it is in.
    pub fn folder(&mut self, path: &str) {
        let mut all: Vec<&Path> = Path::new(path).ancestors().collect();
        all.reverse();
        for folder in all.into_iter().skip(1) {
            self.entry(&folder.to_string_lossy(), FOLDER, &[]);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        if !self.names.insert(PathBuf::from(path)) {
            return;
        }
        let name = path.trim_start_matches('/');
        let inode = self.names.len() as u32;
        let size = bytes.len() as u32;
        // inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum
        let fields = [
            inode,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn a_file_comes_after_its_folders_and_everything_is_aligned() {
        let mut archive = Archive::default();
        archive.file("/a/b/init", 0o755, b"hello");
        archive.folder("/a");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let heads: Vec<usize> = (0..bytes.len())
            .filter(|&at| bytes[at..].starts_with(b"070701"))
            .collect();
        let names: Vec<String> = heads
            .iter()
            .map(|at| {
                let name = bytes[at + 110..].split(|&byte| byte == 0).next().unwrap();
                String::from_utf8_lossy(name).into_owned()
            })
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/init", "TRAILER!!!"]);
        assert!(heads.iter().all(|at| at % 4 == 0));
        // Mode and size of the file.
        assert_eq!(&bytes[heads[2] + 14..heads[2] + 22], b"000081ed");
        assert_eq!(&bytes[heads[2] + 54..heads[2] + 62], b"00000005");
    }
}
