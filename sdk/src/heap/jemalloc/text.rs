//! The text that jemalloc dumps (`heap_v2`).
//!
//! ```text
//! heap_v2/524288
//!   t*: 28106: 56637512 [0: 0]
//! @ 0x5f86da8 0x5f5a1dc
//!   t*: 13: 6688 [20: 9000]
//!   t3: 12: 6496 [19: 8800]
//!
//! MAPPED_LIBRARIES:
//! ```
//! Stacks are return addresses, innermost first; `t*` is the sum of all threads: objects and bytes in
//! use, objects and bytes ever.

use crate::sites::Row;

/// What a dump says.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) interval_bytes: u64,
    /// Counters: objects and bytes in use, objects and bytes ever, as sampled.
    pub(super) rows: Vec<Row>,
}

/// Reads a dump; the error is the number of the line that makes no sense.
pub(super) fn parse(bytes: &[u8]) -> Result<Heap, usize> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().zip(1usize..);
    let first = lines
        .next()
        .and_then(|(line, _)| line.strip_prefix("heap_v2/"));
    let interval = first.and_then(|number| number.trim().parse().ok());
    let mut heap = Heap {
        interval_bytes: interval.ok_or(1usize)?,
        rows: Vec::new(),
    };
    let mut frames = None;
    for (line, number) in lines {
        let line = line.trim();
        if line.starts_with("MAPPED_LIBRARIES") {
            break;
        } else if let Some(stack) = line.strip_prefix('@') {
            frames = Some(addresses(stack).ok_or(number)?);
        } else if let Some(sums) = line.strip_prefix("t*:") {
            let counters = counters(sums).ok_or(number)?;
            // The first sums are those of the whole program.
            heap.rows.extend(frames.take().map(|frames| Row {
                frames,
                truncated: false,
                is_overflow: false,
                counters,
            }));
        }
    }
    Ok(heap)
}

/// Addresses in the calls, not behind them.
fn addresses(text: &str) -> Option<Vec<u64>> {
    let address = |word: &str| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()?.checked_sub(1)
    };
    text.split_whitespace().map(address).collect()
}

/// `13: 6688 [20: 9000]`
fn counters(text: &str) -> Option<[u64; 4]> {
    let mut numbers = text
        .split([':', '[', ']'])
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().ok());
    let counters = [
        numbers.next()??,
        numbers.next()??,
        numbers.next()??,
        numbers.next()??,
    ];
    numbers.next().is_none().then_some(counters)
}

/// What samples stand for, by their mean size as every reader of this form has it: jemalloc adjusts
/// what it dumps so that this gives the right sums.
pub(super) fn scale(objects: u64, bytes: u64, interval_bytes: u64) -> [i64; 2] {
    if objects == 0 || bytes == 0 {
        return [0; 2];
    }
    if interval_bytes <= 1 {
        return [objects as i64, bytes as i64];
    }
    let mean = bytes as f64 / objects as f64;
    let factor = -1.0 / (-mean / interval_bytes as f64).exp_m1();
    [objects, bytes].map(|value| (value as f64 * factor) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "heap_v2/524288\n  t*: 15: 7000 [0: 0]\n  t0: 15: 7000 [0: 0]\n\
        @ 0x5f86da9 0x5f5a1dd\n  t*: 13: 6688 [20: 9000]\n  t3: 12: 6496 [19: 8800]\n\
        @\n  t*: 2: 312 [0: 0]\n\nMAPPED_LIBRARIES:\n@ 0x1\n";

    #[test]
    fn stacks_get_the_sums_of_all_threads() {
        let heap = parse(DUMP.as_bytes()).unwrap();
        assert_eq!(heap.interval_bytes, 524_288);
        let rows: Vec<_> = heap
            .rows
            .iter()
            .map(|row| (&row.frames[..], row.counters))
            .collect();
        let first: &[u64] = &[0x5f8_6da8, 0x5f5_a1dc];
        assert_eq!(
            rows,
            [(first, [13, 6688, 20, 9000]), (&[][..], [2, 312, 0, 0])]
        );
    }

    #[test]
    fn damaged_dumps_are_refused_with_their_line() {
        for (text, line) in [
            ("", 1),
            ("heap_v1/3\n", 1),
            ("heap_v2/x\n", 1),
            ("heap_v2/1\n@ 0x1 zz\n", 2),
            ("heap_v2/1\n@ 0x0\n", 2),
            ("heap_v2/1\n  t*: 1: 2 [3]\n", 2),
            ("heap_v2/1\n\n  t*: 1: 2 [3: 4: 5]\n", 3),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), line, "{text:?}");
        }
    }

    #[test]
    fn samples_stand_for_what_go_makes_of_them() {
        // scaleHeapSample(4, 4096, 524288) of Go 1.26.
        assert_eq!(scale(4, 4096, 524_288), [2050, 2_099_200]);
        assert_eq!(scale(3, 300, 1), [3, 300]);
        assert_eq!(scale(0, 0, 524_288), [0, 0]);
    }
}
