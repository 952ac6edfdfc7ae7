//! `/tmp/perf-PID.map`: lines of `start size name`, written by runtimes for what they compiled.

use super::Ranges;

/// Reads whole lines into `ranges`, later ones win; returns the bytes that were read, so that a line which is still being
/// written is read the next time.
pub fn read(text: &[u8], ranges: &mut Ranges) -> usize {
    let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
        return 0;
    };
    for line in text[..end].split(|&byte| byte == b'\n') {
        if let Some((start, size, name)) = parse(&String::from_utf8_lossy(line)) {
            ranges.add(start, size, name);
        }
    }
    end + 1
}

/// Hexadecimal numbers, with `0x` (HotSpot) or without (V8); names may hold spaces.
fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.trim_end().split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, size) = (hex(start)?, hex(size)?);
    (!name.is_empty()).then_some((start, size, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_v8_and_hotspot_are_read_and_half_lines_wait() {
        let mut ranges = Ranges::default();
        let text = b"1000 80 JS:~hot /tmp/a b.js:1:2\n0x00002000 0x40 void A.b(int, long)\nbad\n\n1000 40 JS:*hot /tmp/a b.js:1:2\n3000 10 half";
        let read = read(text, &mut ranges);
        assert_eq!(&text[read..], b"3000 10 half");
        assert_eq!(ranges.find(0x1000), Some("JS:*hot /tmp/a b.js:1:2"));
        assert_eq!(ranges.find(0x203f), Some("void A.b(int, long)"));
        assert_eq!((ranges.find(0x1040), ranges.find(0x3000)), (None, None));
    }
}
