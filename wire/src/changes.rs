//! Whether files changed since they were read.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// Files are looked at again after so long, at the next use.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// When each of `files` changed last; `None` for one that cannot be looked at.
pub(crate) fn changed<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<Option<SystemTime>> {
    let time = |file| {
        std::fs::metadata(file)
            .and_then(|about| about.modified())
            .ok()
    };
    files.map(time).collect()
}
