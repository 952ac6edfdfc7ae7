//! Names of frames, for views that show names instead of addresses.

use crate::intern::StringInterner;
use crate::model::{Location, Profile, row};
use crate::strings::{StrId, Strings};

/// The frames of every location as names, innermost first.
pub(crate) struct FrameNames {
    pub names: Strings,
    offsets: Vec<u32>,
    frames: Vec<StrId>,
}

impl FrameNames {
    pub fn of(profile: &Profile) -> Self {
        let mut interner = StringInterner::default();
        let functions: Vec<StrId> = profile
            .functions
            .iter()
            .map(|function| interner.intern(profile.strings.get(function.name)))
            .collect();
        let mut offsets = vec![0];
        let mut frames = Vec::with_capacity(profile.lines.len());
        for i in 0..profile.locations.len() {
            let location = profile.location(i);
            let before = frames.len();
            let named = location.lines.iter().filter_map(|line| {
                let name = functions.get(line.function.index()).copied();
                name.filter(|&name| name != StrId::EMPTY)
            });
            frames.extend(named);
            if frames.len() == before {
                frames.push(interner.intern(address_name(profile, &location).as_bytes()));
            }
            offsets.push(frames.len() as u32);
        }
        FrameNames {
            names: interner.strings,
            offsets,
            frames,
        }
    }

    /// Names of a location, innermost first.
    #[inline]
    pub fn get(&self, location: u32) -> &[StrId] {
        row(&self.offsets, &self.frames, location as usize)
    }

    /// Puts the names of a stack (leaf first) into `path`, root first.
    pub fn path(&self, stack: &[u32], path: &mut Vec<StrId>) {
        path.clear();
        for &location in stack.iter().rev() {
            path.extend(self.get(location).iter().rev());
        }
    }
}

/// `binary+0xoffset`, or as much of it as is known.
fn address_name(profile: &Profile, location: &Location<'_>) -> String {
    let mapping = location
        .mapping
        .and_then(|m| profile.mappings.get(m.index()));
    let Some(mapping) = mapping.filter(|m| m.file != StrId::EMPTY) else {
        return match location.address {
            0 => UNKNOWN.to_owned(),
            address => format!("{address:#x}"),
        };
    };
    let file = profile.strings.text(mapping.file);
    let binary = base_name(&file);
    if location.address == 0 {
        return format!("[{binary}]");
    }
    let in_file = location
        .address
        .wrapping_sub(mapping.start)
        .wrapping_add(mapping.offset);
    format!("{binary}+{in_file:#x}")
}

/// What pprof calls a frame of which nothing is known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// Last component of a path, by the rules of Go's `filepath.Base`.
pub(crate) fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some("") | None => "/",
        Some(name) => name,
    }
}
