//! Folded stacks: `main;parse;copy 12`, or a stack a line that counts once.

use pilotlight_profile::{LocationId, Profile};

use super::stacks::{Numbers, Stacks};

/// Reads folded text. `counted` tells lines that end in a number from lines that count once.
///
/// # Errors
/// With the line that has no number, or of a limit.
pub fn profile(text: &[u8], counted: bool, numbers: &Numbers) -> Result<Profile, String> {
    let mut out = Stacks::new(numbers);
    let mut path = Vec::new();
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
        parts(&mut out, stack, &mut path);
        out.add(&path, value)?;
    }
    Ok(out.finish())
}

/// Frames of `a;b;c`.
pub fn parts(out: &mut Stacks, stack: &[u8], path: &mut Vec<LocationId>) {
    path.clear();
    path.extend(
        stack
            .split(|&byte| byte == b';')
            .map(|name| out.named(name)),
    );
}

fn split(line: &[u8]) -> Option<(&[u8], i64)> {
    let space = line.iter().rposition(|&byte| byte == b' ')?;
    let number = std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()?;
    Some((line[..space].trim_ascii_end(), number))
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::super::stacks::PERIOD_NS;
    use super::*;
    use pilotlight_profile::Limits;

    #[test]
    fn counted_and_uncounted_lines_become_cpu_time() {
        let numbers = Numbers {
            kind: kind::CPU,
            period_ns: PERIOD_NS,
            limits: &Limits::default(),
        };
        let folded = profile(b"main;a b 3\nmain 2\n\n", true, &numbers).unwrap();
        assert_eq!([folded.total(0), folded.total(1)], [5, 50_000_000]);
        let lines = profile(b"main;a\nmain;a\nmain\n", false, &numbers).unwrap();
        assert_eq!(lines.total(0), 3);
        let error = profile(b"main 1\nmain;a\n", true, &numbers).unwrap_err();
        assert_eq!(error, "line 2 does not end in a number");
    }
}
