//! Points in time as people write them.

/// Reads `now`, `now-15m`, Unix seconds / milliseconds / microseconds / nanoseconds (told apart by
/// magnitude) or RFC 3339. The answer is Unix nanoseconds.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse(text: &str, now_ns: i64) -> Result<i64, String> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("now") {
        return relative(rest.trim(), now_ns).ok_or_else(|| {
            format!("{text}: after now comes nothing, or - or + and a duration such as 15m")
        });
    }
    if let Ok(number) = text.parse::<f64>() {
        return numeric(text, number);
    }
    rfc3339(text).ok_or_else(|| {
        format!(
            "{text}: not a time; write now-15m, Unix seconds or milliseconds, \
             or 2026-01-31T12:00:00Z"
        )
    })
}

fn relative(rest: &str, now_ns: i64) -> Option<i64> {
    match rest.chars().next() {
        None => Some(now_ns),
        Some('-') => Some(now_ns.saturating_sub(duration(&rest[1..])?)),
        // `+` comes as a space when a link forgets to escape it.
        Some('+') => Some(now_ns.saturating_add(duration(&rest[1..])?)),
        _ => None,
    }
}

/// Magnitudes do not overlap for any year from 1973 to 5138.
fn numeric(text: &str, number: f64) -> Result<i64, String> {
    let magnitude = number.abs();
    let scale: f64 = match magnitude {
        m if m < 1e11 => 1e9,
        m if m < 1e14 => 1e6,
        m if m < 1e17 => 1e3,
        _ => 1.0,
    };
    match text.parse::<i64>() {
        // Exact for integers: f64 holds nanoseconds only to a quarter of a microsecond.
        Ok(exact) => Ok(exact.saturating_mul(scale as i64)),
        Err(_) if number.is_finite() => Ok((number * scale) as i64),
        Err(_) => Err(format!("{text}: not a time")),
    }
}

/// Reads a duration such as `15m`, `1h30m`, `250ms`, `10` (seconds). Nanoseconds; `None` when it is
/// not one.
pub fn duration(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" | "" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            "w" => 604_800e9,
            "y" => 31_536_000e9,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[letters..];
    }
    (total < 9e18).then_some(total as i64)
}

fn rfc3339(text: &str) -> Option<i64> {
    let field = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let mark = |at: usize, wanted: &[u8]| {
        text.as_bytes()
            .get(at)
            .is_some_and(|byte| wanted.contains(byte))
            .then_some(())
    };
    mark(4, b"-")?;
    mark(7, b"-")?;
    mark(10, b"Tt ")?;
    mark(13, b":")?;
    mark(16, b":")?;
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &text[19..];
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(fraction.len());
        let digits = &fraction[..end.min(9)];
        nanos = format!("{digits:0<9}").parse().ok()?;
        rest = &fraction[end..];
    }
    let offset = zone(rest)?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Seconds east of UTC.
fn zone(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.get(..1)? {
        "+" | " " => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_767_225_600_000_000_000; // 2026-01-01T00:00:00Z

    #[test]
    fn every_way_of_writing_a_time_is_read() {
        for (text, expected) in [
            ("now", NOW),
            ("now-15m", NOW - 900_000_000_000),
            ("now-1h30m", NOW - 5_400_000_000_000),
            ("now+1s", NOW + 1_000_000_000),
            ("1767225600", NOW),
            ("1767225600.5", NOW + 500_000_000),
            ("1767225600000", NOW),
            ("1767225600000000", NOW),
            ("1767225600000000001", NOW + 1),
            ("0", 0),
            ("2026-01-01T00:00:00Z", NOW),
            ("2026-01-01T01:30:00.25+01:30", NOW + 250_000_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000_000_000),
            ("1969-12-31T23:59:59Z", -1_000_000_000),
        ] {
            assert_eq!(parse(text, NOW), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "nowhere",
            "now-",
            "now-1x",
            "2026-13-01T00:00:00Z",
            "2026-01-01",
            "inf",
        ] {
            assert!(parse(text, NOW).is_err(), "{text}");
        }
    }
}
