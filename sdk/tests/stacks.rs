//! Stacks are whole: from the interrupted function to the root, deep ones included.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use common::{burn, profile_of, start, start_with, thread_cpu_ns};
use pilotlight::{Config, Profile};

/// Function names of each sample's stack, leaf first, with its expiries.
fn stacks(profile: &Profile) -> Vec<(Vec<String>, i64)> {
    let mut text = Vec::new();
    pilotlight_profile::to_collapsed(profile, 0, &mut text).unwrap();
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let frames = stack.split(';').rev().map(str::to_string).collect();
        (frames, count.parse().unwrap())
    };
    String::from_utf8(text).unwrap().lines().map(line).collect()
}

#[inline(never)]
fn descend(levels: u32) -> u64 {
    if levels == 0 {
        burn(1_500_000_000);
        return thread_cpu_ns();
    }
    std::hint::black_box(descend(std::hint::black_box(levels - 1))) + 1
}

#[inline(never)]
fn root_of_recursion() -> u64 {
    std::hint::black_box(descend(500)) + 1
}

#[test]
fn recursion_of_500_levels_reaches_the_root() {
    let _guard = start(97);
    let profile = profile_of(|| {
        std::hint::black_box(root_of_recursion());
    });
    let mut whole = 0;
    let mut all = 0;
    for (stack, expiries) in stacks(&profile) {
        let levels = stack
            .iter()
            .filter(|name| name.contains("stacks::descend"))
            .count();
        if levels < 400 {
            continue;
        }
        all += expiries;
        let rooted = stack.iter().any(|name| name.contains("root_of_recursion"))
            && stack.iter().any(|name| name.contains("thread_start"));
        whole += if rooted && levels == 501 { expiries } else { 0 };
    }
    assert!(all > 100, "{all} expiries in the recursion");
    assert_eq!(whole, all);
    assert_eq!(pilotlight::stats().incomplete, 0);
}

#[test]
fn deeper_stacks_than_configured_are_cut_marked_and_counted() {
    let _guard = start_with(Config::new("t").no_listener().max_depth(64));
    let profile = profile_of(|| {
        std::hint::black_box(root_of_recursion());
    });
    let cut: i64 = stacks(&profile)
        .iter()
        .filter(|(stack, _)| stack.last().is_some_and(|name| name == "[truncated]"))
        .inspect(|(stack, _)| assert!(stack.iter().any(|name| name.contains("descend"))))
        .map(|(_, expiries)| expiries)
        .sum();
    assert!(cut > 100, "{cut} of {}", profile.total(0));
    assert!(pilotlight::stats().truncated > 0);
}

/// Spins without calling anything.
#[inline(never)]
fn spin(ns: u64) -> u64 {
    let mut x = 1u64;
    for _ in 0..ns {
        x = std::hint::black_box(x.rotate_left(7) ^ 0x55);
    }
    x
}

#[test]
fn the_leaf_is_the_interrupted_function() {
    let _guard = start(250);
    let profile = profile_of(|| {
        let until = thread_cpu_ns() + 2_000_000_000;
        while thread_cpu_ns() < until {
            std::hint::black_box(spin(std::hint::black_box(3_000_000)));
        }
    });
    // `spin` calls nothing: a stack that holds it was interrupted in it, or in what is inlined there.
    let (mut own, mut all) = (0, 0);
    for (stack, expiries) in stacks(&profile) {
        let here = stack
            .iter()
            .any(|name| name.contains("the_leaf_is_the_interrupted_function"));
        all += if here { expiries } else { 0 };
        own += if here && stack.iter().any(|name| name.contains("spin")) {
            expiries
        } else {
            0
        };
    }
    assert!(all > 400, "{all} of {}", profile.total(0));
    assert!(own as f64 > 0.98 * all as f64, "{own} of {all}");
}

#[inline(always)]
fn inlined_work(ns: u64) {
    burn(ns);
}

#[inline(never)]
fn outer_of_inlined() {
    inlined_work(std::hint::black_box(1_000_000_000));
}

#[test]
fn inlined_functions_are_frames_of_their_own() {
    let _guard = start(97);
    let profile = profile_of(outer_of_inlined);
    let inlined: i64 = stacks(&profile)
        .iter()
        .filter(|(stack, _)| {
            let inner = stack.iter().position(|name| name.contains("inlined_work"));
            let outer = stack
                .iter()
                .position(|name| name.contains("outer_of_inlined"));
            inner.zip(outer).is_some_and(|(inner, outer)| inner < outer)
        })
        .map(|(_, expiries)| expiries)
        .sum();
    assert!(
        inlined as f64 > 0.8 * profile.total(0) as f64,
        "{inlined} of {}",
        profile.total(0)
    );
}

#[test]
fn every_location_has_a_name_and_a_mapping_with_its_build_id() {
    let _guard = start(250);
    let profile = profile_of(|| {
        burn(1_000_000_000);
    });
    assert!(profile.locations.len() > 5);
    let exe = std::env::current_exe().unwrap();
    let main = &profile.mappings[0];
    assert_eq!(
        profile.strings.get(main.file),
        exe.as_os_str().as_encoded_bytes()
    );
    assert_eq!(profile.strings.get(main.build_id).len(), 40);
    assert!(main.start < main.limit);
    let bytes = profile.to_pprof_gz();
    let limits = pilotlight_profile::Limits::default();
    let again =
        pilotlight_profile::decode(&bytes, pilotlight_profile::Mode::Strict, &limits).unwrap();
    assert_eq!(again.profile.total(1), profile.total(1));
}
