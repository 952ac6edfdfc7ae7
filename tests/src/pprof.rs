//! The reference tool: `go tool pprof`.

use std::path::Path;
use std::process::Command;

/// One row of `-top`: flat and cumulative value in the smallest unit, and the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Value of the function itself.
    pub flat: f64,
    /// Value of the function and what it called.
    pub cumulative: f64,
    /// The name as pprof prints it.
    pub function: String,
}

/// What `-top` says.
pub struct Top {
    /// Sum over all samples.
    pub total: f64,
    /// All rows, nothing dropped.
    pub rows: Vec<Row>,
}

impl Top {
    /// Cumulative share of the function whose name contains `name`; its closures, which run inside
    /// it, have a name of their own and a smaller share.
    #[must_use]
    pub fn share(&self, name: &str) -> f64 {
        let named = self.rows.iter().filter(|row| row.function.contains(name));
        named.map(|row| row.cumulative).fold(0.0, f64::max) / self.total
    }
}

/// Runs `go tool pprof -top` over files or URLs; `unit` such as `ns` or `count`.
///
/// # Errors
/// What the tool printed, when it fails.
pub fn top(
    sources: &[&str],
    sample_index: &str,
    unit: &str,
    scratch: &Path,
) -> Result<Top, String> {
    let output = Command::new("go")
        .args([
            "tool",
            "pprof",
            "-top",
            "-nodecount=1000000",
            "-nodefraction=0",
            "-edgefraction=0",
        ])
        .arg(format!("-sample_index={sample_index}"))
        .arg(format!("-unit={unit}"))
        .args(sources)
        .env("PPROF_TMPDIR", scratch)
        .output()
        .map_err(|error| format!("go is needed: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!(
            "go tool pprof {sources:?}: {}\n{text}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    parse(&text).ok_or_else(|| format!("cannot read the output of go tool pprof:\n{text}"))
}

/// `Showing nodes accounting for A, P% of T total`, a header, then `flat flat% sum% cum cum% name`.
fn parse(text: &str) -> Option<Top> {
    let summary = text
        .lines()
        .find(|line| line.starts_with("Showing nodes"))?;
    let total = number(summary.split(" of ").last()?.split(' ').next()?)?;
    let rows = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat"))
        .skip(1)
        .filter_map(row)
        .collect();
    Some(Top { total, rows })
}

fn row(line: &str) -> Option<Row> {
    let mut rest = line.trim_start();
    let mut words = Vec::new();
    for _ in 0..5 {
        let (word, after) = rest.split_once(' ')?;
        words.push(word);
        rest = after.trim_start();
    }
    Some(Row {
        flat: number(words.first()?)?,
        cumulative: number(words.get(3)?)?,
        function: rest.to_string(),
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim_end_matches(|c: char| c.is_alphabetic())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_top_are_read_with_names_that_hold_spaces() {
        let text = "Type: cpu\nShowing nodes accounting for 30ns, 100% of 30ns total\n      flat  flat%   sum%        cum   cum%\n     \
                    20ns 66.67% 66.67%       30ns   100%  <a as B>::c (inline)\n     10ns 33.33%   100%       10ns 33.33%  d\n";
        let top = parse(text).unwrap();
        assert_eq!(top.total, 30.0);
        assert_eq!(
            top.rows[0],
            Row {
                flat: 20.0,
                cumulative: 30.0,
                function: "<a as B>::c (inline)".into()
            }
        );
        assert_eq!(top.rows[1].function, "d");
    }
}
