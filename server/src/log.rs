//! One line an event on standard error: time, level, what happened, then `key=value` pairs.
//!
//! Labels, file names and errors are text that others wrote: whatever could end the line, move the
//! cursor, colour the terminal or turn the direction of writing stands escaped and quoted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Something that is as it should be.
pub fn info(what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) {
    write("info", what, pairs);
}

/// Something that an operator should look at.
pub fn warn(what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) {
    write("warn", what, pairs);
}

/// Something that went wrong and will not mend itself.
pub fn error(what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) {
    write("error", what, pairs);
}

fn write(level: &str, what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let line = line(since.unwrap_or_default().as_secs(), level, what, pairs);
    // One write: lines of several threads do not mix. A closed stderr is no reason to stop.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn line(unix_s: u64, level: &str, what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) -> String {
    let mut out = format!("time={} level={level} msg=", utc(unix_s));
    value(&mut out, what);
    for (key, text) in pairs {
        let _ = write!(out, " {key}=");
        value(&mut out, &text.to_string());
    }
    out.push('\n');
    out
}

/// Longer values are cut: a label may have a megabyte.
const MOST_CHARS: usize = 2000;

fn value(out: &mut String, text: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+".contains(c);
    if !text.is_empty() && text.len() <= MOST_CHARS && text.chars().all(plain) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for (at, c) in text.chars().enumerate() {
        if at == MOST_CHARS {
            out.push('…');
            break;
        }
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() || invisible(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Changes how its neighbours look without being seen: directions, joiners, line ends.
fn invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// RFC 3339, in whole seconds.
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Years that begin in March, so that the leap day is the last:
    // https://howardhinnant.github.io/date_algorithms.html#civil_from_days
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_stands_in_it() {
        let hostile = "a\x1b[31m\r\nlevel=error \"x\" \u{202e}txt\0";
        let long = "é".repeat(1_000_000);
        let plain = line(
            1_796_000_400,
            "warn",
            "damaged",
            &[("segment", &"a-1.plseg")],
        );
        assert_eq!(
            plain,
            "time=2026-11-30T01:00:00Z level=warn msg=damaged segment=a-1.plseg\n"
        );
        let out = line(
            0,
            "warn",
            "two words",
            &[("reason", &hostile), ("long", &long), ("none", &"")],
        );
        assert_eq!(out.matches('\n').count(), 1, "{out}");
        assert!(out.len() < 5000);
        assert!(
            out.starts_with(
                "time=1970-01-01T00:00:00Z level=warn msg=\"two words\" \
             reason=\"a\\u{1b}[31m\\u{d}\\nlevel=error \\\"x\\\" \\u{202e}txt\\u{0}\" long=\"éé"
            ),
            "{out}"
        );
        assert!(out.ends_with("é…\" none=\"\"\n"));
        let printable = |c: char| c == '\n' || !(c.is_control() || invisible(c));
        assert!(out.chars().all(printable));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_323_200, "2026-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), text);
        }
    }
}
