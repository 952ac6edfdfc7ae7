//! What a load takes on disk.

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use super::{corpus::Corpus, figure};
use crate::{
    child::Outcome,
    figure::Goal,
    server::process::{Server, bytes_on_disk},
};

/// Bytes of the blocks that count.
pub fn run(server: &Server, corpus: &Corpus) -> Outcome<()> {
    let (samples, symbols) = sizes(server)?;
    let n = corpus.samples as f64;
    let peers = "pyroscope(research):14B-compacted,parca(research):154B";
    let bytes = samples as f64 / n;
    figure("bytes_per_sample", bytes, "B", Goal::AtMost(2.0), "");
    let all = (samples + symbols) as f64 / n;
    let goal = Goal::AtMost(14.0 / 3.0);
    figure("bytes_per_sample_with_symbols", all, "B", goal, peers);
    println!("# whole folder: {} B", bytes_on_disk(&server.data)?);
    Ok(())
}

/// Bytes of samples and of symbols.
pub fn sizes(server: &Server) -> Outcome<(u64, u64)> {
    let (mut samples, mut symbols, mut blocks) = (0, 0, 0);
    let replaced = replaced(server)?;
    for path in files(&server.data.join("blocks"))? {
        let name = path.to_string_lossy().into_owned();
        if replaced.iter().any(|stem| name.contains(stem.as_str())) {
            continue;
        }
        let len = fs::metadata(&path)?.len();
        match name.split_once('.').map_or("", |(_, end)| end) {
            end if end.ends_with("samples.parquet") => samples += len,
            end if end.ends_with("symbols.parquet") => symbols += len,
            _ => blocks += 1,
        }
    }
    println!("# {blocks} blocks: samples {samples} B, symbols {symbols} B");
    Ok((samples, symbols))
}

/// Names (without their ends) that some manifest says it replaces.
fn replaced(server: &Server) -> Outcome<Vec<String>> {
    let mut all = Vec::new();
    let files = files(&server.data.join("blocks"))?;
    let manifests = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "plblk"));
    for path in manifests {
        let bytes = fs::read(path)?;
        for other in &files {
            let stem = other
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some(stem) = stem.strip_suffix(".plblk") else {
                continue;
            };
            let own = path.to_string_lossy().contains(stem);
            if !own
                && bytes
                    .windows(stem.len())
                    .any(|window| window == stem.as_bytes())
            {
                all.push(stem.to_owned());
            }
        }
    }
    Ok(all)
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.into_iter().map(|entry| entry.path()).collect())
}

/// Asks the kernel to drop the folder's pages, as after a night without a question.
pub fn forget_pages(folder: &Path) -> Outcome<()> {
    for path in files(folder)? {
        if path.is_dir() {
            forget_pages(&path)?;
            continue;
        }
        let file = File::open(&path)?;
        file.sync_all()?;
        // SAFETY: the descriptor is open for the call; advice changes no memory.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}
