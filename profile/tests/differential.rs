//! Side by side with google/pprof: same verdicts, same content after a round trip, same merges,
//! same top tables; over the corpus, and over files made here.
#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use common::generate::{Rng, odd_wire, profile as random_profile};
use common::go::{Scratch, compare, top as go_top};
use pilotlight_profile::{DecodeError, Limits, Mode, Profile, StrId, decode, merge, top};

fn strict(bytes: &[u8]) -> Result<Profile, DecodeError> {
    decode(bytes, Mode::Strict, &Limits::default()).map(|decoded| decoded.profile)
}

/// Every file of the corpus except bombs, which google/pprof needs 9 GB for.
fn corpus_files() -> Option<Vec<PathBuf>> {
    let corpus = common::corpus()?;
    let mut files = common::files_below(&corpus);
    files.retain(|path| !path.components().any(|part| part.as_os_str() == "bombs"));
    Some(files)
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

/// Name and bytes of the files that decode.
fn corpus_profiles() -> Option<Vec<(String, Vec<u8>, Profile)>> {
    let files = corpus_files()?;
    let decoded = files.into_iter().filter_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let profile = strict(&bytes).ok()?;
        Some((path.to_str().unwrap().to_owned(), bytes, profile))
    });
    Some(decoded.collect())
}

fn generated_profiles(count: u64) -> Vec<(String, Vec<u8>, Profile)> {
    let mut rng = Rng::new(7);
    (0..count)
        .map(|i| {
            let bytes = match i % 2 {
                0 => random_profile(&mut rng, 2).to_pprof(),
                _ => odd_wire(&mut rng),
            };
            let profile = strict(&bytes).unwrap();
            (format!("generated {i}"), bytes, profile)
        })
        .collect()
}

#[test]
fn every_corpus_file_gets_google_pprofs_verdict() {
    let Some(files) = corpus_files() else {
        return common::skip("no corpus");
    };
    let scratch = Scratch::new("verdicts");
    let commands: Vec<_> = files
        .iter()
        .map(|path| words(&["verdict", path.to_str().unwrap()]))
        .collect();
    let answers = compare(&scratch, &commands);
    let mut accepted = 0;
    for (path, answer) in files.iter().zip(answers) {
        let ours = strict(&std::fs::read(path).unwrap());
        let name = path.display();
        assert_eq!(
            ours.is_ok(),
            answer == "OK",
            "{name}: {answer}, {:?}",
            ours.err()
        );
        accepted += usize::from(ours.is_ok());
    }
    assert!(accepted >= 60, "only {accepted} files were profiles");
}

fn check_round_trips(name: &str, profiles: &[(String, Vec<u8>, Profile)]) {
    let scratch = Scratch::new(name);
    let mut commands = Vec::new();
    for (i, (_, bytes, profile)) in profiles.iter().enumerate() {
        let before = scratch.put(&format!("{i}.before"), bytes);
        let plain = scratch.put(&format!("{i}.plain"), &profile.to_pprof());
        let gzipped = scratch.put(&format!("{i}.gz"), &profile.to_pprof_gz());
        commands.push(words(&["equal", &before, &plain]));
        commands.push(words(&["equal", &before, &gzipped]));
    }
    let answers = compare(&scratch, &commands);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer, "equal", "{}", profiles[i / 2].0);
    }
}

#[test]
fn every_corpus_profile_round_trips_as_google_pprof_reads_it() {
    match corpus_profiles() {
        Some(profiles) => check_round_trips("corpus-trip", &profiles),
        None => common::skip("no corpus"),
    }
}

#[test]
fn generated_profiles_round_trip_as_google_pprof_reads_them() {
    check_round_trips("generated-trip", &generated_profiles(200));
}

/// Checks merges of the given groups of indices.
fn check_merges(name: &str, profiles: &[(String, Vec<u8>, Profile)], groups: &[Vec<usize>]) {
    let scratch = Scratch::new(name);
    let files: Vec<String> = profiles
        .iter()
        .enumerate()
        .map(|(i, (_, bytes, _))| scratch.put(&format!("{i}.pb"), bytes))
        .collect();
    let mut commands = Vec::new();
    for (i, group) in groups.iter().enumerate() {
        let sources: Vec<&Profile> = group.iter().map(|&i| &profiles[i].2).collect();
        let merged = merge(&sources).map(|p| p.to_pprof()).unwrap_or_default();
        let ours = scratch.put(&format!("{i}.ours"), &merged);
        let theirs = scratch.put(&format!("{i}.theirs"), b"");
        let mut command = words(&["merge", &theirs]);
        command.extend(group.iter().map(|&i| files[i].clone()));
        commands.push(command);
        commands.push(words(&["equal", &ours, &theirs]));
    }
    let answers = compare(&scratch, &commands);
    for (i, pair) in answers.chunks(2).enumerate() {
        let names: Vec<&str> = groups[i].iter().map(|&i| &profiles[i].0[..]).collect();
        // When one refuses to merge, the other must: both files are empty then.
        let merged = pair[0] == "ok";
        let wanted = if merged { "equal" } else { "both err" };
        assert_eq!(pair[1], wanted, "{names:?}: {}", pair[0]);
    }
}

#[test]
fn merges_of_corpus_profiles_equal_google_pprofs() {
    let Some(profiles) = corpus_profiles() else {
        return common::skip("no corpus");
    };
    let mut groups: Vec<Vec<usize>> = (0..profiles.len()).map(|i| vec![i]).collect();
    groups.extend((0..profiles.len()).map(|i| vec![i, i]));
    // Neighbours belong together: before and after, ten in a row.
    groups.extend((1..profiles.len()).map(|i| vec![i, i - 1]));
    let folder_of = |i: usize| PathBuf::from(&profiles[i].0).parent().unwrap().to_owned();
    let mut folders: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, (_, _, profile)) in profiles.iter().enumerate() {
        let types = format!("{:?}", types(profile));
        folders.entry((folder_of(i), types)).or_default().push(i);
    }
    groups.extend(folders.into_values());
    check_merges("corpus-merge", &profiles, &groups);
}

fn types(profile: &Profile) -> Vec<String> {
    let all = profile.sample_types.iter().chain([&profile.period_type]);
    all.flat_map(|ty| [profile.strings.text(ty.ty), profile.strings.text(ty.unit)])
        .map(|text| text.into_owned())
        .collect()
}

#[test]
fn merges_of_generated_profiles_equal_google_pprofs() {
    let profiles = generated_profiles(120);
    let mut rng = Rng::new(11);
    let mut group = |parity: u64| -> Vec<usize> {
        let count = 1 + rng.below(5);
        (0..count)
            .map(|_| (rng.below(60) * 2 + parity) as usize)
            .collect()
    };
    let mut groups: Vec<Vec<usize>> = (0..150).map(|i| group(i % 2)).collect();
    groups.push(vec![0, 1]);
    check_merges("generated-merge", &profiles, &groups);
}

/// Top tables of all value columns, as `go tool pprof` prints them.
fn check_tops(name: &str, profiles: &[(String, Vec<u8>, Profile)]) {
    let scratch = Scratch::new(name);
    let mut rows = 0;
    for (name, _, profile) in profiles {
        // The tool drops frames by these expressions before it lists; `top` leaves that to others.
        let mut shown = profile.clone();
        shown.drop_frames = StrId::EMPTY;
        shown.keep_frames = StrId::EMPTY;
        let file = scratch.put("profile.pb", &shown.to_pprof());
        for column in 0..profile.sample_types.len() {
            let unit = profile.strings.text(profile.sample_types[column].unit);
            if profile.column(column).all(|value| value == 0) {
                continue;
            }
            let theirs = go_top(&scratch, &file, column, &unit);
            let mut ours: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
            for row in top(profile, column) {
                let values = (row.self_value, row.total_value);
                ours.entry(row.name).or_default().push(values);
                rows += 1;
            }
            ours.values_mut().for_each(|rows| rows.sort());
            assert_eq!(ours, theirs, "{name}, column {column}");
        }
    }
    assert!(rows > 0);
}

#[test]
fn top_of_corpus_profiles_equals_go_tool_pprofs() {
    let Some(mut profiles) = corpus_profiles() else {
        return common::skip("no corpus");
    };
    // Vectors are variations of one tiny profile: their tops say nothing more.
    profiles.retain(|(name, _, _)| !name.contains("pprof-vectors"));
    assert!(profiles.len() >= 30);
    check_tops("corpus-top", &profiles);
}

#[test]
fn top_of_generated_profiles_equals_go_tool_pprofs() {
    let mut profiles = generated_profiles(24);
    // Huge random values do not survive the tool's floating point.
    profiles.retain(|(_, _, profile)| profile.sample_types.len() == 2);
    check_tops("generated-top", &profiles);
}
