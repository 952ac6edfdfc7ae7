//! No process context: readers outside look for it in `/proc`.

use std::io;

use crate::fork::{Held, Lock};

/// Held around a fork: there is nothing to hold.
pub(crate) fn lock() -> &'static dyn Held {
    static NOTHING: Lock<()> = Lock::new(());
    &NOTHING
}

/// The environment is not asked here.
pub(crate) fn service_version() -> Option<String> {
    None
}

/// # Errors
/// Always.
pub(crate) fn publish(_service: &str, _version: Option<&str>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn withdraw() {}

pub(crate) fn is_published() -> bool {
    false
}
