//! A small key-value index beside the segments, so that a start need not open every file.
//!
//! Nothing stands only here: on any error the folder is set aside and filled again from the
//! segments. sled 0.34.7 keeps this role within its limits: small content, batches of at most 100,
//! the background flusher on, opened in a guard with a deadline, never part of an acknowledgement.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// One change: value, or `None` to remove the key.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// What the server asks of an index. Errors are texts: all that is done with one is to set the
/// index aside and say why.
pub trait Metastore: Send + Sync + Sized + 'static {
    /// Opens or makes the index in a folder.
    ///
    /// # Errors
    /// When it cannot be read; the caller sets it aside.
    fn open(folder: &Path) -> Result<Self, String>;
    /// Writes changes, all or none of each 100.
    ///
    /// # Errors
    /// When the store fails.
    fn put_batch(&self, changes: Vec<Change>) -> Result<(), String>;
    /// Value of a key.
    ///
    /// # Errors
    /// When the store fails.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String>;
    /// Shows all pairs under a prefix, in key order; never all of them in memory.
    ///
    /// # Errors
    /// When the store fails, or `see` does.
    fn scan_prefix(
        &self,
        prefix: &[u8],
        see: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(), String>;
    /// Asks for what was written to reach the disk. A hint: nothing relies on it.
    ///
    /// # Errors
    /// When the store fails.
    fn flush(&self) -> Result<(), String>;
    /// Replaces all content.
    ///
    /// # Errors
    /// When the store fails.
    fn rebuild(&self, pairs: Vec<Pair>) -> Result<(), String>;
}

/// [`Metastore`] over sled.
pub struct Sled {
    db: sled::Db,
}

const BATCH: usize = 100;

impl Metastore for Sled {
    fn open(folder: &Path) -> Result<Self, String> {
        let config = sled::Config::new()
            .path(folder)
            .cache_capacity(8 << 20)
            .flush_every_ms(Some(500));
        Ok(Self {
            db: config.open().map_err(|error| error.to_string())?,
        })
    }

    fn put_batch(&self, changes: Vec<Change>) -> Result<(), String> {
        for chunk in changes.chunks(BATCH) {
            let mut batch = sled::Batch::default();
            for (key, value) in chunk {
                match value {
                    Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                    None => batch.remove(key.as_slice()),
                }
            }
            self.db
                .apply_batch(batch)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let value = self.db.get(key).map_err(|error| error.to_string())?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan_prefix(
        &self,
        prefix: &[u8],
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        for pair in self.db.scan_prefix(prefix) {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            see(&key, &value)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        self.db
            .flush()
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn rebuild(&self, pairs: Vec<Pair>) -> Result<(), String> {
        self.db.clear().map_err(|error| error.to_string())?;
        self.put_batch(
            pairs
                .into_iter()
                .map(|(key, value)| (key, Some(value)))
                .collect(),
        )
    }
}

/// Runs `work` on a thread of its own; a panic or a missed deadline is an error.
/// (sled has panicked and has taken minutes on damaged folders.)
pub fn guarded<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::Builder::new().name("index-open".into());
    let spawned = thread.spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let _ = send.send(result.unwrap_or_else(|_| Err("it panicked".to_owned())));
    });
    spawned.map_err(|error| error.to_string())?;
    receive
        .recv_timeout(deadline)
        .unwrap_or_else(|_| Err(format!("no answer within {} s", deadline.as_secs())))
}

/// Moves an index folder out of the way, keeping one older one to look at.
///
/// # Errors
/// When it cannot be moved.
pub fn set_aside(folder: &Path) -> io::Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    let aside = folder.with_extension("damaged");
    if aside.exists() {
        std::fs::remove_dir_all(&aside)?;
    }
    std::fs::rename(folder, &aside)?;
    Ok(Some(aside))
}
