//! One JSON line for each request that reads, on a thread of its own.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::Value;

/// Lines that may wait for the disk.
const WAITING: usize = 4096;

/// Where lines go. They are lost, and counted, when the disk is slower than the requests.
#[derive(Clone)]
pub struct Audit {
    lines: SyncSender<Value>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Appends to `file`.
    ///
    /// # Errors
    /// When it cannot be opened, or a thread not started.
    pub fn open(file: &Path) -> std::io::Result<Audit> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        let (lines, waiting) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || write(BufWriter::new(file), &waiting, &counted))?;
        Ok(Audit { lines, lost })
    }

    /// Adds a line.
    pub fn note(&self, line: Value) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Lines that are in no file.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

fn write(mut file: impl Write, waiting: &Receiver<Value>, lost: &AtomicU64) {
    while let Ok(first) = waiting.recv() {
        let mut lines = 1;
        let mut written = writeln!(file, "{first}");
        // What waits goes out together.
        while let (Ok(()), Ok(next)) = (&written, waiting.try_recv()) {
            written = writeln!(file, "{next}");
            lines += 1;
        }
        if written.and_then(|()| file.flush()).is_err() {
            lost.fetch_add(lines, Relaxed);
        }
    }
}
