//! Damaged and forged input: errors, never panics.
#![cfg(feature = "tables")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pilotlight_symbolize::Error;
use pilotlight_symbolize::tables::{Kind, Limits, Place, Quality, Sources, Table, build, inspect};

fn own_binary() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

fn small() -> Vec<u8> {
    std::fs::read("/lib64/ld-linux-x86-64.so.2").unwrap()
}

fn table_of(object: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    build(&Sources::of(object), &Limits::default(), &mut table).unwrap();
    table
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Everything that a caller does with a table.
fn use_all(bytes: &[u8], svmas: impl Iterator<Item = u64>) -> usize {
    let Ok(table) = Table::open(bytes) else {
        return 0;
    };
    let (mut places, mut found) = (Vec::<Place>::new(), 0);
    for svma in svmas {
        if table.lookup(svma, &mut places).is_err() {
            continue;
        }
        for place in &places {
            found += usize::from(place.function.is_some_and(|f| table.function(f).is_ok()));
            found += usize::from(place.file.is_some_and(|f| table.file(f).is_ok()));
        }
    }
    found
}

#[inline(never)]
fn a_function_to_find() -> usize {
    std::hint::black_box(1)
}

#[test]
fn a_table_names_our_own_functions() {
    let object = own_binary();
    let table = table_of(&object);
    let table = Table::open(&table).unwrap();
    let address = a_function_to_find as *const () as u64;
    let base = base_of_this_program();
    let frames = table.frames(address - base).unwrap();
    let last = frames.last().unwrap();
    assert_eq!(last.function, "tables::a_function_to_find");
    assert!(
        last.system_name.contains("18a_function_to_find"),
        "{}",
        last.system_name
    );
    assert!(last.file.as_deref().unwrap().ends_with("tests/tables.rs"));
    assert_eq!(table.quality(), Some(Quality::Full));
    assert_eq!(a_function_to_find(), 1);
}

#[test]
fn a_stripped_file_tells_its_functions_apart() {
    let stripped = std::env::temp_dir().join(format!("stripped-{}", std::process::id()));
    let mut strip = std::process::Command::new("strip");
    let strip = strip
        .arg("-o")
        .arg(&stripped)
        .arg(std::env::current_exe().unwrap());
    assert!(strip.status().expect("binutils").success());
    let object = std::fs::read(&stripped).unwrap();
    std::fs::remove_file(&stripped).unwrap();
    let (full, bare) = (table_of(&own_binary()), table_of(&object));
    let (full, bare) = (Table::open(&full).unwrap(), Table::open(&bare).unwrap());

    let base = base_of_this_program();
    let starts = [
        a_function_to_find as *const () as u64,
        table_of as *const () as u64,
        a_table_names_our_own_functions as *const () as u64,
    ];
    for start in starts.map(|start| start - base) {
        for inside in [start, start + 1, start + 3] {
            assert_eq!(bare.frames(inside).unwrap(), [], "{inside:#x}");
            assert_eq!(bare.extent(inside).unwrap(), Some(start), "{inside:#x}");
            assert_eq!(full.extent(inside).unwrap(), None, "{inside:#x}");
        }
        assert_ne!(bare.extent(start - 1).unwrap(), Some(start));
    }
}

fn base_of_this_program() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let exe = std::env::current_exe().unwrap();
    let first = maps
        .lines()
        .find(|l| l.ends_with(exe.to_str().unwrap()))
        .unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}

#[test]
fn what_a_file_is_comes_from_its_headers() {
    let found = inspect(&own_binary()).unwrap();
    assert_eq!((found.quality, found.kind), (Quality::Full, Kind::Code));
    assert!(found.gnu_build_id.is_some_and(|id| id.len() == 20));
    assert_eq!(inspect(b"#!/bin/sh"), Err(Error::NotElf));
}

#[test]
fn a_cut_table_is_an_error() {
    let table = table_of(&small());
    for cut in [0, 1, 16, 100, table.len() / 2, table.len() - 1] {
        assert_eq!(
            Table::open(&table[..cut]).unwrap_err(),
            Error::NotATable,
            "{cut}"
        );
    }
    let mut other = table.clone();
    let version = table.len() - 16;
    other[version] = 9;
    assert_eq!(
        Table::open(&other).unwrap_err(),
        Error::TableVersion { version: 9 }
    );
    let footer = table.len() - 128;
    other = table;
    other[footer + 7] = 0xff;
    assert_eq!(
        Table::open(&other).unwrap_err(),
        Error::Damaged {
            offset: footer as u64
        }
    );
}

#[test]
fn a_forged_table_never_panics() {
    let table = table_of(&small());
    let all = || (0..0x30000).step_by(97);
    let whole = use_all(&table, all());
    assert!(whole > 20, "{whole}");
    let mut random = Random(0x1234_5678_9abc_def1);
    for _ in 0..300 {
        let mut forged = table.clone();
        for _ in 0..1 + random.below(64) {
            let at = random.below(forged.len());
            forged[at] = random.below(256) as u8;
        }
        use_all(&forged, all());
    }
}

#[test]
fn a_forged_object_never_panics() {
    let mut object = own_binary();
    // Headers and the debug sections' first bytes are where parsers trust.
    let mut random = Random(0x9876_5432_1fed_cba1);
    let whole = object.clone();
    let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    for round in 0..12 {
        for _ in 0..1 + random.below(2000) {
            let at = match round % 3 {
                0 => random.below(object.len()),
                1 => random.below(1024),
                _ => sections + random.below(object.len() - sections),
            };
            object[at] = random.below(256) as u8;
        }
        let mut table = Vec::new();
        let _ = inspect(&object);
        if build(&Sources::of(&object), &Limits::default(), &mut table).is_ok() {
            use_all(&table, (0..0x200000).step_by(4099));
        }
        object.copy_from_slice(&whole);
    }
}

#[test]
fn limits_are_errors_that_say_so() {
    let object = own_binary();
    let limits = Limits {
        table_bytes: 1000,
        ..Limits::default()
    };
    let refused = build(&Sources::of(&object), &limits, &mut Vec::new());
    assert_eq!(
        refused,
        Err(Error::Limit {
            what: "bytes of the table",
            limit: 1000
        })
    );
}
