//! `/proc/PID/maps`.

use crate::limits;
use std::sync::Arc;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset of `start` in the file, bytes.
    pub file_offset: u64,
    /// Major number in the upper, minor number in the lower half.
    pub device: u64,
    /// 0 for memory without a file.
    pub inode: u64,
    /// Path or a name in brackets; empty for anonymous memory. Without the kernel's ` (deleted)`.
    pub path: Arc<[u8]>,
}

impl Mapping {
    /// Memory of a file, whether or not that has a name still.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }

    /// The kernel's page of functions.
    pub fn is_vdso(&self) -> bool {
        &*self.path == b"[vdso]"
    }
}

/// Executable mappings in the text of `/proc/PID/maps`, and the start of the first one whose path holds `mark`.
///
/// Lines that cannot be read are left out; so are those past [`limits::MAPPINGS`].
pub fn parse_maps(text: &[u8], mark: &[u8]) -> (Vec<Mapping>, Option<u64>) {
    let mut mappings = Vec::new();
    let mut marked = None;
    for line in text.split(|&byte| byte == b'\n').take(1 << 20) {
        let Some((mapping, executable)) = parse_line(line) else {
            continue;
        };
        if marked.is_none() && contains(&mapping.path, mark) {
            marked = Some(mapping.start);
        }
        if executable && mappings.len() < limits::MAPPINGS {
            mappings.push(mapping);
        }
    }
    mappings.sort_by_key(|mapping: &Mapping| mapping.start);
    (mappings, marked)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

/// `start-end perms offset major:minor inode   path`
fn parse_line(line: &[u8]) -> Option<(Mapping, bool)> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b' ');
        let (field, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.trim_ascii_start();
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?;
    let path = rest.strip_suffix(b" (deleted)").unwrap_or(rest);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        start: hex(start)?,
        end: hex(end)?,
        file_offset: hex(offset)?,
        device: hex(major)? << 32 | hex(minor)?,
        inode: inode.parse().ok()?,
        path: path.get(..limits::PATH_BYTES).unwrap_or(path).into(),
    };
    (mapping.start < mapping.end).then_some((mapping, permissions.as_bytes().get(2) == Some(&b'x')))
}

/// Puts `new` in place of whatever of `mappings` it covers.
pub(super) fn insert(mappings: &mut Vec<Mapping>, new: Mapping) {
    if new.start >= new.end {
        return;
    }
    let first = mappings.partition_point(|m| m.end <= new.start);
    let last = mappings.partition_point(|m| m.start < new.end);
    let mut put = Vec::with_capacity(3);
    let covered = mappings.get(first..last).unwrap_or(&[]);
    if let Some(low) = covered.first().filter(|m| m.start < new.start) {
        put.push(Mapping {
            end: new.start,
            ..low.clone()
        });
    }
    let high = covered.last().filter(|m| m.end > new.end).map(|m| Mapping {
        start: new.end,
        file_offset: m.file_offset.wrapping_add(new.end - m.start),
        ..m.clone()
    });
    put.push(new);
    put.extend(high);
    let kept = mappings.len() - (last - first);
    if kept + put.len() <= limits::MAPPINGS {
        mappings.splice(first..last, put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"55d0c7a00000-55d0c7a02000 r--p 00000000 fd:01 1234   /usr/bin/a b\n\
        55d0c7a02000-55d0c7a07000 r-xp 00002000 fd:01 1234   /usr/bin/a b (deleted)\n\
        7f1200000000-7f1200001000 rw-p 00000000 00:01 77     /memfd:OTEL_CTX (deleted)\n\
        7f0000000000-7f0000100000 rwxp 00000000 00:00 0 \n\
        nonsense\n\
        7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0      [vdso]\n\
        9-1 r-xp 0 00:00 0\n";

    #[test]
    fn executable_lines_are_read_with_spaces_deleted_files_and_marks() {
        let (mappings, marked) = parse_maps(TEXT, b"OTEL_CTX");
        assert_eq!(marked, Some(0x7f1200000000));
        assert_eq!(parse_maps(TEXT, b"other").1, None);
        let starts: Vec<u64> = mappings.iter().map(|m| m.start).collect();
        assert_eq!(starts, [0x55d0c7a02000, 0x7f0000000000, 0x7ffd00000000]);
        let program = &mappings[0];
        assert_eq!(
            (
                &*program.path,
                program.file_offset,
                program.inode,
                program.device
            ),
            (&b"/usr/bin/a b"[..], 0x2000, 1234, 0xfd << 32 | 1)
        );
        assert!(program.is_file() && !mappings[1].is_file() && mappings[2].is_vdso());
    }

    fn mapping(start: u64, end: u64, path: &[u8]) -> Mapping {
        Mapping {
            start,
            end,
            file_offset: start,
            device: 0,
            inode: 1,
            path: path.into(),
        }
    }

    #[test]
    fn a_new_mapping_cuts_what_it_covers() {
        let mut all = vec![
            mapping(0, 10, b"a"),
            mapping(10, 20, b"b"),
            mapping(30, 40, b"c"),
        ];
        insert(&mut all, mapping(5, 15, b"n"));
        insert(&mut all, mapping(32, 36, b"m"));
        insert(&mut all, mapping(50, 60, b"z"));
        insert(&mut all, mapping(60, 60, b"nothing"));
        let seen: Vec<_> = all
            .iter()
            .map(|m| (m.start, m.end, m.file_offset, m.path[0]))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 5, 0, b'a'),
                (5, 15, 5, b'n'),
                (15, 20, 15, b'b'),
                (30, 32, 30, b'c'),
                (32, 36, 32, b'm'),
                (36, 40, 36, b'c'),
                (50, 60, 50, b'z')
            ]
        );
    }
}
