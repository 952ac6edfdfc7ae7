//! Go's rules for query strings (`net/url`) and numbers (`strconv`), where clients can see them.

/// First value of `key`, decoded; empty when it is absent, as Go's `FormValue` does.
pub(crate) fn form_value(query: &str, key: &str) -> Vec<u8> {
    query
        .split('&')
        .filter(|pair| !pair.contains(';'))
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        })
        .find(|(name, _)| name == key.as_bytes())
        .map(|(_, value)| value)
        .unwrap_or_default()
}

/// Percent-decoding; `None` for a bad escape. In queries (`plus`) a plus sign is a space.
pub(super) fn decode(text: &str, plus: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'+' if plus => b' ',
            other => other,
        });
    }
    Some(out)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// `seconds` of a CPU profile: anything that is no positive integer means 30.
pub(super) fn seconds(query: &str) -> u64 {
    let value = form_value(query, "seconds");
    std::str::from_utf8(&value)
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        .filter(|&seconds| seconds > 0)
        .map_or(30, i64::unsigned_abs)
}

/// Go's `ParseUint(text, 0, 64)` with its error ignored: 0 for bad syntax, the maximum on overflow.
pub(super) fn parse_uint(text: &[u8]) -> u64 {
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        [b'0', b'b' | b'B', rest @ ..] => (rest, 2),
        [b'0', b'o' | b'O', rest @ ..] => (rest, 8),
        [b'0', _, ..] => (text, 8),
        _ => (text, 10),
    };
    let after_prefix = digits.len() < text.len();
    if digits.is_empty() || !underscores_separate_digits(digits, after_prefix) {
        return 0;
    }
    let mut value: Option<u64> = Some(0);
    for &byte in digits.iter().filter(|&&byte| byte != b'_') {
        let Some(digit) = char::from(byte).to_digit(radix) else {
            return 0;
        };
        value = value
            .and_then(|value| value.checked_mul(u64::from(radix)))
            .and_then(|value| value.checked_add(u64::from(digit)));
    }
    value.unwrap_or(u64::MAX)
}

fn underscores_separate_digits(digits: &[u8], after_prefix: bool) -> bool {
    let first_is_fine = after_prefix || digits.first() != Some(&b'_');
    first_is_fine && digits.last() != Some(&b'_') && !digits.windows(2).any(|pair| pair == b"__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_value_takes_the_first_and_skips_bad_pairs() {
        assert_eq!(form_value("a=1&seconds=5&seconds=9", "seconds"), b"5");
        assert_eq!(form_value("seconds=%zz&seconds=7", "seconds"), b"7");
        assert_eq!(form_value("seconds=1;x&b=2", "seconds"), b"");
        assert_eq!(form_value("%73econds=a+b%2B", "seconds"), b"a b+");
        assert_eq!(form_value("seconds", "seconds"), b"");
    }

    #[test]
    fn seconds_falls_back_to_thirty() {
        for query in [
            "",
            "seconds=",
            "seconds=0",
            "seconds=-3",
            "seconds=1.5",
            "seconds=+5",
            "seconds=x",
        ] {
            assert_eq!(seconds(query), 30, "{query}");
        }
        assert_eq!(seconds("seconds=99999999999999999999"), 30);
        assert_eq!(seconds("seconds=%2B5"), 5);
        assert_eq!(seconds("seconds=007"), 7);
    }

    #[test]
    fn parse_uint_follows_go_base_zero() {
        let cases: [(&str, u64); 15] = [
            ("0x1f", 31),
            ("0X1F", 31),
            ("017", 15),
            ("0b101", 5),
            ("0o17", 15),
            ("42", 42),
            ("4_2", 42),
            ("0x_1f", 31),
            ("_42", 0),
            ("4__2", 0),
            ("42_", 0),
            ("0x", 0),
            ("08", 0),
            ("-1", 0),
            ("0x1ffffffffffffffff", u64::MAX),
        ];
        for (text, value) in cases {
            assert_eq!(parse_uint(text.as_bytes()), value, "{text}");
        }
        assert_eq!(parse_uint(b""), 0);
    }
}
