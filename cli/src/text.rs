//! Printing.

use std::io::{IsTerminal, Write};

/// ANSI colour numbers.
pub const RED: u8 = 31;
/// For what should be seen first.
pub const BOLD: u8 = 1;

/// A line of data, to standard output; a closed pipe is not an error.
pub fn data(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A line of progress or news, to standard error.
pub fn news(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Coloured when both outputs are terminals and NO_COLOR is not set.
pub fn paint(code: u8, text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if plain || !terminal {
        return text.to_owned();
    }
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A value with its unit, three digits.
pub fn value(value: f64, unit: &str) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let step = steps
            .iter()
            .find(|(size, _)| value.abs() >= *size)
            .or(steps.last());
        step.map_or_else(String::new, |(size, name)| {
            format!("{:.2} {name}", value / size)
        })
    };
    match unit {
        "nanoseconds" => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        "bytes" => scaled(&[
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1024.0, "KiB"),
            (1.0, "B"),
        ]),
        _ => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_a_readable_unit() {
        assert_eq!(value(1_234_000_000.0, "nanoseconds"), "1.23 s");
        assert_eq!(value(0.0, "nanoseconds"), "0.00 ns");
        assert_eq!(value(2048.0, "bytes"), "2.00 KiB");
        assert_eq!(value(3.0, "count"), "3 count");
    }
}
