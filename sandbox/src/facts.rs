//! What the child says of a file's headers: lines of `key value`, like the report.

use pilotlight_symbolize::{Object, Segment, tables};
use std::fmt::Write;

/// Loadable segments of an honest file are a dozen.
const MAX_SEGMENTS: usize = 256;
/// Bytes of an honest id are 20; Go's text has 83.
const MAX_ID_BYTES: usize = 512;

/// A path of an honest file is short.
const MAX_PATH_BYTES: usize = 4096;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// GNU build id.
    pub gnu_build_id: Option<Vec<u8>>,
    /// Go's build id, as text.
    pub go_build_id: Option<String>,
    /// OpenTelemetry's hash of the file.
    pub htlhash: Vec<u8>,
    /// Rank of the quality; see [`tables::Quality::from_rank`].
    pub quality: u8,
    /// Loadable segments.
    pub segments: Vec<Segment>,
    /// Path and build id of the file that it shares DWARF with.
    pub supplementary: Option<(String, Vec<u8>)>,
}

impl Facts {
    /// Reads the headers of a file, in this process.
    ///
    /// # Errors
    /// The reason, when it is no ELF file that we know.
    pub fn of<B>(object: B) -> Result<Facts, String>
    where
        B: std::ops::Deref<Target = [u8]> + Send + Sync + 'static,
    {
        let found = tables::inspect(&object).map_err(|e| e.to_string())?;
        let object = Object::parse(object).map_err(|e| e.to_string())?;
        let facts = Facts {
            gnu_build_id: found.gnu_build_id,
            go_build_id: found.go_build_id.filter(|id| !id.is_empty()),
            htlhash: found.htlhash.to_vec(),
            quality: found.quality.rank(),
            segments: object.segments().to_vec(),
            supplementary: found.supplementary,
        };
        facts.checked()
    }

    fn checked(self) -> Result<Facts, String> {
        if self.segments.len() > MAX_SEGMENTS {
            return Err(format!(
                "{} loadable segments; the most that is read is {MAX_SEGMENTS}",
                self.segments.len()
            ));
        }
        let gnu = self.gnu_build_id.as_ref().map_or(0, Vec::len);
        let go = self.go_build_id.as_ref().map_or(0, String::len);
        let other = self.supplementary.as_ref();
        let shared = other.map_or(0, |(_, id)| id.len());
        if gnu.max(go).max(shared) > MAX_ID_BYTES {
            return Err(format!("a build id of more than {MAX_ID_BYTES} bytes"));
        }
        if other.is_some_and(|(path, _)| path.len() > MAX_PATH_BYTES) {
            return Err(format!("a path of more than {MAX_PATH_BYTES} bytes"));
        }
        Ok(self)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("quality {}\nhtlhash {}\n", self.quality, hex(&self.htlhash));
        let go = self.go_build_id.as_deref().map(str::as_bytes);
        for (key, id) in [("gnu", self.gnu_build_id.as_deref()), ("go", go)] {
            if let Some(id) = id {
                let _ = writeln!(text, "{key} {}", hex(id));
            }
        }
        if let Some((path, id)) = &self.supplementary {
            let _ = writeln!(text, "supplementary {} {}", hex(id), hex(path.as_bytes()));
        }
        for s in &self.segments {
            let _ = writeln!(
                text,
                "segment {} {} {} {} {}",
                s.file_offset,
                s.file_size,
                s.svma,
                s.memory_size,
                u8::from(s.executable)
            );
        }
        text
    }

    /// A child that was taken over may say anything: unknown lines are left out, what is kept is
    /// bounded.
    pub(crate) fn parse(text: &str) -> Result<Facts, String> {
        let mut facts = Facts::default();
        for (key, value) in text.lines().filter_map(|l| l.split_once(' ')) {
            match key {
                "quality" => facts.quality = value.parse().unwrap_or(0),
                "htlhash" => facts.htlhash = bytes(value).unwrap_or_default(),
                "gnu" => facts.gnu_build_id = bytes(value),
                "go" => facts.go_build_id = bytes(value).and_then(|b| String::from_utf8(b).ok()),
                "supplementary" => facts.supplementary = shared(value),
                "segment" => facts.segments.extend(segment(value)),
                _ => {}
            }
        }
        if facts.htlhash.is_empty() {
            return Err("the parser said nothing of the file".to_owned());
        }
        facts.checked()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let pairs = digits.filter(|d| d.len() % 2 == 0)?;
    Some(pairs.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn shared(text: &str) -> Option<(String, Vec<u8>)> {
    let (id, path) = text.split_once(' ')?;
    Some((String::from_utf8(bytes(path)?).ok()?, bytes(id)?))
}

fn segment(text: &str) -> Option<Segment> {
    let numbers: Vec<u64> = text.split(' ').map_while(|n| n.parse().ok()).collect();
    let &[file_offset, file_size, svma, memory_size, executable] = numbers.as_slice() else {
        return None;
    };
    Some(Segment {
        file_offset,
        file_size,
        svma,
        memory_size,
        executable: executable != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::Facts;

    #[test]
    fn facts_come_back() {
        let facts = Facts::of(std::fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(facts.gnu_build_id.is_some() && facts.segments.iter().any(|s| s.executable));
        assert_eq!(Facts::parse(&facts.text()), Ok(facts.clone()));
        let go = Facts {
            go_build_id: Some("a b/ü\nx".to_owned()),
            supplementary: Some(("../.dwz/a ü".to_owned(), vec![1, 2])),
            ..facts
        };
        assert_eq!(Facts::parse(&go.text()), Ok(go));
    }

    #[test]
    fn what_a_child_says_is_bounded() {
        assert!(Facts::parse("").is_err());
        let many = format!("htlhash 00\n{}", "segment 1 1 1 1 1\n".repeat(257));
        assert!(Facts::parse(&many).unwrap_err().contains("257"));
        let long = format!("htlhash 00\ngnu {}\n", "ab".repeat(513));
        assert!(Facts::parse(&long).is_err());
        let long = format!("htlhash 00\nsupplementary ab {}\n", "61".repeat(4097));
        assert!(Facts::parse(&long).is_err());
        let odd =
            Facts::parse("htlhash 00\ngnu abc\nsupplementary ab\nsegment 1 x\nquality 999\nx")
                .unwrap();
        let nothing = Facts {
            htlhash: vec![0],
            ..Facts::default()
        };
        assert_eq!(odd, nothing);
    }
}
