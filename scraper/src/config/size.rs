//! Sizes as Prometheus writes them; units are powers of 1024.

/// Reads `65536`, `64KB`, `64KiB`, `1.5MB`.
///
/// # Errors
/// A text that says what is expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size; write it like 64MB or 65536");
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" | "B" => 0,
        "KB" | "KiB" | "K" => 10,
        "MB" | "MiB" | "M" => 20,
        "GB" | "GiB" | "G" => 30,
        "TB" | "TiB" | "T" => 40,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let bytes = number * (1_u64 << shift) as f64;
    // beyond 2^53 a double no longer counts single bytes
    if bytes > 9e15 {
        Err(bad())
    } else {
        Ok(bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_nonsense_is_refused() {
        assert_eq!(parse_size("64MB"), Ok(64 << 20));
        assert_eq!(parse_size("1.5KiB"), Ok(1536));
        assert_eq!(parse_size("0"), Ok(0));
        for text in [
            "",
            "MB",
            "10 MB",
            "-1",
            "1e3",
            "10XB",
            "99999999TB",
            "1.2.3",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
