//! What an object file says of itself.

use std::path::Path;

use pilotlight_symbolize::{Segment, tables};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How much a file can tell about an address; later is better.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// No names at all.
    #[default]
    None,
    /// A compressed symbol table of functions only (`.gnu_debugdata`).
    MiniDebuginfo,
    /// Exported functions only.
    Dynsym,
    /// All functions.
    Symtab,
    /// Functions, inlined functions and lines of a Go program.
    Pclntab,
    /// Functions, inlined functions, files and lines, some of which stand in other files.
    Split,
    /// Functions, inlined functions, files and lines.
    Dwarf,
}

impl Quality {
    /// From the text of the API.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_value(text.into()).ok()
    }

    /// The text of the API.
    pub fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MiniDebuginfo => "mini_debuginfo",
            Self::Dynsym => "dynsym",
            Self::Symtab => "symtab",
            Self::Pclntab => "pclntab",
            Self::Split => "split",
            Self::Dwarf => "dwarf",
        }
    }
}

/// A file that others share DWARF in: `dwz` made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Its build id, hex.
    pub build_id: String,
    /// Where it stands, as the file says that needs it: never to be opened as it is.
    pub path: String,
}

/// What is known of a file without reading its names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// GNU build id, hex.
    pub gnu: Option<String>,
    /// Go's build id, text.
    pub go: Option<String>,
    /// Hash of head, tail and length of the file, hex: OpenTelemetry's `htlhash`.
    pub htlhash: String,
    /// How much it tells.
    pub quality: Quality,
    /// Whether the machine code itself is in it.
    pub has_code: bool,
    /// Loadable segments.
    pub segments: Vec<Segment>,
    /// The file that it shares DWARF with.
    pub shared: Option<Shared>,
}

impl Facts {
    /// All ids of the file, the best first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let own = self.gnu.as_deref().into_iter().chain(self.go.as_deref());
        own.chain([self.htlhash.as_str()])
    }

    /// Whether a claimed id (in any spelling) is one of the file's.
    pub fn has_id(&self, claimed: &str) -> bool {
        let claimed = normal_id(claimed);
        let go = self.go.as_deref().unwrap_or_default();
        self.ids().any(|id| id == claimed) || !go.is_empty() && hex(go.as_bytes()) == claimed
    }

    /// The id that the file is stored under: safe as part of a name.
    pub fn key(&self) -> String {
        match (&self.gnu, &self.go) {
            (Some(gnu), _) => format!("gnu-{gnu}"),
            (None, Some(go)) => format!("go-{}", &hex(&Sha256::digest(go))[..32]),
            (None, None) => format!("htl-{}", self.htlhash),
        }
    }
}

/// The spelling of an id that ids are compared in: hex is lower case, Go's text stays.
pub fn normal_id(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        text.to_ascii_lowercase()
    } else {
        text.to_owned()
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads what a file of our own says of itself, in this process.
///
/// # Errors
/// When it cannot be read or is no ELF file that we know; the text says which.
pub fn inspect(path: &Path) -> Result<Facts, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("it cannot be read: {error}"))?;
    pilotlight_sandbox::Facts::of(bytes).map(Facts::from)
}

impl From<pilotlight_sandbox::Facts> for Facts {
    fn from(found: pilotlight_sandbox::Facts) -> Self {
        let quality = tables::Quality::from_rank(found.quality);
        let segments = found.segments;
        Self {
            gnu: found.gnu_build_id.as_deref().map(hex),
            go: found.go_build_id,
            htlhash: hex(&found.htlhash),
            quality: quality.map_or(Quality::None, Quality::from),
            has_code: segments.iter().any(|s| s.executable && s.file_size > 0),
            segments,
            shared: found.supplementary.map(|(path, id)| Shared {
                build_id: hex(&id),
                path,
            }),
        }
    }
}

impl From<tables::Quality> for Quality {
    fn from(found: tables::Quality) -> Self {
        match found {
            tables::Quality::MiniDebuginfo => Self::MiniDebuginfo,
            tables::Quality::Dynsym => Self::Dynsym,
            tables::Quality::Symtab => Self::Symtab,
            tables::Quality::Pclntab => Self::Pclntab,
            tables::Quality::Split => Self::Split,
            tables::Quality::Full => Self::Dwarf,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_binary_says_its_ids_and_what_it_can_tell() {
        let facts = inspect(Path::new("/proc/self/exe")).unwrap();
        let gnu = facts.gnu.clone().unwrap();
        assert!(facts.has_id(&gnu.to_uppercase()));
        assert!(facts.has_id(&facts.htlhash.clone()));
        assert!(!facts.has_id("00"));
        assert_eq!(facts.key(), format!("gnu-{gnu}"));
        assert_eq!((facts.quality, facts.has_code), (Quality::Dwarf, true));
    }

    #[test]
    fn a_text_is_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(inspect(&path).unwrap_err(), "not an ELF file");
    }

    #[test]
    fn qualities_are_ordered_and_spelled_as_in_the_api() {
        use Quality::*;
        let all = [None, MiniDebuginfo, Dynsym, Symtab, Pclntab, Split, Dwarf];
        assert!(all.is_sorted());
        assert!(
            all.iter()
                .all(|&one| Quality::parse(one.text()) == Some(one))
        );
        assert_eq!(Quality::parse("best"), Option::None);
    }
}
