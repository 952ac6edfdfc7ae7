//! Timestamps as text.

/// Nanoseconds since the epoch as RFC 3339 in UTC with milliseconds; 0 is Go's zero time, "never".
pub fn rfc3339(unix_ns: i64) -> String {
    if unix_ns == 0 {
        return "0001-01-01T00:00:00Z".to_owned();
    }
    let millis = unix_ns.div_euclid(1_000_000);
    let (days, in_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1000 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        in_day % 1000
    )
}

/// Days since 1970-01-01 to a date (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_as_date_writes_them() {
        assert_eq!(rfc3339(0), "0001-01-01T00:00:00Z");
        assert_eq!(
            rfc3339(1_764_429_790_123_456_789),
            "2025-11-29T15:23:10.123Z"
        );
        assert_eq!(rfc3339(951_782_400_000_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(-1_000_000), "1969-12-31T23:59:59.999Z");
    }
}
