//! `/proc/kallsyms`.

use super::{LiveName, LiveNames};

/// Functions of the kernel and its modules; empty when the system hides addresses (all are 0).
///
/// ```
/// use pilotlight_symbolize::live::kallsyms;
///
/// let names = kallsyms(b"ffffffff81000000 T _stext\nffffffffc0001000 t probe\t[driver]\n");
/// assert_eq!(names.find(0xffff_ffff_8100_0010).unwrap().name, "_stext");
/// assert_eq!(names.find(0xffff_ffff_c000_1001).unwrap().name, "probe [driver]");
/// ```
#[must_use]
pub fn kallsyms(text: &[u8]) -> LiveNames {
    let names = text.split(|&b| b == b'\n').filter_map(line);
    LiveNames::new(names.collect())
}

fn line(line: &[u8]) -> Option<LiveName> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16)
        .ok()
        .filter(|&a| a != 0)?;
    let kind = words.next()?;
    // Text, weak ones too; the rest is data.
    if !matches!(kind, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = words.next()?;
    let name = match words.next() {
        Some(module) => format!("{name} {module}"),
        None => name.to_owned(),
    };
    Some(LiveName {
        start,
        end: u64::MAX,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::kallsyms;

    #[test]
    fn data_and_hidden_addresses_are_left_out() {
        assert!(kallsyms(b"0000000000000000 T _stext\n0000000000000000 t x\n").is_empty());
        let names = kallsyms(b"ffffffff81000000 T a\nffffffff81000100 D data\n\xff\n nonsense\n");
        assert_eq!(names.len(), 1);
        assert_eq!(names.find(0xffff_ffff_8100_0200).unwrap().name, "a");
        assert!(names.find(0x1000).is_none());
    }
}
