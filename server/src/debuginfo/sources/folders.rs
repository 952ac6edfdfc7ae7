//! Where a file of a build id may stand in a folder.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Places of a build id (lower-case hex) below a folder, the likeliest first: as `gdb` and
/// distributions lay them out (`.build-id/ab/cdef.debug`), from `.build-id` itself, and as files that
/// bear the id as their name.
pub fn places(folder: &Path, build_id: &str) -> Vec<PathBuf> {
    let (head, tail) = build_id.split_at(2.min(build_id.len()));
    let (debug, bare) = (format!("{tail}.debug"), tail.to_owned());
    let ids = folder.join(".build-id").join(head);
    vec![
        ids.join(&debug),
        folder.join(head).join(&debug),
        folder.join(format!("{build_id}.debug")),
        folder.join(build_id),
        // debuginfod's own cache.
        folder.join(build_id).join("debuginfo"),
        // The program itself.
        ids.join(&bare),
        folder.join(head).join(&bare),
    ]
}

/// Where distributions keep a file that several share: below `.dwz`, as what needs it says
/// (`../../.dwz/x86_64-linux-gnu/bash.debug`, `/usr/lib/debug/.dwz/glibc`). Only the part after `.dwz`
/// is looked at, and none that leads out of it.
pub fn shared(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut parts = Path::new(path).components();
    parts.find(|part| part.as_os_str() == ".dwz")?;
    let below = parts.as_path();
    let plain = |part| matches!(part, Component::Normal(_));
    let inside = below.components().count() > 0 && below.components().all(plain);
    inside.then(|| folder.join(".dwz").join(below))
}

/// Opens a file that may be copied. What is no file (a pipe, a device) is never opened.
///
/// # Errors
/// `NotFound`, and what the system says.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_is_looked_for_below_dwz_alone() {
        let at = |path: &str| shared(Path::new("/d"), path).map(|p| p.display().to_string());
        for (path, wanted) in [
            ("/usr/lib/debug/.dwz/glibc", Some("/d/.dwz/glibc")),
            ("../../.dwz/x86_64/a.debug", Some("/d/.dwz/x86_64/a.debug")),
            ("/etc/passwd", None),
            (".dwz/../../etc/passwd", None),
            (".dwz/a/..", None),
            (".dwz", None),
            ("", None),
        ] {
            assert_eq!(at(path).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn a_file_is_found_in_each_layout_and_only_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let id = "ab12cd34ef56ab12";
        let found = || {
            let places = places(folder.path(), id);
            let names = places.iter().filter(|place| open(place).is_ok());
            let name = |place: &PathBuf| {
                let below = place.strip_prefix(folder.path()).unwrap();
                below.to_str().unwrap().to_owned()
            };
            names.map(name).collect::<Vec<_>>()
        };
        assert!(found().is_empty());
        for name in [
            ".build-id/ab/12cd34ef56ab12.debug",
            "ab/12cd34ef56ab12.debug",
            "ab12cd34ef56ab12.debug",
            ".build-id/ab/12cd34ef56ab12",
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            assert_eq!(found(), [name]);
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::create_dir(folder.path().join(id)).unwrap();
        assert!(found().is_empty(), "a folder is no file");
    }
}
