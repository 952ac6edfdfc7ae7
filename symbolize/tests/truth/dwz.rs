//! DWARF that dwz moved into a file that several share.

use crate::compare::{addresses, code};
use crate::programs::{self, Scratch, run};
use pilotlight_symbolize::Frame;
use pilotlight_symbolize::tables::{Kind, Limits, Quality, Sources, Table, build, inspect};
use std::path::Path;
use std::process::Command;

const SHARED: &str = r#"
struct common { int first_field; long second_field; char third_field[32]; struct common *next; };
static inline __attribute__((always_inline)) int shared_square(struct common *it, int n) {
    it->first_field += n;
    return n * n + it->first_field;
}
static inline __attribute__((always_inline)) int shared_cube(struct common *it, int n) {
    return shared_square(it, n) * n;
}
"#;

/// Two programs that share much, before and after dwz.
struct Pair {
    before: Vec<String>,
    after: Vec<String>,
    shared: String,
}

fn pair(dir: &Scratch, compiler: &[&str], options: &[&str]) -> Pair {
    dir.write(&[("shared.h", SHARED)]);
    let path = |name: &str, kind: &str| dir.path(&format!("{name}{kind}"));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for name in ["one", "two"] {
        let text = format!(
            "#include \"shared.h\"\n#include <stdio.h>\n__attribute__((noinline)) int leaf_{name}(struct \
             common *it, int n) {{\n    return shared_cube(it, n) + 1;\n}}\nint main(int c, char **v) {{\n    \
             struct common it = {{0}};\n    printf(\"%d\", leaf_{name}(&it, c));\n    return \
             it.first_field;\n}}\n"
        );
        let file = format!("{name}.c");
        let source = dir.write(&[(file.as_str(), text.as_str())]).remove(0);
        let whole = path(name, "");
        let common = ["-g", "-O2", "-Wl,--build-id=sha1", "-o", &whole, &source];
        run(compiler[0], &[&compiler[1..], &common].concat());
        let debugs = [path(name, ".before"), path(name, ".debug")];
        for debug in &debugs {
            run("objcopy", &["--only-keep-debug", &whole, debug]);
        }
        let [first, second] = debugs;
        before.push(first);
        after.push(second);
    }
    let shared = dir.path("shared.dwz");
    let out = ["-m", &shared, "-M", &shared, &after[0], &after[1]];
    run("dwz", &[options, &out].concat());
    Pair {
        before,
        after,
        shared,
    }
}

fn frames(object: &[u8], shared: Option<&[u8]>, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let sources = Sources {
        supplementary: shared,
        ..Sources::of(object)
    };
    let mut bytes = Vec::new();
    build(&sources, &Limits::default(), &mut bytes).unwrap();
    let table = Table::open(&bytes).unwrap();
    let frames = |&at| table.frames(at).unwrap();
    addresses.iter().map(frames).collect()
}

/// Lines, innermost first, as binutils says them.
fn addr2line(object: &str, addresses: &[u64]) -> Vec<Vec<u32>> {
    let addresses = addresses.iter().map(|at| format!("{at:#x}"));
    let path = Path::new(object);
    let name = path.file_name().unwrap().to_str().unwrap();
    let arguments = ["-e", name, "-f", "-i", "-a"].map(str::to_owned);
    let output = Command::new("addr2line")
        // It looks for the shared file here only.
        .current_dir(path.parent().unwrap())
        .args(arguments.into_iter().chain(addresses))
        .output()
        .expect("addr2line runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<Vec<u32>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        let number = place.rsplit(':').next().unwrap();
        let number = number.split(' ').next().unwrap().parse().unwrap_or(0);
        answers.last_mut().unwrap().push(number);
    }
    answers
}

#[test]
fn files_that_share_dwarf_name_what_they_named_before() {
    if !programs::works("dwz") {
        println!("SKIP: dwz is not installed (Debian's package dwz)");
        return;
    }
    for (name, compiler, options) in [
        ("dwarf5", &["gcc"][..], &[][..]),
        ("dwarf4", &["gcc", "-gdwarf-4"], &[]),
        ("c++", &["g++"], &[]),
        ("debug_sup", &["gcc"], &["--dwarf-5"]),
    ] {
        let dir = Scratch::new(&format!("truth-dwz-{name}"));
        let pair = pair(&dir, compiler, options);
        let read = |path: &String| std::fs::read(path).unwrap();
        let shared = read(&pair.shared);
        let found = inspect(&shared).unwrap();
        assert_eq!(
            (found.kind, found.quality),
            (Kind::Supplementary, Quality::Full),
            "{name}"
        );
        assert_eq!(found.supplementary, None, "{name}: it needs no other");
        for (before, after) in pair.before.iter().zip(&pair.after) {
            let (whole, object) = (read(before), read(after));
            let needs = inspect(&object).unwrap();
            assert_eq!(needs.quality, Quality::Split, "{name}");
            let (path, id) = needs.supplementary.unwrap();
            assert!(path.ends_with("shared.dwz"), "{name}: {path}");
            assert_eq!(Some(id), found.gnu_build_id, "{name}");
            let all = addresses(&code(Path::new(before)), 500);
            let wanted = frames(&whole, None, &all);
            let inlined = |of: &[Frame]| of.iter().any(|f| f.function == "shared_square");
            assert!(wanted.iter().any(|of| inlined(of)), "{name}");
            assert_eq!(frames(&object, Some(&shared), &all), wanted, "{name}");
            let alone = frames(&object, None, &all);
            assert!(!alone.iter().any(|of| inlined(of)), "{name}");
            let deep = |of: &[Vec<Frame>]| of.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(deep(&alone), deep(&wanted), "{name}: depths stay");
            if options.is_empty() {
                let ours = frames(&object, Some(&shared), &all);
                same_as_addr2line(after, &all, &ours);
            }
        }
    }
}

/// Lines, where both know them: binutils 2.40 loses names that are shared, and gives the outermost
/// function's instead.
fn same_as_addr2line(object: &str, all: &[u64], ours: &[Vec<Frame>]) {
    let mut compared = 0;
    for ((at, ours), theirs) in all.iter().zip(ours).zip(addr2line(object, all)) {
        if ours.iter().any(|f| f.line.is_none()) || theirs.contains(&0) {
            continue;
        }
        let ours: Vec<u32> = ours.iter().filter_map(|f| f.line).collect();
        assert_eq!(ours, theirs, "{object} at {at:#x}");
        compared += 1;
    }
    assert!(compared > all.len() / 10, "{compared} of {}", all.len());
}
