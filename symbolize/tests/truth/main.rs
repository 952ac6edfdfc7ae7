//! Truth: our tables against `llvm-symbolizer`, at random addresses of binaries of many kinds.
//!
//! `PILOTLIGHT_TRUTH_ADDRESSES=10000` asks for more addresses a binary than the 1,000 of CI.
#![cfg(feature = "tables")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod compare;
mod dwz;
mod programs;

use compare::{Check, Outcome};
use pilotlight_symbolize::tables::inspect;
use programs::{Scratch, run};
use std::path::{Path, PathBuf};

/// What may differ, and why ours is no worse.
const ALLOWED: &[(&str, &str)] = &[
    (
        "a clone's suffix",
        "LLVM names the code after its clone or cold part, we after the function",
    ),
    (
        "a file from the symbol table",
        "LLVM guesses the file from the last file symbol, often wrong",
    ),
    (
        "a symbol beyond its section",
        "LLVM lets a symbol without a size reach into other sections",
    ),
    (
        "another name of the same symbol",
        "several symbols at one address",
    ),
    (
        "a dot of Go's",
        "Go's compiler writes a middle dot, which its linker makes a full stop in DWARF only",
    ),
];

fn count() -> usize {
    let wanted = std::env::var("PILOTLIGHT_TRUTH_ADDRESSES").ok();
    wanted.and_then(|n| n.parse().ok()).unwrap_or(1000)
}

/// Fails when anything but the allowed differs; says what did, in a line that `bench symbolize truth`
/// reads. A kind that may not be begins with `!`.
fn judge(name: &str, outcome: &Outcome) {
    let allowed = |kind: &&str| *kind == "equal" || ALLOWED.iter().any(|(a, _)| a == kind);
    let count = |(kind, count): (&&str, &usize)| {
        let mark = if allowed(kind) { "" } else { "!" };
        format!("{mark}{kind}={count}")
    };
    let counts: Vec<String> = outcome.counts.iter().map(count).collect();
    println!("TRUTH {name}: {}", counts.join("; "));
    let refused = outcome.counts.keys().find(|k| !allowed(k));
    let example = refused.map(|kind| format!("{kind}: {}", outcome.examples[kind]));
    assert_eq!(example, None, "{name}");
    let equal = outcome.counts.get("equal").copied().unwrap_or(0);
    assert!(
        equal * 3 > outcome.addresses,
        "{name}: mostly equal: {:?}",
        outcome.counts
    );
}

/// Compares a file with what LLVM says of it.
fn check(name: &str, path: &Path) {
    if let Some(check) = Check::new(path) {
        judge(name, &check.run(count()));
    }
}

#[test]
fn c_programs() {
    let dir = Scratch::new("truth-c");
    let sources = dir.write(&[("main.c", programs::C_MAIN), ("work.c", programs::C_WORK)]);
    let variants: &[(&str, &[&str])] = &[
        ("c-o0", &["-O0"]),
        ("c-pie", &["-O2", "-fPIE", "-pie"]),
        ("c-no-pie", &["-O2", "-fno-pie", "-no-pie"]),
        (
            "c-lto",
            &["-O2", "-flto", "-ffunction-sections", "-Wl,--gc-sections"],
        ),
        ("c-dwarf4", &["-O3", "-gdwarf-4"]),
        ("c-line-tables", &["-O2", "-g1"]),
        ("c-zlib", &["-O2", "-gz=zlib"]),
    ];
    for (name, options) in variants {
        let out = dir.path(name);
        run(
            "gcc",
            &[
                &["-g", "-o", out.as_str()],
                *options,
                &[&sources[0], &sources[1]],
            ]
            .concat(),
        );
        check(name, out.as_ref());
    }
}

#[test]
fn stripped_programs_with_a_debug_file() {
    let dir = Scratch::new("truth-debug");
    let sources = dir.write(&[("main.c", programs::C_MAIN), ("work.c", programs::C_WORK)]);
    let (whole, debug) = (dir.path("whole"), dir.path("whole.debug"));
    run(
        "gcc",
        &["-g", "-O2", "-o", &whole, &sources[0], &sources[1]],
    );
    run("objcopy", &["--only-keep-debug", &whole, &debug]);
    check("debug-file", debug.as_ref());
    // Not every LLVM reads all of these: the same addresses of the same program.
    for kind in ["zstd", "zlib-gnu", "zlib-gabi"] {
        let packed = dir.path(kind);
        run(
            "objcopy",
            &[
                &format!("--compress-debug-sections={kind}"),
                &debug,
                &packed,
            ],
        );
        let Some(mut check) = Check::new(debug.as_ref()) else {
            return;
        };
        check.object = std::fs::read(packed).unwrap();
        judge(kind, &check.run(count()));
    }
}

#[test]
fn cpp_programs() {
    let dir = Scratch::new("truth-cpp");
    let source = dir.write(&[("main.cc", programs::CPP)]).remove(0);
    let variants: &[(&str, &[&str])] = &[
        ("cpp-o0", &["-O0"]),
        ("cpp-dwarf5", &["-O2"]),
        ("cpp-dwarf4", &["-O2", "-gdwarf-4"]),
        ("cpp-static", &["-O2", "-static"]),
        (
            "cpp-lto",
            &["-O2", "-flto", "-ffunction-sections", "-Wl,--gc-sections"],
        ),
        ("cpp-types", &["-O2", "-fdebug-types-section"]),
    ];
    for (name, options) in variants {
        let out = dir.path(name);
        run(
            "g++",
            &[&["-g", "-o", out.as_str()], *options, &[source.as_str()]].concat(),
        );
        check(name, out.as_ref());
    }
}

#[test]
fn split_dwarf() {
    let dir = Scratch::new("truth-split");
    let sources = dir.write(&[("main.c", programs::C_MAIN), ("work.c", programs::C_WORK)]);
    for (name, version) in [("split-5", "-gdwarf-5"), ("split-4", "-gdwarf-4")] {
        let objects: Vec<String> = ["main", "work"]
            .iter()
            .map(|n| dir.path(&format!("{name}-{n}.o")))
            .collect();
        for (source, object) in sources.iter().zip(&objects) {
            run(
                "gcc",
                &[
                    "-g",
                    version,
                    "-O2",
                    "-gsplit-dwarf",
                    "-c",
                    "-o",
                    object,
                    source,
                ],
            );
        }
        let out = dir.path(name);
        run("gcc", &["-o", &out, &objects[0], &objects[1]]);
        let Some(mut check) = Check::new(out.as_ref()) else {
            return;
        };
        let split = |o: &String| std::fs::read(o.replace(".o", ".dwo")).unwrap();
        check.split = objects.iter().map(split).collect();
        judge(name, &check.run(count()));
    }
}

#[test]
fn rust_programs() {
    let dir = Scratch::new("truth-rust");
    let source = dir.write(&[("main.rs", programs::RUST)]).remove(0);
    let variants: &[(&str, &[&str])] = &[
        ("rust-o0", &[]),
        ("rust-o3", &["-Copt-level=3"]),
        (
            "rust-v0",
            &["-Copt-level=3", "-Csymbol-mangling-version=v0"],
        ),
        (
            "rust-lto",
            &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"],
        ),
        (
            "rust-lines",
            &["-Copt-level=2", "-Cdebuginfo=line-tables-only"],
        ),
        (
            "rust-no-pie",
            &["-Copt-level=3", "-Crelocation-model=static"],
        ),
    ];
    for (name, options) in variants {
        let out = dir.path(name);
        run(
            "rustc",
            &[
                &["--edition=2021", "-g", "-o", out.as_str()],
                *options,
                &[source.as_str()],
            ]
            .concat(),
        );
        check(name, out.as_ref());
    }
}

#[test]
fn go_programs() {
    if !programs::works("go") {
        println!("SKIP: go is not installed");
        return;
    }
    let dir = Scratch::new("truth-go");
    let source = dir.write(&[("main.go", programs::GO)]).remove(0);
    for (name, options) in [("go", &[][..]), ("go-trimpath", &["-trimpath"])] {
        let out = dir.path(name);
        run(
            "go",
            &[&["build", "-o", out.as_str()], options, &[source.as_str()]].concat(),
        );
        check(name, out.as_ref());
    }
}

#[test]
fn files_of_the_system() {
    let files = [
        std::env::current_exe().unwrap(),
        "/lib/x86_64-linux-gnu/libc.so.6".into(),
        "/lib64/ld-linux-x86-64.so.2".into(),
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6".into(),
        "/usr/lib/x86_64-linux-gnu/libm.so.6".into(),
    ];
    for file in files.iter().filter(|f| f.exists()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let debug = debug_file(file).unwrap_or_else(|| file.clone());
        check(&name, &debug);
    }
}

/// What Debian's `-dbg` and `-dbgsym` packages install.
fn debug_file(path: &Path) -> Option<PathBuf> {
    let found = inspect(&std::fs::read(path).unwrap()).unwrap();
    let id: String = found
        .gnu_build_id?
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let path = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    Some(PathBuf::from(path)).filter(|p| p.exists())
}
