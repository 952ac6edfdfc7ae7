//! Cuts against segments built at once, and what is taken when.

use pilotlight_profile::{LabelSetId, ProfileBuilder};

use super::*;
use crate::segment::{SegmentBuilder, Symbols};

/// Every profile a little different from the one before: frames, labels, series and columns.
fn profile(n: i64) -> (Profile, Pushed) {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    if n % 3 == 0 {
        out.sample_type("cpu", "nanoseconds");
    }
    let key = out.string(b"thread");
    for stack in n..n + 6 {
        let mut path = Vec::new();
        for frame in 0..stack % 5 {
            let name = out.string(format!("f{}", stack * frame % 7).as_bytes());
            let function = out.function(name, name, name, 1);
            path.push(out.location(None, 0, &[(function, stack)]));
        }
        let id = out.stack(&path);
        let set = match stack % 4 {
            0 => {
                let text = out.string(format!("t{stack}").as_bytes());
                let value = pilotlight_profile::LabelValue::Str(text);
                out.label_set(&[pilotlight_profile::Label { key, value }])
            }
            _ => LabelSetId(0),
        };
        let values = [stack + 1, 10 * stack];
        out.sample(id, set, &values[..1 + usize::from(n % 3 == 0)]);
    }
    let text = |text: &str| text.to_owned();
    let pushed = Pushed {
        labels: vec![
            (text("pod"), format!("p{}", n % 2)),
            (text("service_name"), format!("s{}", n / 4 % 2)),
        ],
        name: text("process_cpu"),
        time_ns: 1000 + n,
        duration_ns: 10,
        id: n as u128,
    };
    (out.finish(), pushed)
}

/// A sample as text.
fn sample(symbols: &Symbols, mut node: u32, set: u32) -> String {
    let mut out = String::new();
    while node != 0 {
        let location = symbols.node_locations[node as usize];
        for line in symbols.locations.lines(location) {
            let name = symbols.functions[line.function as usize].name;
            let name = String::from_utf8_lossy(symbols.strings.get(name)).into_owned();
            out.push_str(&format!("{name}:{};", line.line));
        }
        node = symbols.parents[node as usize];
    }
    for label in symbols.label_set(set) {
        out.push_str(&String::from_utf8_lossy(symbols.strings.get(label.text)));
    }
    out
}

/// All that the parts say, whatever their numbers.
fn content(parts: &[(PartHeader, Part)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (header, part) in parts {
        let mut of_series = vec![0; header.series.len()];
        for row in &part.profiles.rows {
            let set = &header.type_sets[row.type_set as usize];
            let series = &header.series[row.series as usize];
            assert!((series.min_time_ns..=series.max_time_ns).contains(&row.time_ns));
            assert!(series.type_sets.contains(&row.type_set));
            of_series[row.series as usize] += 1;
            let mut samples: Vec<String> = Vec::new();
            for (at, &stack) in part.row_stacks(row).iter().enumerate() {
                let labels = part.row_label_sets(row).get(at).map_or(0, |&set| set);
                let columns = 0..set.values.len();
                let values: Vec<i64> = columns.map(|c| part.row_values(row, c)[at]).collect();
                let name = sample(&part.symbols, stack, labels);
                samples.push(format!("{name} {values:?}"));
            }
            samples.sort();
            let first = row.first_total as usize;
            let totals = &part.profiles.totals[first..first + set.values.len()];
            let labels = &series.labels;
            let (time, id) = (row.time_ns, row.id);
            lines.push(format!(
                "{labels:?} {set:?} {time} {id} {totals:?} {samples:?}"
            ));
        }
        let counted: Vec<u64> = header.series.iter().map(|entry| entry.profiles).collect();
        assert_eq!(
            counted, of_series,
            "only series that are there, counted right"
        );
        assert_eq!(header.samples, part.stacks.len() as u64);
    }
    lines.sort();
    lines
}

#[test]
fn cuts_hold_each_profile_once_and_the_epoch_all() {
    let mut epoch = Epoch::new(0);
    let mut everything = SegmentBuilder::default();
    let mut n = 0;
    for count in [1, 5, 0, 2, 9] {
        let mut direct = SegmentBuilder::default();
        for _ in 0..count {
            let (profile, pushed) = profile(n);
            epoch.add(&profile, &pushed);
            direct.add_profile(&profile, &pushed);
            everything.add_profile(&profile, &pushed);
            n += 1;
        }
        let (cut, direct) = (epoch.cut(), direct.finish());
        assert_eq!(content(&cut), content(&direct));
        for ((_, cut), (_, direct)) in cut.iter().zip(&direct) {
            // No name that the segment does not need.
            let size = |part: &Part| {
                let symbols = &part.symbols;
                let strings = symbols.strings.count();
                let names = (symbols.functions.len(), symbols.locations.count(), strings);
                (names, symbols.parents.len(), symbols.label_set_ends.len())
            };
            assert_eq!(size(cut), size(direct));
        }
    }
    assert_eq!(
        content(&Closed::of(epoch).parts),
        content(&everything.finish())
    );
}

fn filled(epochs: &mut Epochs, n: i64, name: &str) -> u64 {
    let (profile, pushed) = profile(n);
    epochs.open.add(&profile, &pushed);
    epochs.cut(name).0
}

fn holds(epochs: &Epochs, name: &str) -> bool {
    epochs.segments().any(|segment| segment == name)
}

fn taken(taken: Taken) -> Vec<String> {
    match taken {
        Taken::Epoch(closed) => closed.segments,
        Taken::Later => vec!["later".to_owned()],
        Taken::Unknown => vec!["unknown".to_owned()],
    }
}

#[test]
fn an_epoch_is_taken_when_its_segments_are_on_disk() {
    let mut epochs = Epochs::new(2, usize::MAX);
    let number = filled(&mut epochs, 0, "a");
    assert_eq!(taken(epochs.take(Some("a"), true)), ["later"], "in flight");
    epochs.written(number, true);
    assert_eq!(
        taken(epochs.take(None, true)),
        ["unknown"],
        "nothing is due"
    );
    assert_eq!(taken(epochs.take(Some("z"), true)), ["unknown"]);
    assert_eq!(
        taken(epochs.take(Some("a"), false)),
        ["later"],
        "it ends then"
    );
    let number = filled(&mut epochs, 1, "b");
    assert_eq!(taken(epochs.take(Some("a"), true)), ["later"], "in flight");
    epochs.written(number, true);
    assert!(holds(&epochs, "b"));
    assert_eq!(taken(epochs.take(Some("a"), false)), ["a", "b"]);
    assert!(!holds(&epochs, "a"));
    assert_eq!(taken(epochs.take(Some("a"), true)), ["unknown"]);
}

#[test]
fn a_failed_write_leaves_no_epoch_that_holds_its_profiles() {
    for full_bytes in [usize::MAX, 0] {
        let mut epochs = Epochs::new(2, full_bytes);
        let number = filled(&mut epochs, 0, "a");
        epochs.written(number, false);
        assert_eq!(taken(epochs.take(Some("a"), true)), ["unknown"]);
        let number = filled(&mut epochs, 1, "b");
        epochs.written(number, true);
        let expected = if full_bytes == 0 { "b" } else { "unknown" };
        assert_eq!(taken(epochs.take(Some("b"), true)), [expected]);
        // The next one is whole again.
        let number = filled(&mut epochs, 2, "c");
        epochs.written(number, true);
        assert_eq!(taken(epochs.take(Some("c"), true)), ["c"]);
    }
}

#[test]
fn the_oldest_waiting_epoch_goes_when_there_are_too_many() {
    let mut epochs = Epochs::new(1, 0);
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let number = filled(&mut epochs, n as i64, name);
        epochs.written(number, true);
    }
    assert!(!holds(&epochs, "a"));
    assert_eq!(taken(epochs.take(Some("a"), true)), ["b"]);
}
