//! Names in the process: within their memory, or left to the reader.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use common::{burn, profile_of, start_with};
use pilotlight::{Config, Profile, stats};

#[inline(never)]
fn named_by_the_symbol_table() {
    burn(300_000_000);
}

/// Name (if any) and line of each location that lies in a binary.
fn code(profile: &Profile) -> Vec<(Option<String>, i64)> {
    (0..profile.locations.len())
        .map(|index| profile.location(index))
        .filter(|location| location.mapping.is_some())
        .map(|location| {
            let line = location.lines.last();
            let function = line.and_then(|line| profile.functions.get(line.function.index()));
            let name = function.map(|f| profile.strings.text(f.name).into_owned());
            (name, line.map_or(0, |line| line.line))
        })
        .collect()
}

fn config() -> Config {
    Config::new("test").no_listener().frequency_hz(199)
}

fn has(code: &[(Option<String>, i64)], name: &str) -> bool {
    let mut names = code.iter().filter_map(|(known, _)| known.as_deref());
    names.any(|known| known.ends_with(name))
}

#[test]
fn without_names_addresses_and_build_ids_go_out() {
    let _started = start_with(config().symbolize(false));
    let before = stats().names_over_memory;
    let profile = profile_of(named_by_the_symbol_table);
    let code = code(&profile);
    assert!(
        code.len() > 3 && code.iter().all(|(name, _)| name.is_none()),
        "{code:?}"
    );
    let main = profile.mappings[0];
    let exe = std::env::current_exe().unwrap();
    assert_eq!(profile.strings.text(main.file), exe.to_str().unwrap());
    assert!(!main.has_functions);
    // What the server has: the file by its build id, and the address in it.
    let object = pilotlight_symbolize::Object::parse(std::fs::read(exe).unwrap()).unwrap();
    let build_id = object.build_id().unwrap();
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(profile.strings.text(main.build_id), hex);
    let named = (0..profile.locations.len()).any(|index| {
        let address = profile.location(index).address;
        let inside = (main.start..main.limit).contains(&address);
        let svma = object.file_offset_to_svma(address.wrapping_sub(main.start) + main.offset);
        let frames = svma.filter(|_| inside).map(|svma| object.frames(svma));
        frames.is_some_and(|frames| {
            frames
                .iter()
                .any(|frame| frame.function == "names::named_by_the_symbol_table")
        })
    });
    assert!(named);
    assert_eq!(stats().names_over_memory, before);
}

#[test]
fn names_that_do_not_fit_are_counted_and_the_symbol_table_serves() {
    let _started = start_with(config());
    let before = stats().names_over_memory;
    let whole = code(&profile_of(named_by_the_symbol_table));
    assert!(has(&whole, "named_by_the_symbol_table"), "{whole:?}");
    assert!(whole.iter().any(|(_, line)| *line > 0), "{whole:?}");
    assert_eq!(stats().names_over_memory, before);
    drop(_started);

    // Room for symbol tables only.
    let _started = start_with(config().symbolize_bytes(1 << 20));
    let cut = code(&profile_of(named_by_the_symbol_table));
    assert!(has(&cut, "names::named_by_the_symbol_table"), "{cut:?}");
    let with_line = cut.iter().filter(|(_, line)| *line > 0).count();
    assert_eq!(with_line, 0, "{cut:?}");
    let counted = stats().names_over_memory - before;
    // All of this program; libc and the vdso have no debug information to go without.
    assert!(
        counted > 0 && counted <= cut.len() as u64,
        "{counted} of {cut:?}"
    );
    drop(_started);

    let _started = start_with(config().symbolize_bytes(0));
    let before = stats().names_over_memory;
    let none = code(&profile_of(named_by_the_symbol_table));
    let by_offset = |name: &Option<String>| name.as_deref().is_some_and(|n| n.contains("+0x"));
    assert!(none.iter().all(|(name, _)| by_offset(name)), "{none:?}");
    // A library without any symbol has nothing that would not fit.
    let own = none.iter().filter(|(name, _)| {
        let exe = std::env::current_exe().unwrap();
        let file = exe.file_name().unwrap().to_str().unwrap();
        name.as_deref().is_some_and(|name| name.starts_with(file))
    });
    let counted = stats().names_over_memory - before;
    let (least, most) = (own.count() as u64, none.len() as u64);
    assert!(
        least > 0 && (least..=most).contains(&counted),
        "{counted}: {none:?}"
    );
}
