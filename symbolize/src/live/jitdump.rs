//! `jit-PID.dump`: the records that runtimes write for `perf inject --jit`.
//!
//! Layout: `tools/perf/Documentation/jitdump-specification.txt` of Linux.

use super::{LiveName, LiveNames};
use crate::elf::{Fields, string};

const MAGIC: u32 = 0x4a69_5444;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Kind, size and time of each record.
const RECORD_BYTES: usize = 16;

/// Functions of a dump of this machine's byte order, up to the first record that is not whole.
/// Empty for other bytes.
#[must_use]
pub fn jitdump(bytes: &[u8]) -> LiveNames {
    let head = Fields(bytes);
    if head.u32(0) != MAGIC {
        return LiveNames::default();
    }
    let mut names: Vec<LiveName> = Vec::new();
    let mut at = head.u32(8) as usize;
    while let Some(record) = bytes.get(at..).filter(|r| r.len() >= RECORD_BYTES) {
        let (kind, size) = (Fields(record).u32(0), Fields(record).u32(4) as usize);
        let Some(body) = record.get(RECORD_BYTES..size) else {
            break;
        };
        match kind {
            CODE_LOAD => names.extend(load(body)),
            CODE_MOVE => moved(body, &mut names),
            _ => {}
        }
        at = at.saturating_add(size);
    }
    LiveNames::new(names)
}

/// Process, thread, address twice, size, number, name.
fn load(body: &[u8]) -> Option<LiveName> {
    let (start, size) = (Fields(body).u64(16), Fields(body).u64(24));
    let name = string(body, 40);
    let end = start.checked_add(size).filter(|&end| end > start)?;
    (!name.is_empty()).then(|| LiveName {
        start,
        end,
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

/// Process, thread, address, old and new address, size, number.
fn moved(body: &[u8], names: &mut Vec<LiveName>) {
    let (old, new, size) = (
        Fields(body).u64(16),
        Fields(body).u64(24),
        Fields(body).u64(32),
    );
    let known = names.iter().rev().find(|n| n.start == old);
    let (Some(known), Some(end)) = (known, new.checked_add(size)) else {
        return;
    };
    let name = known.name.clone();
    names.push(LiveName {
        start: new,
        end,
        name,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64], name: &[u8]) -> Vec<u8> {
        let size = RECORD_BYTES + words.len() * 8 + name.len();
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(size as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        words
            .iter()
            .for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
        bytes.extend_from_slice(name);
        bytes
    }

    fn dump() -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, 40, 0, 0, 0]);
        bytes.resize(40, 0);
        bytes.extend(record(
            CODE_LOAD,
            &[0, 0x1000, 0x1000, 0x40, 1],
            b"work\0\x90\x90",
        ));
        bytes.extend(record(9, &[], b""));
        bytes.extend(record(CODE_MOVE, &[0, 0, 0x1000, 0x2000, 0x40, 1], b""));
        bytes
    }

    #[test]
    fn loaded_and_moved_code_has_its_name() {
        let names = jitdump(&dump());
        assert_eq!(names.find(0x1010).unwrap().name, "work");
        assert_eq!(names.find(0x203f).unwrap().name, "work");
        assert!(names.find(0x2040).is_none());
    }

    #[test]
    fn cut_and_forged_dumps_give_what_is_whole() {
        let whole = dump();
        for cut in 0..whole.len() {
            assert!(jitdump(&whole[..cut]).len() <= 2);
        }
        let mut forged = whole;
        // A record of no bytes would go on for ever.
        forged[44..48].fill(0);
        assert!(jitdump(&forged).is_empty());
        assert!(jitdump(b"nonsense").is_empty());
    }
}
