//! Reads everything once and names what is damaged.

use std::path::Path;
use std::sync::Arc;

use crate::config::{Config, Error};
use crate::server;
use crate::store::catalog::Catalog;
use crate::store::compact;
use crate::store::recover::{self, Progress};

/// What a folder or bucket holds, and what of it cannot be trusted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Segments and blocks that were read whole.
    pub sound: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Profiles in them.
    pub profiles: u64,
    /// Samples in them.
    pub samples: u64,
    /// Files that are damaged or unreadable, each with the service (where only one is hit) and the
    /// reason.
    pub damaged: Vec<(String, String)>,
}

/// Checks every byte of the data that `config` names. Nothing is changed; the server must not run.
///
/// # Errors
/// When the data cannot be reached, or another process has it.
pub async fn verify(config: &Config) -> Result<Verified, Error> {
    let _lock = server::lock_folder(&config.data_dir)?;
    let disk = server::disk(config).await?;
    let now_ns = config.env.now_ns();
    let folder = config.data_dir.clone();
    let checked = tokio::task::spawn_blocking(move || check(&*disk, now_ns));
    let failed = |cause| data_dir(&folder, cause);
    checked
        .await
        .map_err(std::io::Error::other)
        .map_err(failed)?
        .map_err(failed)
}

fn data_dir(folder: &Path, cause: std::io::Error) -> Error {
    let folder = folder.to_owned();
    Error::DataDir { folder, cause }
}

pub(crate) fn check(disk: &dyn crate::Disk, now_ns: i64) -> std::io::Result<Verified> {
    let catalog = Arc::new(Catalog::default());
    let nothing = std::collections::HashMap::new();
    recover::catalog(disk, &catalog, nothing, now_ns, &Progress::default())?;
    let mut verified = Verified::default();
    for (name, damaged) in catalog.damaged() {
        verified.damaged.push((name, damaged.reason));
    }
    for segment in catalog.select(|_| true) {
        let mut sound = true;
        for (part, header) in segment.header.parts.iter().enumerate() {
            if let Err(error) = compact::verify_part(disk, &segment, part) {
                sound = false;
                let reason = format!("service {}: {error}", header.service);
                verified.damaged.push((segment.name.clone(), reason));
            }
        }
        if sound {
            verified.sound += 1;
            verified.bytes += segment.header.file_len;
            verified.profiles += segment.header.profiles();
            verified.samples += segment.header.samples();
        }
    }
    Ok(verified)
}
