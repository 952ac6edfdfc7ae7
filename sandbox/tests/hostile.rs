//! What hostile files and a hostile parser cost: one child.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pilotlight_sandbox::{Facts, Failure, Job, Limits, Parser, Report};
use pilotlight_symbolize::tables::Table;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn parser() -> Parser {
    Parser::new(env!("CARGO_BIN_EXE_pilotlight-parse"), &[])
}

/// A file without a name.
fn nameless(bytes: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!(
        "pilotlight-hostile-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let options = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
    };
    let mut file = options().unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn own_binary() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

fn build(object: &[u8], limits: Limits) -> (Result<Report, Failure>, Vec<u8>) {
    let table = nameless(&[]);
    let mut back = table.try_clone().unwrap();
    let result = parser().build(&Job::new(nameless(object), table).within(limits));
    let mut bytes = Vec::new();
    back.rewind().unwrap();
    back.read_to_end(&mut bytes).unwrap();
    (result, bytes)
}

#[test]
fn a_child_builds_the_same_table_as_we_do() {
    let object = own_binary();
    let (report, bytes) = build(&object, Limits::default());
    let report = report.unwrap();
    let mut ours = Vec::new();
    let sources = pilotlight_symbolize::tables::Sources::of(&object);
    pilotlight_symbolize::tables::build(&sources, &Default::default(), &mut ours).unwrap();
    assert_eq!(report.table_bytes, bytes.len() as u64);
    assert!(bytes == ours, "the same bytes");
    assert!(Table::open(&bytes).unwrap().function_count() > 1000);
}

#[test]
fn a_mapped_table_is_the_same_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let object = || File::open("/proc/self/exe").unwrap();
    let mapped = parser().map(Job::headers(object()), folder.path()).unwrap();
    let (report, bytes) = build(&own_binary(), Limits::default());
    assert_eq!(mapped.len() as u64, report.unwrap().table_bytes);
    assert!(*mapped == *bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = parser().map(Job::headers(object()), &folder.path().join("gone"));
    assert!(matches!(nowhere, Err(Failure::NoRoom(_))), "{nowhere:?}");
}

/// Runs a tool; false where it is not installed.
fn tool(name: &str, arguments: &[&std::ffi::OsStr]) -> bool {
    let Ok(output) = std::process::Command::new(name).args(arguments).output() else {
        println!("SKIP: {name} is not installed");
        return false;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    true
}

#[test]
fn a_child_reads_the_file_that_shares_dwarf_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["one", "two"] {
        let source = at(&format!("{name}.c"));
        let long = "static inline int a_function_with_a_long_name(int n) { return n * n; }";
        let text = format!(
            "{long}\nint main(int n, char **v) {{ return a_function_with_a_long_name(n) + {name}; }}"
        );
        std::fs::write(&source, text.replace("one", "1").replace("two", "2")).unwrap();
        let options = ["-g", "-O2", "-o"].map(std::ffi::OsStr::new);
        let files = [at(name), source];
        let arguments = options
            .into_iter()
            .chain(files.iter().map(|f| f.as_os_str()));
        assert!(tool("cc", &arguments.collect::<Vec<_>>()));
    }
    let shared = at("shared");
    let (one, two) = (at("one"), at("two"));
    let arguments = [
        "-m".as_ref(),
        shared.as_os_str(),
        one.as_os_str(),
        two.as_os_str(),
    ];
    if !tool("dwz", &arguments) {
        return;
    }
    let (object, beside) = (
        std::fs::read(&one).unwrap(),
        std::fs::read(&shared).unwrap(),
    );
    let facts = parser().inspect(&Job::headers(nameless(&object))).unwrap();
    let (path, id) = facts.supplementary.unwrap();
    assert!(path.ends_with("shared"), "{path}");
    let its = parser().inspect(&Job::headers(nameless(&beside))).unwrap();
    assert_eq!(its.gnu_build_id, Some(id));
    let mut ours = Vec::new();
    let sources = pilotlight_symbolize::tables::Sources {
        supplementary: Some(&beside),
        ..pilotlight_symbolize::tables::Sources::of(&object)
    };
    pilotlight_symbolize::tables::build(&sources, &Default::default(), &mut ours).unwrap();
    let open = || File::open(&one).unwrap();
    let map = |job| parser().map(job, folder.path()).unwrap();
    let both = map(Job::headers(open()).with(shared));
    assert!(*both == *ours, "the same bytes");
    assert!(
        *map(Job::headers(open())) != *ours,
        "it needed the other file"
    );
    let gone = parser().map(Job::headers(open()).with(at("gone")), folder.path());
    let said = gone.unwrap_err().to_string();
    assert!(said.contains("shares DWARF"), "{said}");
}

#[test]
fn what_is_no_object_is_refused_with_the_reason() {
    let (refused, _) = build(b"#!/bin/sh\necho hello\n", Limits::default());
    assert_eq!(refused.unwrap_err().to_string(), "not an ELF file");
}

#[test]
fn memory_time_and_table_are_bounded() {
    let object = own_binary();
    let little = Limits {
        memory_bytes: 4 << 20,
        ..Limits::default()
    };
    let (result, _) = build(&object, little);
    assert!(result.is_err(), "{result:?}");
    let small = Limits {
        table_bytes: 1000,
        ..Limits::default()
    };
    let (result, bytes) = build(&object, small);
    assert_eq!(
        result.unwrap_err().to_string(),
        "more bytes of the table than 1000"
    );
    assert!(bytes.len() <= 1000);
    let short = Limits {
        wall: Duration::ZERO,
        ..Limits::default()
    };
    let (result, _) = build(&object, short);
    assert!(
        matches!(result, Ok(_) | Err(Failure::Late(_))),
        "{result:?}"
    );
}

#[test]
fn forged_files_cost_a_child_at_most() {
    let whole = own_binary();
    let mut random = 0x1357_9bdf_2468_acebu64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit as u64) as usize
    };
    let mut object = whole.clone();
    for _ in 0..20 {
        object.copy_from_slice(&whole);
        for _ in 0..1 + below(500) {
            let at = below(object.len());
            object[at] = below(256) as u8;
        }
        let (result, bytes) = build(
            &object,
            Limits {
                cpu: Duration::from_secs(10),
                ..Limits::default()
            },
        );
        match result {
            Ok(_) => assert!(Table::open(&bytes).is_ok()),
            Err(Failure::Start { .. } | Failure::Wait(_)) => panic!("{result:?}"),
            // A killed child is the purpose; a fault of ours would still be one to mend.
            Err(error) => println!("{error}"),
        }
    }
}

#[test]
fn a_forbidden_call_ends_the_child() {
    // The child's filter in a process of its own: this test, started again.
    if std::env::var_os("PILOTLIGHT_OPENS_A_FILE").is_some() {
        pilotlight_sandbox::filter::enter_for_tests();
        let _ = File::open("/etc/passwd");
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_forbidden_call_ends_the_child"])
        .env("PILOTLIGHT_OPENS_A_FILE", "1")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(libc::SIGSYS));
}

#[test]
fn headers_are_read_in_a_child_too() {
    let facts = parser().inspect(&Job::headers(nameless(&own_binary())));
    let ours = Facts::of(own_binary()).unwrap();
    assert!(ours.gnu_build_id.is_some());
    assert_eq!(facts.unwrap(), ours);
    let refused = parser().inspect(&Job::headers(nameless(b"hello")));
    assert_eq!(refused.unwrap_err().to_string(), "not an ELF file");
}

fn shell(script: &str) -> Parser {
    Parser::new("/bin/sh", &["-c", script])
}

fn headers() -> Job {
    Job::headers(nameless(b"any"))
}

#[test]
fn a_child_that_dies_hangs_or_lies_is_told_from_one_that_refuses() {
    let dead = shell("kill -9 $$").inspect(&headers()).unwrap_err();
    assert!(matches!(dead, Failure::Killed { signal: 9, .. }), "{dead}");
    let short = Limits {
        wall: Duration::from_millis(20),
        ..Limits::default()
    };
    let late = shell("exec sleep 600").inspect(&headers().within(short));
    assert!(matches!(late, Err(Failure::Late(_))), "{late:?}");
    let stop = Arc::new(AtomicBool::new(true));
    let stopped = shell("exec sleep 600").inspect(&headers().until(stop));
    let stopped = stopped.unwrap_err();
    assert!(!stopped.is_of_the_file(), "{stopped}");
    let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1";
    let loud = shell(script).inspect(&headers()).unwrap_err();
    assert!(loud.to_string().len() <= 300, "{loud}");
    let silent = shell("exit 0").inspect(&headers()).unwrap_err();
    assert_eq!(silent.to_string(), "the parser said nothing of the file");
    let missing = Parser::new("/nothing/here", &[]).inspect(&headers());
    let missing = missing.unwrap_err();
    assert!(!missing.is_of_the_file(), "{missing}");
}
