//! One CPU capture at a time per process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The captures that are running, by final address, over all jobs.
#[derive(Debug, Default)]
pub(crate) struct Captures(Mutex<HashMap<String, String>>);

/// Ends its capture on drop, however the scrape ends.
#[derive(Debug)]
pub(crate) struct Capture<'c> {
    captures: &'c Captures,
    address: String,
}

impl Captures {
    /// Begins a capture, or names the job that holds the address.
    pub fn begin(&self, address: &str, job: &str) -> Result<Capture<'_>, String> {
        let mut running = self.lock();
        if let Some(holder) = running.get(address) {
            return Err(holder.clone());
        }
        running.insert(address.to_owned(), job.to_owned());
        Ok(Capture {
            captures: self,
            address: address.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        self.captures.lock().remove(&self.address);
    }
}
