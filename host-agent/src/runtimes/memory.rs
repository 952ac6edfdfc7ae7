//! What is read of a process.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The memory of a process, as it is now. It stays that of the program that was open, whatever the process executes
/// later.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// `None` when it is gone or may not be read.
    pub fn open(pid: u32) -> Option<Memory> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Memory)
    }

    /// A file that stands for a process: its offsets are addresses.
    pub fn of(file: File) -> Memory {
        Memory(file)
    }

    /// All bytes at `address`, or nothing.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        // Beyond the first half there is no user's memory, and the offset would be negative.
        i64::try_from(address).ok()?;
        self.0.read_exact_at(bytes, address).ok()
    }

    /// A word.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// `length` bytes, if that is at most `limit`.
    pub fn bytes(&self, address: u64, length: u64, limit: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= limit)?;
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Some(bytes)
    }
}
