//! What tolerant mode keeps, repairs and drops, and how it counts; what both modes refuse.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use common::generate::{bytes, number};
use pilotlight_profile::{DecodeError, Decoded, Invalid, Limits, Mode, Reason, Table, decode, top};

/// A profile of one sample type, whose other parts the test gives.
fn with(parts: &[Vec<u8>]) -> Vec<u8> {
    let strings = [&b""[..], b"cpu", b"nanoseconds", b"main"]
        .map(|s| bytes(6, s))
        .concat();
    let ty = bytes(1, &[number(1, 1), number(2, 2)].concat());
    [ty, parts.concat(), strings].concat()
}

fn tolerant(raw: &[u8]) -> Decoded {
    decode(raw, Mode::Tolerant, &Limits::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(raw: &[u8], mode: Mode) -> DecodeError {
    match decode(raw, mode, &Limits::default()) {
        Ok(decoded) => panic!("accepted: {decoded:?}"),
        Err(error) => error,
    }
}

fn cause(raw: &[u8]) -> Invalid {
    match refused(raw, Mode::Strict) {
        DecodeError::Invalid { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

fn sample(locations: &[u64], values: &[u64]) -> Vec<u8> {
    let locations = locations.iter().flat_map(|&id| number(1, id));
    let values = values.iter().flat_map(|&value| number(2, value));
    bytes(2, &locations.chain(values).collect::<Vec<_>>())
}

fn location(id: u64, functions: &[u64]) -> Vec<u8> {
    let lines = functions.iter().flat_map(|&id| bytes(4, &number(1, id)));
    bytes(4, &[number(1, id), lines.collect()].concat())
}

fn function(id: u64) -> Vec<u8> {
    bytes(5, &[number(1, id), number(2, 3)].concat())
}

#[test]
fn function_zero_of_dotnet_profiles_is_found_and_renumbered() {
    let raw = with(&[sample(&[1], &[7]), location(1, &[0]), function(0)]);
    assert_eq!(
        cause(&raw),
        Invalid::ReservedId {
            table: Table::Function
        }
    );
    let decoded = tolerant(&raw);
    assert_eq!(top(&decoded.profile, 0)[0].name, "main");
    assert_eq!(
        decoded.report.repaired().collect::<Vec<_>>(),
        [("zero_id", 1)]
    );
    // What is written out is valid.
    assert!(
        decode(
            &decoded.profile.to_pprof(),
            Mode::Strict,
            &Limits::default()
        )
        .is_ok()
    );
}

#[test]
fn lines_without_function_are_dropped_and_their_location_kept() {
    let raw = with(&[sample(&[1], &[7]), location(1, &[1, 9]), function(1)]);
    assert_eq!(cause(&raw), Invalid::NilFunction { location: 1 });
    let decoded = tolerant(&raw);
    assert_eq!(decoded.profile.location(0).lines.len(), 1);
    assert_eq!(decoded.report.count(Reason::UnknownFunction), 1);
}

#[test]
fn frames_without_location_are_dropped_and_their_sample_kept() {
    for unknown in [0, 9, u64::MAX] {
        let samples = [sample(&[1, unknown, 1], &[7]), sample(&[unknown], &[8])];
        let raw = with(&[samples.concat(), location(1, &[])]);
        assert_eq!(cause(&raw), Invalid::NilLocation { sample: 0 });
        let decoded = tolerant(&raw);
        assert_eq!(decoded.profile.sample(0).stack, [0, 0]);
        assert_eq!(decoded.profile.sample(1).stack, []);
        assert_eq!(decoded.profile.total(0), 15);
        assert_eq!(decoded.report.count(Reason::UnknownLocation), 2);
        assert_eq!(decoded.report.count(Reason::EmptyStack), 1);
    }
}

#[test]
fn samples_with_the_wrong_number_of_values_are_dropped_unless_all_have_it() {
    let raw = with(&[
        sample(&[1], &[1, 2]),
        sample(&[1], &[4]),
        sample(&[1], &[]),
        sample(&[1, 1], &[8]),
        location(1, &[]),
    ]);
    let misfit = Invalid::ValueCount {
        sample: 0,
        values: 2,
        types: 1,
    };
    assert_eq!(cause(&raw), misfit);
    let decoded = tolerant(&raw);
    assert_eq!(decoded.profile.samples.values, [4, 8]);
    assert_eq!(decoded.profile.sample(1).stack, [0, 0]);
    assert_eq!(
        decoded.report.dropped().collect::<Vec<_>>(),
        [("value_count", 2)]
    );
    let none_left = with(&[sample(&[1], &[1, 2]), location(1, &[])]);
    let error = refused(&none_left, Mode::Tolerant);
    assert!(matches!(error, DecodeError::Invalid { .. }), "{error}");
}

#[test]
fn of_two_entries_with_one_id_the_last_is_meant() {
    let mapping = |file| bytes(3, &[number(1, 1), number(5, file)].concat());
    let raw = with(&[
        mapping(1),
        mapping(3),
        sample(&[5], &[7]),
        bytes(4, &[number(1, 5), number(2, 1)].concat()),
    ]);
    let id = 1;
    assert_eq!(
        cause(&raw),
        Invalid::DuplicateId {
            table: Table::Mapping,
            id
        }
    );
    let decoded = tolerant(&raw);
    assert_eq!(decoded.profile.location(0).mapping.map(|m| m.0), Some(1));
    assert_eq!(decoded.report.count(Reason::DuplicateId), 1);
    assert!(
        decode(
            &decoded.profile.to_pprof(),
            Mode::Strict,
            &Limits::default()
        )
        .is_ok()
    );
}

#[test]
fn string_indices_outside_the_table_become_empty_and_are_counted() {
    let function = bytes(
        5,
        &[number(1, 1), number(2, 99), number(4, u64::MAX)].concat(),
    );
    let raw = with(&[
        sample(&[1], &[7]),
        location(1, &[1]),
        function,
        number(15, 4),
    ]);
    assert!(matches!(
        refused(&raw, Mode::Strict),
        DecodeError::Malformed { .. }
    ));
    let decoded = tolerant(&raw);
    assert_eq!(decoded.report.count(Reason::BadStringIndex), 3);
    assert_eq!(
        decoded
            .profile
            .strings
            .get(decoded.profile.functions[0].name),
        b""
    );
    assert_eq!(decoded.profile.doc_url.0, 0);
}

#[test]
fn unknown_mappings_become_none_in_both_modes() {
    let raw = with(&[bytes(4, &[number(1, 1), number(2, 77)].concat())]);
    let strict = decode(&raw, Mode::Strict, &Limits::default());
    assert_eq!(strict.map(|d| d.profile.location(0).mapping), Ok(None));
    assert_eq!(tolerant(&raw).report.count(Reason::UnknownMapping), 1);
}

#[test]
fn odd_but_harmless_things_are_kept_and_counted() {
    let label = |parts: &[Vec<u8>]| bytes(3, &parts.concat());
    let stack_less = bytes(2, &[number(2, 5), label(&[number(1, 3)])].concat());
    let raw = [with(&[stack_less]), bytes(6, b"caf\xe9")].concat();
    let report = tolerant(&raw).report;
    assert_eq!(report.count(Reason::EmptyStack), 1);
    assert_eq!(report.count(Reason::NonUtf8String), 1);
    assert_eq!(report.count(Reason::EmptyLabel), 1);
    assert!(!report.is_clean());
}

#[test]
fn what_is_no_profile_is_named_in_both_modes() {
    for (body, what) in [
        (&b"<html><body>404 page not found</body></html>"[..], "HTML"),
        (b"{\"error\": \"not found\"}", "JSON"),
        (b"404 page not found\n", "text"),
        (b"heap profile: 1: 2 [3: 4] @ heap/1048576\n", "text"),
    ] {
        for mode in [Mode::Strict, Mode::Tolerant] {
            let error = refused(body, mode).to_string();
            assert!(error.contains(what), "{error}");
            assert!(error.contains("check the address"), "{error}");
        }
    }
}

#[test]
fn errors_name_the_offset_of_the_entry() {
    let before = with(&[]);
    let bad = sample(&[9], &[1]);
    let raw = [before.clone(), bad].concat();
    let DecodeError::Invalid { offset, .. } = refused(&raw, Mode::Strict) else {
        panic!("not found invalid");
    };
    assert_eq!(offset, before.len() as u64);
    let cut = &raw[..raw.len() - 1];
    let DecodeError::Malformed { offset, .. } = refused(cut, Mode::Tolerant) else {
        panic!("not found malformed");
    };
    assert!(offset >= before.len() as u64 && offset <= raw.len() as u64);
}

#[test]
fn second_start_time_is_found_even_when_it_has_the_wrong_wire_type() {
    let raw = with(&[number(9, 5), bytes(9, b"x")]);
    assert!(matches!(
        refused(&raw, Mode::Strict),
        DecodeError::Concatenated { .. }
    ));
    let first_bad = with(&[bytes(9, b"x"), number(9, 5)]);
    assert!(matches!(
        refused(&first_bad, Mode::Strict),
        DecodeError::Malformed { .. }
    ));
}

#[test]
fn large_field_numbers_are_not_taken_for_small_ones() {
    let raw = with(&[
        number((1 << 32) + 9, 5),
        number((1 << 32) + 9, 5),
        number(9, 3),
    ]);
    assert_eq!(tolerant(&raw).profile.time_ns, 3);
}
