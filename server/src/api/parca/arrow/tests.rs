//! Requests recorded from Apache Arrow's Go library: `tests/go/parca`, `parca fixtures FOLDER`.

use pilotlight_profile::{LabelValue, Limits, Profile};

use super::*;

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/parca/");
    std::fs::read(format!("{folder}{name}.arrow")).unwrap()
}

fn text(profile: &Profile, id: pilotlight_profile::StrId) -> String {
    String::from_utf8_lossy(profile.strings.get(id)).into_owned()
}

/// Each profile as lines: whose it is, then one for each sample.
fn shown(all: &All) -> Vec<String> {
    let mut out = Vec::new();
    for of in &all.profiles {
        let profile = &of.profile;
        let kinds = profile.sample_types.iter();
        let kinds = kinds.map(|kind| text(profile, kind.ty)).collect::<Vec<_>>();
        let labels = of
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let labels = labels.collect::<Vec<_>>().join(" ");
        let from = profile.time_ns - 1_796_000_000_000_000_000;
        let long = profile.duration_ns;
        out.push(format!(
            "{} {} {labels} {from}+{long}",
            of.name,
            kinds.join("/")
        ));
        let width = kinds.len();
        for at in 0..profile.samples.len() {
            let stack = profile.stacks.get(profile.samples.stack[at] as usize);
            let frames = stack
                .iter()
                .map(|&location| frame(profile, location as usize));
            let frames = frames.collect::<Vec<_>>().join(" < ");
            let values = &profile.samples.values[at * width..(at + 1) * width];
            let labels = profile.label_sets.get(profile.samples.labels[at] as usize);
            let labels = labels.iter().map(|label| match label.value {
                LabelValue::Str(value) => text(profile, value),
                LabelValue::Num { value, .. } => value.to_string(),
            });
            let labels = labels.collect::<String>();
            out.push(format!("  {values:?} {labels} {frames}"));
        }
    }
    out
}

fn frame(profile: &Profile, at: usize) -> String {
    let locations = &profile.locations;
    let lines = &profile.lines
        [locations.line_offsets[at] as usize..locations.line_offsets[at + 1] as usize];
    let mapping = profile.mappings.get(locations.mapping[at] as usize);
    let mapping = mapping.map_or(String::new(), |mapping| {
        let id = text(profile, mapping.build_id);
        format!(
            "{}[{}]",
            text(profile, mapping.file),
            &id[..id.len().min(4)]
        )
    });
    let lines = lines.iter().map(|line| {
        let function = &profile.functions[line.function.0 as usize];
        format!(
            " {} {}:{}",
            text(profile, function.name),
            text(profile, function.filename),
            line.line
        )
    });
    format!(
        "{mapping}{:x}{}",
        locations.address[at],
        lines.collect::<String>()
    )
}

const LEAF: &str = "app[aabb]1234 < app[aabb]2000";
const KERNEL: &str = "[kernel.kallsyms][]ffffffff81000010 do_syscall_64 vmlinux:0 < app[aabb]2000";
const SCRIPT: &str = "0 handler app.py:42 < app[aabb]2000";

fn expected() -> Vec<String> {
    let period = 52_631_578;
    let one = format!("[1, {period}]");
    vec![
        "parca_agent samples/cpu comm=web node=n1 0+4000000000".to_owned(),
        format!("  {one} t1 {LEAF}"),
        format!("  {one} t2 {LEAF}"),
        format!("  {one} t1 {KERNEL}"),
        format!("  {one} t1 "),
        "parca_agent samples/cpu comm=db node=n1 request=r1 2000000000+1000000000".to_owned(),
        format!("  {one} t1 {SCRIPT}"),
        format!("  {one} t1 {LEAF}"),
        "parca_agent wallclock comm=web node=n1 3000000000+1000000000".to_owned(),
        format!("  [5000000] t1 {KERNEL}"),
    ]
}

#[test]
fn rows_of_each_schema_become_the_same_profiles() {
    let limits = Limits::default();
    for name in ["v2-plain", "v2-lz4", "v2-zstd"] {
        let all = convert(&fixture(name), None, &limits).unwrap();
        assert_eq!((shown(&all), all.bad_rows), (expected(), 0), "{name}");
    }
    // What is taken is a profile that others read.
    crate::fuzz::messages(&fixture("v2-lz4"));
    let (samples, stacks) = (fixture("v1-samples"), fixture("v1-stacks"));
    let all = convert(&samples, Some(&stacks), &limits).unwrap();
    assert_eq!((shown(&all), all.bad_rows), (expected(), 0));
}

#[test]
fn stacks_of_the_older_schema_are_asked_for_once_each() {
    let limits = Limits::default();
    let record = asked(&fixture("v1-samples"), &limits).unwrap().unwrap();
    let (version, batches) = batches(&record, &limits).unwrap();
    let ids = batches[0].root.child("stacktrace_id").unwrap();
    assert_eq!((version.as_str(), batches.len(), ids.len), ("v1", 1, 4));
    assert_eq!(ids.bytes(0).unwrap().unwrap().len(), 16);
    assert_eq!(asked(&fixture("v2-lz4"), &limits).unwrap(), None);
    let fault = convert(&fixture("v1-samples"), None, &limits)
        .err()
        .unwrap();
    assert!(fault.to_string().contains("by Write"), "{fault}");
}

#[test]
fn a_row_whose_stack_did_not_come_costs_no_other() {
    let limits = Limits::default();
    // The second record knows other ids.
    let mut stacks = fixture("v1-stacks");
    let id = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee];
    let at = stacks.windows(16).position(|word| word == id).unwrap();
    stacks[at] = 77;
    let all = convert(&fixture("v1-samples"), Some(&stacks), &limits).unwrap();
    assert_eq!(all.bad_rows, 3);
    let fault = all.fault.clone().unwrap();
    assert!(
        fault.starts_with("row 0: ") && fault.contains("did not come"),
        "{fault}"
    );
    let kept = shown(&all);
    assert!(kept.iter().any(|line| line.ends_with(SCRIPT)), "{kept:?}");
    assert!(!kept.iter().any(|line| line.ends_with(LEAF)), "{kept:?}");
}

#[test]
fn no_changed_byte_and_no_early_end_breaks_the_reader() {
    let limits = Limits::default();
    let stacks = fixture("v1-stacks");
    let (mut refused, mut bad) = (0, 0);
    let mut tried = |bytes: &[u8], other: Option<&[u8]>| match convert(bytes, other, &limits) {
        Ok(all) => bad += all.bad_rows,
        Err(_) => refused += 1,
    };
    for name in ["v2-plain", "v2-lz4", "v2-zstd", "v1-samples"] {
        let whole = fixture(name);
        let other = name.starts_with("v1").then_some(&stacks[..]);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= [0x01, 0x80, 0xff][at % 3];
            tried(&changed, other);
            if at % 8 == 0 {
                tried(&whole[..at], other);
            }
        }
    }
    let samples = fixture("v1-samples");
    for at in 0..stacks.len() {
        let mut changed = stacks.clone();
        changed[at] ^= 0xff;
        tried(&samples, Some(&changed));
    }
    assert!(
        refused > 5_000 && bad > 0,
        "{refused} refused, {bad} bad rows"
    );
}
