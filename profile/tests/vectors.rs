//! The 51 small inputs with google/pprof's verdicts: strict mode must give the same.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use std::collections::BTreeMap;

use pilotlight_profile::{LabelValue, Limits, Mode, Profile, Sample, decode};

/// The profile in the words of `verdicts.tsv`.
fn describe(profile: &Profile) -> String {
    let text = |id| profile.strings.text(id).into_owned();
    let Some(sample) = profile.iter_samples().next() else {
        return String::new();
    };
    let values: Vec<String> = sample.values.iter().map(i64::to_string).collect();
    format!(
        "samples={} val=[{}] nloc={} {} dst={:?}",
        profile.samples.len(),
        values.join(" "),
        sample.stack.len(),
        describe_labels(profile, &sample),
        text(profile.default_sample_type)
    )
}

/// Texts, numbers and units by key, as Go prints maps.
fn describe_labels(profile: &Profile, sample: &Sample<'_>) -> String {
    let text = |id| profile.strings.text(id).into_owned();
    let (mut texts, mut numbers, mut units) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let add = |map: &mut BTreeMap<String, Vec<String>>, key, value| {
        map.entry(text(key)).or_default().push(value);
    };
    for label in sample.labels {
        match label.value {
            LabelValue::Str(value) => add(&mut texts, label.key, text(value)),
            LabelValue::Num { value, unit } => {
                add(&mut numbers, label.key, value.to_string());
                add(&mut units, label.key, text(unit));
            }
        }
    }
    let print = |map: BTreeMap<String, Vec<String>>| {
        let entries = map.iter().map(|(k, v)| format!("{k}:[{}]", v.join(" ")));
        format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
    };
    format!("L={} N={} U={}", print(texts), print(numbers), print(units))
}

#[test]
fn strict_mode_gives_the_verdicts_of_google_pprof() {
    let Some(corpus) = common::corpus() else {
        return common::skip("no corpus");
    };
    let folder = corpus.join("pprof-vectors");
    let verdicts = std::fs::read_to_string(folder.join("verdicts.tsv")).unwrap();
    let mut seen = 0;
    for line in verdicts.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [number, name, verdict, details] = fields[..] else {
            panic!("not four fields: {line}");
        };
        let bytes = std::fs::read(folder.join(format!("{number}.pb"))).unwrap();
        let decoded = decode(&bytes, Mode::Strict, &Limits::default());
        match (verdict, decoded) {
            ("OK", Ok(decoded)) => {
                // What stands behind "RU:" is about dropping frames, which is not decoding.
                let wanted = details.split(" RU:").next().unwrap();
                assert_eq!(describe(&decoded.profile), wanted, "{number} {name}");
            }
            ("ERR", Err(error)) => {
                let error = error.to_string();
                assert!(
                    error.starts_with(details),
                    "{number} {name}: {error}\nnot {details}"
                );
            }
            (_, got) => panic!("{number} {name}: wanted {verdict} {details}, got {got:?}"),
        }
        seen += 1;
    }
    assert_eq!(seen, 51);
}

#[test]
fn tolerant_mode_accepts_all_that_strict_mode_accepts_and_equally() {
    let Some(corpus) = common::corpus() else {
        return common::skip("no corpus");
    };
    for path in common::files_below(&corpus) {
        let bytes = std::fs::read(&path).unwrap();
        let limits = Limits::default();
        if let Ok(strict) = decode(&bytes, Mode::Strict, &limits) {
            let tolerant = decode(&bytes, Mode::Tolerant, &limits).unwrap();
            assert_eq!(strict.profile, tolerant.profile, "{}", path.display());
        }
    }
}
