//! `/tmp/perf-PID.map`: what runtimes with a just-in-time compiler write for `perf`.

use super::{LiveName, LiveNames};

/// Functions of a map: `START SIZE NAME` a line, the numbers in hexadecimal; names may have blanks.
/// A runtime that moves code writes it again, so the last line of an address holds.
///
/// ```
/// use pilotlight_symbolize::live::perf_map;
///
/// let names = perf_map(b"7f0000001000 40 LazyCompile:*work /srv/a.js:3\n");
/// assert_eq!(names.find(0x7f00_0000_1020).unwrap().name, "LazyCompile:*work /srv/a.js:3");
/// assert!(names.find(0x7f00_0000_1040).is_none());
/// ```
#[must_use]
pub fn perf_map(text: &[u8]) -> LiveNames {
    let names = text.split(|&b| b == b'\n').filter_map(line);
    LiveNames::new(names.collect())
}

fn line(line: &[u8]) -> Option<LiveName> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim_end().splitn(3, ' ');
    let number = |word: Option<&str>| {
        let word = word?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (number(words.next())?, number(words.next())?);
    let name = words.next().filter(|n| !n.is_empty())?;
    Some(LiveName {
        start,
        end: start.checked_add(size).filter(|&end| end > start)?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::perf_map;

    #[test]
    fn the_last_line_of_an_address_holds_and_damage_is_left_out() {
        let names = perf_map(
            b"10 20 old\n10 8 new\n18 8 next\nzz 1 x\n50 0 none\nffffffffffffffff 2 x\n60 5\n",
        );
        assert_eq!(names.len(), 2);
        assert_eq!(names.find(0x12).unwrap().name, "new");
        assert_eq!(names.find(0x18).unwrap().name, "next");
        assert!(names.find(0x20).is_none());
    }
}
