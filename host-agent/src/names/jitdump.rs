//! `jit-PID.dump` (`tools/perf/Documentation/jitdump-specification.txt` of the kernel): names of code that is made and
//! moved while a process runs.

use super::Ranges;

const MAGIC: u32 = 0x4a69_5444;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Bytes of a record's header: kind, size, time.
const HEADER: usize = 16;

/// Length of the file's header, when it is one of this machine's byte order.
pub fn header(bytes: &[u8]) -> Option<usize> {
    let size = half(bytes, 8)? as usize;
    (half(bytes, 0)? == MAGIC && (40..=4096).contains(&size)).then_some(size)
}

/// Reads whole records into `ranges`; returns the bytes that were read. `None`: this is no record, and what follows
/// cannot be read.
pub fn read(bytes: &[u8], ranges: &mut Ranges) -> Option<usize> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEADER) {
        let size = half(rest, 4)? as usize;
        if size < HEADER {
            return None;
        }
        let Some(record) = rest.get(..size) else {
            break;
        };
        match half(rest, 0)? {
            LOAD => load(record, ranges),
            MOVE => moved(record, ranges),
            _ => {}
        }
        at += size;
    }
    Some(at)
}

/// pid, tid, vma, address, size, number, name, code.
fn load(record: &[u8], ranges: &mut Ranges) {
    let (Some(start), Some(size), Some(name)) =
        (word(record, 32), word(record, 40), record.get(56..))
    else {
        return;
    };
    let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    if !name.is_empty() {
        ranges.add(start, size, &String::from_utf8_lossy(name));
    }
}

/// pid, tid, vma, old address, new address, size, number.
fn moved(record: &[u8], ranges: &mut Ranges) {
    if let (Some(from), Some(to), Some(size)) =
        (word(record, 32), word(record, 40), word(record, 48))
    {
        ranges.shift(from, to, size);
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64], tail: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend(((HEADER + words.len() * 8 + tail.len()) as u32).to_ne_bytes());
        out.extend(0u64.to_ne_bytes());
        out.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        out.extend(tail);
        out
    }

    #[test]
    fn code_is_named_where_it_was_made_and_where_it_moved() {
        let mut file = record(LOAD, &[0, 0, 0x1000, 0x20, 1], b"first\0\x90\x90");
        file.extend(record(3, &[], b""));
        file.extend(record(LOAD, &[0, 0, 0x2000, 0x20, 2], b"second\0"));
        file.extend(record(MOVE, &[0, 0, 0x1000, 0x5000, 0x20, 1], b""));
        let whole = file.len();
        file.extend(&record(LOAD, &[0, 0, 0x7000, 0x20, 3], b"half\0")[..20]);
        let mut ranges = Ranges::default();
        assert_eq!(read(&file, &mut ranges), Some(whole));
        assert_eq!(
            (ranges.find(0x1000), ranges.find(0x5000)),
            (None, Some("first"))
        );
        assert_eq!(
            (ranges.find(0x201f), ranges.find(0x7000)),
            (Some("second"), None)
        );
        assert_eq!(read(&[0; 64], &mut ranges), None);
    }

    #[test]
    fn the_header_is_checked() {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0, 0, 0, 40, 0, 0, 0]);
        assert_eq!(header(&bytes), Some(40));
        bytes[0] ^= 1;
        assert_eq!(header(&bytes), None);
    }
}
