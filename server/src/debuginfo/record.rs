//! One stored file, as the description beside it says.

use pilotlight_symbolize::Segment;
use serde::{Deserialize, Serialize};

use super::facts::{Facts, Quality, Shared};

/// Who brought a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The upload of this API.
    Upload,
    /// Parca's API.
    Parca,
    /// A debuginfod server.
    Debuginfod,
    /// A folder of this machine.
    Folder,
}

/// A stored file. The object `KEY/SHA256.json` holds it; the file itself is `KEY/SHA256.elf`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this description; others are not read.
    pub version: u32,
    /// GNU build id, hex.
    pub gnu: Option<String>,
    /// Go's build id.
    pub go: Option<String>,
    /// OpenTelemetry's hash of the file, hex.
    pub htlhash: String,
    /// How much it tells.
    pub quality: Quality,
    /// Whether the machine code is in it.
    pub has_code: bool,
    /// Bytes.
    pub size_bytes: u64,
    /// Of the whole file, hex.
    pub sha256: String,
    /// Name of the binary, for people.
    pub name: String,
    /// Who brought it.
    pub source: Source,
    /// When it was complete, Unix nanoseconds.
    pub stored_ns: i64,
    /// `[file offset, file size, svma, memory size, executable]` of each loadable segment.
    segments: Vec<(u64, u64, u64, u64, bool)>,
    /// Why its names cannot be read.
    pub failed: Option<String>,
    /// The file that it shares DWARF with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Shared>,
}

const VERSION: u32 = 1;

impl Record {
    /// A file that has just come.
    pub fn new(facts: &Facts, size_bytes: u64, sha256: &str, name: &str, source: Source) -> Self {
        let segment = |s: &Segment| {
            let sizes = (s.file_offset, s.file_size, s.svma, s.memory_size);
            (sizes.0, sizes.1, sizes.2, sizes.3, s.executable)
        };
        Self {
            version: VERSION,
            gnu: facts.gnu.clone(),
            go: facts.go.clone(),
            htlhash: facts.htlhash.clone(),
            quality: facts.quality,
            has_code: facts.has_code,
            size_bytes,
            sha256: sha256.to_owned(),
            name: name.to_owned(),
            source,
            stored_ns: 0,
            segments: facts.segments.iter().map(segment).collect(),
            failed: None,
            shared: facts.shared.clone(),
        }
    }

    /// From the object's bytes; `None` for what this version did not write.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        (record.version == VERSION).then_some(record)
    }

    /// The object's bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Numbers, strings and lists: this cannot fail.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Loadable segments.
    pub fn segments(&self) -> Vec<Segment> {
        let segment = |&(file_offset, file_size, svma, memory_size, executable): &_| Segment {
            file_offset,
            file_size,
            svma,
            memory_size,
            executable,
        };
        self.segments.iter().map(segment).collect()
    }

    /// Its ids in the spelling that ids are compared in.
    pub fn ids(&self) -> Vec<String> {
        self.facts().ids().map(str::to_owned).collect()
    }

    /// What it is stored under.
    pub fn key(&self) -> String {
        self.facts().key()
    }

    /// How much it tells: nothing, where its names cannot be read.
    pub fn rank(&self) -> Quality {
        match self.failed {
            Some(_) => Quality::None,
            None => self.quality,
        }
    }

    /// Name of the file's object.
    pub fn file_name(&self) -> String {
        format!("{}/{}.elf", self.key(), self.sha256)
    }

    /// Name of the description's object.
    pub fn description_name(&self) -> String {
        format!("{}/{}.json", self.key(), self.sha256)
    }

    fn facts(&self) -> Facts {
        Facts {
            gnu: self.gnu.clone(),
            go: self.go.clone(),
            htlhash: self.htlhash.clone(),
            ..Facts::default()
        }
    }
}
