//! `file_sd_configs`: targets in files, followed while running.
//!
//! A file that cannot be read or parsed keeps its old targets; a file that is gone loses them; a target's label
//! `__meta_filepath` names its file. Files are looked at by name, size, inode and time of change, not by inotify: that
//! works on every file system, and for Kubernetes' renamed symlinks.

use crate::config::{FileSd, Group, Problems, parse_yaml, read_group};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files larger than this are refused.
const MAX_FILE: u64 = 16 << 20;

/// What is known of the files of one `file_sd_configs` entry.
#[derive(Debug)]
pub struct FileSource {
    config: FileSd,
    files: BTreeMap<PathBuf, Known>,
}

#[derive(Debug, Default)]
struct Known {
    signature: Option<Signature>,
    groups: Vec<Group>,
    error: Option<String>,
    gone: bool,
}

/// When this is equal, the file is taken as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// What a look at the files brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Refresh {
    /// Targets may be different.
    pub changed: bool,
    /// New problems, and problems that are over, in words.
    pub news: Vec<String>,
}

impl FileSource {
    /// Looks at nothing yet.
    pub fn new(config: FileSd) -> Self {
        Self {
            config,
            files: BTreeMap::new(),
        }
    }

    /// All groups of all files.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.files.values().flat_map(|file| &file.groups)
    }

    /// Files whose present content could not be used.
    pub fn failing(&self) -> usize {
        self.files
            .values()
            .filter(|file| file.error.is_some())
            .count()
    }

    /// Looks again; reads what changed, or everything with `force`. Blocks on the file system.
    pub fn refresh(&mut self, force: bool) -> Refresh {
        let mut refresh = Refresh::default();
        let (present, missing) = list(&self.config.files);
        let before = self.files.len();
        self.files
            .retain(|path, _| present.contains(path) || missing.contains(path));
        refresh.changed = self.files.len() != before;
        for path in present {
            let known = self.files.entry(path.clone()).or_default();
            let signature = signature(&path);
            if force || signature.is_none() || signature != known.signature {
                known.signature = signature;
                take(known, &path, &mut refresh);
            }
        }
        for path in missing {
            let known = self.files.entry(path.clone()).or_default();
            if known.gone {
                continue;
            }
            refresh.changed |= !known.groups.is_empty();
            let text = format!("{}: no such file, no targets from it", path.display());
            refresh.news.push(text.clone());
            *known = Known {
                error: Some(text),
                gone: true,
                ..Known::default()
            };
        }
        refresh
    }
}

fn take(known: &mut Known, path: &Path, refresh: &mut Refresh) {
    known.gone = false;
    match read(path) {
        Ok(groups) => {
            refresh.changed |= groups != known.groups;
            known.groups = groups;
            if known.error.take().is_some() {
                refresh
                    .news
                    .push(format!("{}: readable again", path.display()));
            }
        }
        Err(error) => {
            let text = format!("{}: {error}; its earlier targets are kept", path.display());
            if known.error.as_ref() != Some(&text) {
                refresh.news.push(text.clone());
            }
            known.error = Some(text);
        }
    }
}

fn read(path: &Path) -> Result<Vec<Group>, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > MAX_FILE {
        return Err(format!("{size} bytes, more than {MAX_FILE}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value = parse_yaml(&text)?;
    let list = value
        .as_array()
        .ok_or("must be a list of {targets: [...], labels: {...}}")?;
    let problems = Problems::default();
    let mut groups: Vec<Group> = list
        .iter()
        .enumerate()
        .map(|(index, value)| read_group(format!("[{index}]"), value, &problems))
        .collect();
    let problems = problems.into_vec();
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    for group in &mut groups {
        group.labels.set("__meta_filepath", path.to_string_lossy());
    }
    Ok(groups)
}

fn signature(path: &Path) -> Option<Signature> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Signature {
        inode: meta.ino(),
        size: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
    })
}

/// The files that are there, and the plainly named ones that are not.
fn list(patterns: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let name = pattern.file_name().unwrap_or_default().to_string_lossy();
        if !name.contains('*') {
            let there = pattern.exists();
            if there { &mut present } else { &mut missing }.push(pattern.clone());
            continue;
        }
        let folder = pattern
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))
            .into_iter()
            .flatten()
            .flatten()
        {
            if matches(&name, &entry.file_name().to_string_lossy()) {
                present.push(pattern.with_file_name(entry.file_name()));
            }
        }
    }
    present.sort();
    present.dedup();
    (present, missing)
}

/// `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("*.yml", "a.yml", true),
            ("*.yml", "a.yaml", false),
            ("a*b*.json", "axxbyy.json", true),
            ("a*a.yml", "a.yml", false),
            ("plain.yml", "plain.yml", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
