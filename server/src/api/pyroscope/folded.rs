//! Folded stacks as profiles: `main;parse;copy 12`, or a stack a line that counts once.

use std::collections::HashMap;

use pilotlight_profile::{LabelSetId, LocationId, Profile, ProfileBuilder};

/// What the request says of the numbers.
pub struct Numbers<'a> {
    /// `samples`, `objects`, `bytes`, …
    pub units: &'a str,
    /// Samples a second, for `samples`.
    pub sample_rate: i64,
}

/// Reads folded text. `counted` tells lines that end in a number from lines that count once.
///
/// # Errors
/// With the line that has no number.
pub fn profile(text: &[u8], counted: bool, numbers: &Numbers) -> Result<Profile, String> {
    let mut out = ProfileBuilder::new();
    let period = match numbers.units {
        "samples" | "" => Some(1_000_000_000 / numbers.sample_rate.max(1)),
        _ => None,
    };
    match (period, numbers.units) {
        (Some(period), _) => {
            out.sample_type("samples", "count");
            out.sample_type("cpu", "nanoseconds");
            out.period("cpu", "nanoseconds", period);
        }
        (None, "bytes") => out.sample_type("alloc_space", "bytes"),
        (None, "objects") => out.sample_type("alloc_objects", "count"),
        (None, units) => out.sample_type(units, "count"),
    }
    let mut locations = HashMap::new();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let (stack, value) = if counted {
            split(line).ok_or_else(|| format!("line {} does not end in a number", at + 1))?
        } else {
            (line, 1)
        };
        let mut path: Vec<LocationId> = stack
            .split(|&byte| byte == b';')
            .map(|name| location(&mut out, &mut locations, name))
            .collect();
        path.reverse();
        let stack = out.stack(&path);
        match period {
            Some(period) => {
                out.sample(stack, LabelSetId(0), &[value, value.saturating_mul(period)]);
            }
            None => out.sample(stack, LabelSetId(0), &[value]),
        }
    }
    Ok(out.finish())
}

fn split(line: &[u8]) -> Option<(&[u8], i64)> {
    let space = line.iter().rposition(|&byte| byte == b' ')?;
    let number = std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()?;
    Some((line[..space].trim_ascii_end(), number))
}

fn location<'a>(
    out: &mut ProfileBuilder,
    known: &mut HashMap<&'a [u8], LocationId>,
    name: &'a [u8],
) -> LocationId {
    *known.entry(name).or_insert_with(|| {
        let name = out.string(name);
        let file = out.string(b"");
        let function = out.function(name, name, file, 0);
        out.location(None, 0, &[(function, 0)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Numbers = Numbers {
        units: "samples",
        sample_rate: 100,
    };

    #[test]
    fn counted_and_uncounted_lines_become_cpu_time() {
        let folded = profile(b"main;a b 3\nmain 2\n\n", true, &CPU).unwrap();
        assert_eq!([folded.total(0), folded.total(1)], [5, 50_000_000]);
        let lines = profile(b"main;a\nmain;a\nmain\n", false, &CPU).unwrap();
        assert_eq!(lines.total(0), 3);
    }

    #[test]
    fn a_line_without_a_number_is_named() {
        let error = profile(b"main 1\nmain;a\n", true, &CPU).unwrap_err();
        assert_eq!(error, "line 2 does not end in a number");
    }
}
