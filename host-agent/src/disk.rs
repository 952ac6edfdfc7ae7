//! Files of the agent's own. It opens them when it starts, since once it is confined it opens nothing for writing.

use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens or makes a file that no other agent uses.
///
/// # Errors
/// When it cannot be opened, or another agent has it.
pub(crate) fn open_alone(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another agent uses this folder")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The first half of the SHA-256 of all parts.
pub(crate) fn checksum(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    half
}
