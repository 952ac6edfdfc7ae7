//! Durations as Prometheus writes them: `1h30m`, `15s`, `100ms`.

use std::time::Duration;

/// Units in the order in which they may stand, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Reads a duration.
///
/// # Errors
/// A text that says what is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write it like 15s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let found = UNITS.iter().position(|(name, _)| *name == &rest[..letters]);
        let index = found.filter(|index| *index >= next_unit).ok_or_else(bad)?;
        next_unit = index + 1;
        let part = number.checked_mul(UNITS[index].1).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = &rest[letters..];
    }
    if next_unit == 0 {
        Err(bad())
    } else {
        Ok(Duration::from_millis(total))
    }
}

/// Writes a duration the same way.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    for (name, millis) in UNITS {
        // as Prometheus: years, weeks and days only when they leave nothing over
        let exact = !matches!(name, "y" | "w") || rest.is_multiple_of(millis);
        if exact && rest >= millis {
            out.push_str(&format!("{}{name}", rest / millis));
            rest %= millis;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_durations_are_read_and_written_back() {
        for (text, millis) in [
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("100ms", 100),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn wrong_order_missing_unit_and_overflow_are_refused() {
        for text in [
            "",
            "10",
            "s",
            "1s1m",
            "1.5s",
            "-1s",
            "1s ",
            "99999999999999999999s",
            "999999999999999y",
            "1é",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
