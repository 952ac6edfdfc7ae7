//! The file format: fixtures of version 1 stay readable, damage is found, nothing panics.
//!
//! `PILOTLIGHT_WRITE_FIXTURES=1 cargo test -p pilotlight-server --test segment_format` writes the
//! fixtures anew; do that only for a new version, beside those of the old ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

use std::path::PathBuf;

use pilotlight_profile::{Label, LabelSetId, LabelValue, Mapping, ProfileBuilder};
use pilotlight_server::segment::{
    About, Damage, Header, Part, Pushed, SegmentBuilder, decode_header, decode_part, encode,
    header_bytes, header_from_index,
};

const T0: i64 = 1_767_225_600_000_000_000;

fn profile(n: i64) -> pilotlight_profile::Profile {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(T0 + n, 10_000_000_000);
    let (file, build_id) = (out.string(b"/bin/app"), out.string(b"abcd"));
    let mapping = out.mapping(Mapping {
        start: 0x40_0000,
        limit: 0x50_0000,
        offset: 0x1000,
        file,
        build_id,
        has_functions: true,
        ..Mapping::default()
    });
    let function = |out: &mut ProfileBuilder, name: &str| {
        let (name, file) = (out.string(name.as_bytes()), out.string(b"app.rs"));
        out.function(name, name, file, 3)
    };
    let main = function(&mut out, "main");
    let inlined = function(&mut out, "inlined");
    let bytes = function(&mut out, "not \u{fffd} UTF-8");
    let a = out.location(Some(mapping), 0x40_1234, &[(main, 10)]);
    let b = out.location(Some(mapping), 0x40_2000, &[(inlined, 5), (bytes, -1)]);
    let c = out.location(None, u64::MAX, &[]);
    let (key, value, unit) = (
        out.string(b"thread"),
        out.string(b"worker"),
        out.string(b"bytes"),
    );
    let labels = [
        Label {
            key,
            value: LabelValue::Str(value),
        },
        Label {
            key,
            value: LabelValue::Num { value: -7, unit },
        },
    ];
    let set = out.label_set(&labels);
    let stacks = [
        out.stack(&[b, a]),
        out.stack(&[a]),
        out.stack(&[c, b, a]),
        out.stack(&[]),
    ];
    for (index, stack) in stacks.into_iter().enumerate() {
        let set = if index == 2 { set } else { LabelSetId(0) };
        let count = n + 1 + index as i64;
        out.sample(stack, set, &[count, count * 10_000_000]);
    }
    out.finish()
}

fn pushed(service: &str, n: i64) -> Pushed {
    let labels = [("pod", "p"), ("service_name", service)];
    Pushed {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        name: "process_cpu".to_owned(),
        time_ns: T0 + n,
        duration_ns: 10_000_000_000,
        id: 0x1234_0000 + n as u128,
    }
}

fn segment() -> (Header, Vec<u8>) {
    let mut builder = SegmentBuilder::default();
    for n in 0..3 {
        builder.add_profile(&profile(n), &pushed("checkout", n));
    }
    builder.add_profile(&profile(9), &pushed("cart", 9));
    let replaces = vec!["older.plseg".to_owned()];
    encode(
        About {
            level: 2,
            created_ns: T0,
            replaces,
        },
        builder.finish(),
        1,
    )
    .unwrap()
}

fn parts(header: &Header, file: &[u8]) -> Result<Vec<Part>, Damage> {
    let section = |section: &pilotlight_server::segment::Section| {
        let start = (section.offset as usize).min(file.len());
        let end = start
            .saturating_add(section.stored as usize)
            .min(file.len());
        &file[start..end]
    };
    let decode = |part: &pilotlight_server::segment::PartHeader| {
        let [a, b, c] = &part.sections;
        decode_part(part, [section(a), section(b), section(c)])
    };
    header.parts.iter().map(decode).collect()
}

fn read(file: &[u8]) -> Result<(Header, Vec<Part>), Damage> {
    let header = decode_header(file, file.len() as u64)?;
    let parts = parts(&header, file)?;
    Ok((header, parts))
}

fn fixture(name: &str, made: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    if std::env::var_os("PILOTLIGHT_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_segment_comes_back_as_it_was_written() {
    let (header, file) = segment();
    let (again, parts) = read(&file).unwrap();
    assert_eq!(again, header);
    assert_eq!((header.profiles(), header.samples()), (4, 16));
    let services: Vec<&str> = header
        .parts
        .iter()
        .map(|part| part.service.as_str())
        .collect();
    assert_eq!(services, ["cart", "checkout"]);
    let checkout = &parts[1];
    let row = &checkout.profiles.rows[2];
    assert_eq!(
        (row.time_ns, row.id, row.period),
        (T0 + 2, 0x1234_0002, 10_000_000)
    );
    assert_eq!(
        checkout.row_values(row, 0).iter().sum::<i64>(),
        3 + 4 + 5 + 6
    );
    assert_eq!(
        checkout.row_stacks(row)[0],
        0,
        "the sample without a stack is at the root"
    );
    assert_eq!(
        checkout.symbols.parents.len(),
        4,
        "equal stacks share their nodes"
    );
    assert_eq!(checkout.symbols.locations.address[1], 0x40_1234);
    assert_eq!(header_from_index(&header_bytes(&header)).unwrap(), header);
}

#[test]
fn merging_parts_gives_what_adding_the_profiles_gives() {
    let mut one_by_one = SegmentBuilder::default();
    for n in 0..3 {
        let mut single = SegmentBuilder::default();
        single.add_profile(&profile(n), &pushed("checkout", n));
        for (header, part) in single.finish() {
            one_by_one.add_part(&header, &part);
        }
    }
    let mut at_once = SegmentBuilder::default();
    for n in 0..3 {
        at_once.add_profile(&profile(n), &pushed("checkout", n));
    }
    let (merged, direct) = (one_by_one.finish(), at_once.finish());
    assert_eq!(merged[0].0, direct[0].0);
    assert_eq!(merged[0].1.profiles, direct[0].1.profiles);
    assert_eq!(merged[0].1.values, direct[0].1.values);
    assert_eq!(merged[0].1.stacks, direct[0].1.stacks);
}

#[test]
fn the_same_binary_at_another_address_gives_the_same_locations() {
    let mut moved = profile(0);
    for mapping in &mut moved.mappings {
        mapping.start += 0x7000_0000;
        mapping.limit += 0x7000_0000;
    }
    for (address, &mapping) in moved
        .locations
        .address
        .iter_mut()
        .zip(&moved.locations.mapping)
    {
        if mapping == 0 {
            *address += 0x7000_0000;
        }
    }
    let mut builder = SegmentBuilder::default();
    builder.add_profile(&profile(0), &pushed("checkout", 0));
    builder.add_profile(&moved, &pushed("checkout", 1));
    let parts = builder.finish();
    assert_eq!(parts[0].1.symbols.mappings.len(), 1);
    assert_eq!(parts[0].1.symbols.locations.count(), 4);
}

#[test]
fn the_fixture_of_version_1_is_read_and_still_written_the_same() {
    let (header, file) = segment();
    let kept = fixture("v1.plseg", &file);
    let (kept_header, kept_parts) = read(&kept).unwrap();
    assert_eq!(kept_header.parts[1].series, header.parts[1].series);
    assert_eq!(kept_parts, parts(&header, &file).unwrap());
}

#[test]
fn damaged_fixtures_are_named_for_what_they_are() {
    let (header, file) = segment();
    let mut flipped = file.clone();
    let samples = header.parts[0].sections[1];
    flipped[samples.offset as usize] ^= 1;
    let mut later = file.clone();
    later[4] = 2;
    for (name, made, expected) in [
        ("v1-cut.plseg", &file[..file.len() - 1], "file has"),
        ("v1-flipped.plseg", &flipped, "checksum of samples"),
        ("v1-later.plseg", &later, "version 2 is not known"),
        ("v1-empty.plseg", &[][..], "file has 0 bytes"),
        (
            "v1-other.plseg",
            b"PAR1 and something that is no segment",
            "wrong magic",
        ),
    ] {
        let error = read(&fixture(name, made)).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let (_, file) = segment();
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            assert!(read(&damaged).is_err(), "byte {at}, bit {bit}");
        }
        assert!(read(&file[..at]).is_err(), "cut at {at}");
    }
}

/// What a checksum cannot find: content that was written wrong. Sections are changed and sealed
/// again with the right checksum.
#[test]
fn sealed_nonsense_is_an_error_or_harmless_and_never_a_panic() {
    let (header, file) = segment();
    let mut refused = 0;
    for part in 0..2 {
        for section in 0..3 {
            let at = header.parts[part].sections[section];
            let stored = &file[at.offset as usize..(at.offset + at.stored) as usize];
            let raw = zstd::bulk::decompress(stored, at.raw as usize).unwrap();
            for byte in 0..raw.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut raw = raw.clone();
                    raw[byte] = value;
                    let sealed = zstd::bulk::compress(&raw, 1).unwrap();
                    let mut changed = header.parts[part].clone();
                    changed.sections[section].stored = sealed.len() as u64;
                    changed.sections[section].crc = crc32fast::hash(&sealed);
                    let mut stored: [&[u8]; 3] = [0, 1, 2].map(|other| {
                        let at = header.parts[part].sections[other];
                        &file[at.offset as usize..(at.offset + at.stored) as usize]
                    });
                    stored[section] = &sealed;
                    match decode_part(&changed, stored) {
                        Ok(read) => walk(&read),
                        Err(_) => refused += 1,
                    }
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// Follows every index of a part.
fn walk(part: &Part) {
    for row in &part.profiles.rows {
        let (stacks, values) = (part.row_stacks(row), part.row_values(row, 0));
        assert_eq!(stacks.len(), values.len());
        for (&stack, set) in stacks.iter().zip(part.row_label_sets(row)) {
            let mut at = stack as usize;
            while at != 0 {
                let location = part.symbols.node_locations[at];
                for line in part.symbols.locations.lines(location) {
                    let function = &part.symbols.functions[line.function as usize];
                    part.symbols.strings.get(function.name);
                }
                at = part.symbols.parents[at] as usize;
            }
            part.symbols.label_set(*set);
        }
    }
}
