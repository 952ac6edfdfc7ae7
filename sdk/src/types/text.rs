//! Go's legacy text forms of a profile (`debug=1`), which `go tool pprof` reads as well.

use std::fmt::Write;

use pilotlight_profile::{Location, Profile};

/// Heap, contention or count form, by the value columns that the profile has.
pub(crate) fn render(name: &str, profile: &Profile) -> Vec<u8> {
    let column = |ty: &str| {
        let mut types = profile.sample_types.iter();
        types.position(|known| profile.strings.get(known.ty) == ty.as_bytes())
    };
    let heap = [
        "inuse_objects",
        "inuse_space",
        "alloc_objects",
        "alloc_space",
    ]
    .map(column);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match (heap, column("delay"), column("contentions")) {
        ([Some(a), Some(b), Some(c), Some(d)], ..) => heap_form(&mut out, profile, [a, b, c, d]),
        (_, Some(delay), Some(count)) => contention_form(&mut out, name, profile, delay, count),
        _ => count_form(&mut out, name, profile),
    };
    out.into_bytes()
}

/// Values are those of the whole program, not of the samples: `heapprofile` without a rate tells
/// readers not to scale them.
fn heap_form(out: &mut String, profile: &Profile, columns: [usize; 4]) -> std::fmt::Result {
    let [objects, bytes, all_objects, all_bytes] = columns.map(|column| profile.total(column));
    writeln!(
        out,
        "heap profile: {objects}: {bytes} [{all_objects}: {all_bytes}] @ heapprofile"
    )?;
    each_row(out, profile, |out, values| {
        let [objects, bytes, all_objects, all_bytes] = columns.map(|column| values[column]);
        write!(out, "{objects}: {bytes} [{all_objects}: {all_bytes}]")
    })
}

fn contention_form(
    out: &mut String,
    name: &str,
    profile: &Profile,
    delay: usize,
    count: usize,
) -> std::fmt::Result {
    let title = if name == "mutex" {
        "mutex"
    } else {
        "contention"
    };
    writeln!(
        out,
        "--- {title}:\ncycles/second=1000000000\nsampling period=1"
    )?;
    each_row(out, profile, |out, values| {
        write!(out, "{} {}", values[delay], values[count])
    })
}

fn count_form(out: &mut String, name: &str, profile: &Profile) -> std::fmt::Result {
    writeln!(out, "{name} profile: total {}", profile.total(0))?;
    each_row(out, profile, |out, values| {
        write!(out, "{}", values.first().copied().unwrap_or(0))
    })
}

/// Samples, the largest first: values by `row`, addresses, then a line for each frame.
fn each_row(
    out: &mut String,
    profile: &Profile,
    row: impl Fn(&mut String, &[i64]) -> std::fmt::Result,
) -> std::fmt::Result {
    let mut samples: Vec<_> = profile.iter_samples().collect();
    samples.sort_by_key(|sample| std::cmp::Reverse(sample.values.first().copied()));
    for sample in samples {
        row(out, sample.values)?;
        out.push_str(" @");
        for &index in sample.stack {
            write!(out, " {:#x}", profile.location(index as usize).address)?;
        }
        out.push('\n');
        for &index in sample.stack {
            frames(out, profile, &profile.location(index as usize))?;
        }
        out.push('\n');
    }
    Ok(())
}

fn frames(out: &mut String, profile: &Profile, location: &Location<'_>) -> std::fmt::Result {
    let address = location.address;
    for line in location.lines {
        let function = profile.functions.get(line.function.index());
        let function = function.copied().unwrap_or_default();
        write!(out, "#\t{address:#x}\t")?;
        one_line(out, &profile.strings.text(function.name));
        out.push('\t');
        one_line(out, &profile.strings.text(function.filename));
        writeln!(out, ":{}", line.line)?;
    }
    if location.lines.is_empty() {
        writeln!(out, "#\t{address:#x}")?;
    }
    Ok(())
}

/// Names may hold anything; a line break would forge a row.
fn one_line(out: &mut String, text: &str) {
    out.extend(text.chars().map(|c| if c.is_control() { '?' } else { c }));
}
