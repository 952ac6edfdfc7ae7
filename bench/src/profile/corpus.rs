//! The real profiles of the test corpus, unzipped.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

use crate::child::{Outcome, repository};

/// One profile, not compressed.
pub struct File {
    /// Name below the folder that the Go peer reads.
    pub name: String,
    /// Where it came from, for messages.
    pub source: String,
    /// The protobuf bytes.
    pub raw: Vec<u8>,
}

impl File {
    /// Compressed as Go compresses profiles.
    pub fn gzipped(&self) -> Outcome<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.raw)?;
        Ok(encoder.finish()?)
    }
}

/// The corpus folder, where there is one.
pub fn folder() -> Outcome<Option<PathBuf>> {
    if let Some(folder) = std::env::var_os("PILOTLIGHT_CORPUS").map(PathBuf::from) {
        if !folder.is_dir() {
            return Err(format!("PILOTLIGHT_CORPUS={} is no folder", folder.display()).into());
        }
        return Ok(Some(folder));
    }
    let folder = repository().join("../shared/corpus");
    Ok(folder.is_dir().then_some(folder))
}

/// All files of the corpus that may be pprof, but for the bombs.
pub fn real() -> Outcome<Option<Vec<File>>> {
    let Some(folder) = folder()? else {
        return Ok(None);
    };
    let mut paths = Vec::new();
    walk(&folder, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let raw = unzipped(fs::read(&path)?);
        let source = path.strip_prefix(&folder)?.display().to_string();
        let name = format!("{:03}.pb", files.len());
        files.push(File { name, source, raw });
    }
    Ok(Some(files))
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("bombs") {
                walk(&path, paths)?;
            }
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

fn unzipped(bytes: Vec<u8>) -> Vec<u8> {
    let mut raw = Vec::new();
    match MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut raw) {
        Ok(_) if bytes.starts_with(&[0x1f, 0x8b]) => raw,
        _ => bytes,
    }
}
