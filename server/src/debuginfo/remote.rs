//! Files of debug information on an object store. Calls block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tokio::runtime::Handle;

use super::objects::{Fetched, ObjectFiles};

/// Objects under the prefix `debuginfo/` of an object store.
pub struct StoreFiles {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    copies: PathBuf,
    runtime: Handle,
}

/// Bytes of one request of an upload to the object store.
pub(super) const PART_BYTES: usize = 8 << 20;

impl StoreFiles {
    /// Objects of `store` under `prefix/debuginfo/`; `copies` is a local folder for files in use.
    ///
    /// # Errors
    /// When that folder cannot be made.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        copies: PathBuf,
        runtime: Handle,
    ) -> io::Result<Self> {
        if copies.exists() {
            fs::remove_dir_all(&copies)?;
        }
        fs::create_dir_all(&copies)?;
        Ok(Self {
            store,
            prefix: ObjectPath::from(prefix).join("debuginfo"),
            copies,
            runtime,
        })
    }

    fn path(&self, name: &str) -> ObjectPath {
        let parts = name.split('/');
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn put_parts(&self, path: &ObjectPath, mut file: File) -> io::Result<()> {
        let upload = self.runtime.block_on(self.store.put_multipart(path));
        let mut upload = upload.map_err(io_error)?;
        let sent = (|| loop {
            let mut part = Vec::new();
            let limit = PART_BYTES as u64;
            Read::by_ref(&mut file).take(limit).read_to_end(&mut part)?;
            if part.is_empty() {
                return Ok(());
            }
            let put = upload.put_part(PutPayload::from(part));
            self.runtime.block_on(put).map_err(io_error)?;
        })();
        let ended = match sent {
            Ok(()) => self.runtime.block_on(upload.complete()).map(|_| ()),
            Err(error) => {
                let _ = self.runtime.block_on(upload.abort());
                return Err(error);
            }
        };
        ended.map_err(io_error)
    }
}

fn io_error(error: object_store::Error) -> io::Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl ObjectFiles for StoreFiles {
    fn put_file(&self, name: &str, from: &Path) -> io::Result<()> {
        let file = File::open(from)?;
        let path = self.path(name);
        if file.metadata()?.len() <= PART_BYTES as u64 {
            self.put_bytes(name, &fs::read(from)?)?;
        } else {
            self.put_parts(&path, file)?;
        }
        let _ = fs::remove_file(from);
        Ok(())
    }

    fn put_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let payload = PutPayload::from(bytes.to_vec());
        let path = self.path(name);
        let put = self.runtime.block_on(self.store.put(&path, payload));
        put.map(|_| ()).map_err(io_error)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let listing = self.store.list(Some(&self.prefix)).try_collect::<Vec<_>>();
        let listed = self.runtime.block_on(listing).map_err(io_error)?;
        let names = listed.into_iter().filter_map(|meta| {
            let parts: Vec<_> = meta.location.prefix_match(&self.prefix)?.collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(parts.join("/"))
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.path(name);
        let got = self.runtime.block_on(async {
            let got = self.store.get(&path).await?;
            got.bytes().await
        });
        got.map(|bytes| bytes.to_vec()).map_err(io_error)
    }

    fn fetch(&self, name: &str) -> io::Result<Fetched> {
        let path = self.path(name);
        let got = self.runtime.block_on(self.store.get(&path));
        let mut stream = got.map_err(io_error)?.into_stream();
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), name);
        let copy = self.copies.join(format!("{random:016x}"));
        let fetched = Fetched {
            path: copy,
            copy: true,
        };
        let mut file = File::create(&fetched.path)?;
        while let Some(bytes) = self.runtime.block_on(stream.next()) {
            file.write_all(&bytes.map_err(io_error)?)?;
        }
        Ok(fetched)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        match self.runtime.block_on(self.store.delete(&path)) {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }

    fn alone(&self) -> bool {
        false
    }
}
