//! Files of debug information, and a local folder of them. Calls block.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Where the files are. Names are relative, such as `gnu-ab12/34cd.elf`.
pub trait ObjectFiles: Send + Sync + 'static {
    /// Takes a finished local file over; when this returns, it survives a power cut.
    ///
    /// # Errors
    /// What the system says; the file may or may not be there then.
    fn put_file(&self, name: &str, from: &Path) -> io::Result<()>;
    /// Writes a small file, over an older one if there is one.
    ///
    /// # Errors
    /// What the system says.
    fn put_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Names of all files.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A small file.
    ///
    /// # Errors
    /// `NotFound`, or what reading gives.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// A file as a local one.
    ///
    /// # Errors
    /// `NotFound`, or what reading gives.
    fn fetch(&self, name: &str) -> io::Result<Fetched>;
    /// Deletes a file; one that is not there counts as deleted.
    ///
    /// # Errors
    /// When it is still there.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Whether nobody else writes here, so that what nothing describes is a leftover.
    fn alone(&self) -> bool;
}

/// A local file that holds a stored one; a copy goes away with this.
#[derive(Debug)]
pub struct Fetched {
    pub(super) path: PathBuf,
    pub(super) copy: bool,
}

impl Fetched {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if self.copy {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A local folder.
pub struct FolderFiles {
    root: PathBuf,
}

impl FolderFiles {
    /// Opens and makes the folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    /// Puts a written file into its place.
    fn place(&self, name: &str, from: &Path) -> io::Result<()> {
        let target = self.root.join(name);
        let folder = target.parent().unwrap_or(&self.root);
        if !folder.exists() {
            fs::create_dir_all(folder)?;
            sync(&self.root)?;
        }
        File::open(from)?.sync_all()?;
        fs::rename(from, &target)?;
        sync(folder)
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl ObjectFiles for FolderFiles {
    fn put_file(&self, name: &str, from: &Path) -> io::Result<()> {
        self.place(name, from)
    }

    fn put_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.root.join(format!("{}.tmp", name.replace('/', "-")));
        fs::write(&temporary, bytes)?;
        self.place(name, &temporary)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for folder in fs::read_dir(&self.root)?.flatten() {
            if !folder.file_type()?.is_dir() {
                // A crash while a description was written.
                let _ = fs::remove_file(folder.path());
                continue;
            }
            let of = folder.file_name().to_string_lossy().into_owned();
            for file in fs::read_dir(folder.path())?.flatten() {
                names.push(format!("{of}/{}", file.file_name().to_string_lossy()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.root.join(name))
    }

    fn fetch(&self, name: &str) -> io::Result<Fetched> {
        let path = self.root.join(name);
        fs::metadata(&path)?;
        Ok(Fetched { path, copy: false })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.root.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Fails while it holds another file, which is right.
        let _ = path.parent().map(fs::remove_dir);
        Ok(())
    }

    fn alone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::remote::{PART_BYTES, StoreFiles};
    use super::*;
    use std::sync::Arc;

    fn all_do_the_same(files: &dyn ObjectFiles, folder: &Path) {
        let big: Vec<u8> = (0..PART_BYTES + 5).map(|at| at as u8).collect();
        let from = folder.join("from");
        fs::write(&from, &big).unwrap();
        files.put_file("gnu-ab/12.elf", &from).unwrap();
        assert!(!from.exists(), "taken over");
        files.put_bytes("gnu-ab/12.json", b"old").unwrap();
        files.put_bytes("gnu-ab/12.json", b"new").unwrap();
        assert_eq!(files.list().unwrap(), ["gnu-ab/12.elf", "gnu-ab/12.json"]);
        assert_eq!(files.read("gnu-ab/12.json").unwrap(), b"new");
        let fetched = files.fetch("gnu-ab/12.elf").unwrap();
        assert!(fs::read(fetched.path()).unwrap() == big);
        drop(fetched);
        let missing = files.fetch("gnu-ab/13.elf").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        files.remove("gnu-ab/12.elf").unwrap();
        files.remove("gnu-ab/12.elf").unwrap();
        files.remove("gnu-ab/12.json").unwrap();
        assert_eq!(files.list().unwrap(), [""; 0]);
    }

    #[test]
    fn a_folder_and_an_object_store_keep_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let local = FolderFiles::open(folder.path().join("files")).unwrap();
        all_do_the_same(&local, folder.path());
        let memory = Arc::new(object_store::memory::InMemory::new());
        let copies = folder.path().join("copies");
        let remote = StoreFiles::open(memory, "a/b", copies.clone(), runtime.handle().clone());
        all_do_the_same(&remote.unwrap(), folder.path());
        assert_eq!(fs::read_dir(copies).unwrap().count(), 0, "no copy stays");
    }
}
