//! Against binutils: the same build ids as `readelf`, the same frames as `addr2line`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pilotlight_symbolize::Object;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn object(path: impl AsRef<Path>) -> Object {
    let path = path.as_ref();
    Object::parse(std::fs::read(path).unwrap_or_else(|e| panic!("{path:?}: {e}"))).unwrap()
}

/// `None` when the tool is not installed.
fn tool(command: &mut Command, input: &str) -> Option<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn build_ids_equal_readelf() {
    for path in ["/lib64/ld-linux-x86-64.so.2", "/proc/self/exe"] {
        let path = std::fs::canonicalize(path).unwrap();
        let Some(notes) = tool(Command::new("readelf").arg("-n").arg(&path), "") else {
            println!("SKIP: readelf is not installed");
            return;
        };
        let expected = notes
            .lines()
            .find_map(|l| l.trim().strip_prefix("Build ID: "));
        let object = object(&path);
        let ours: Option<String> = object
            .build_id()
            .map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
        assert_eq!(ours.as_deref(), expected, "{path:?}");
    }
}

/// One address as `addr2line -fi` prints it: function and `file:line`, innermost first.
fn addr2line(path: &Path, addresses: &[u64]) -> Option<Vec<Vec<(String, String)>>> {
    let input: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let text = tool(
        Command::new("addr2line").args(["-afi", "-e"]).arg(path),
        &input,
    )?;
    let mut found: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") && lines.peek().is_some() {
            found.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (discr").next().unwrap();
        found
            .last_mut()
            .unwrap()
            .push((line.to_owned(), place.to_owned()));
    }
    Some(found)
}

/// Last path component and line: the two print folders differently.
fn place(text: &str) -> String {
    text.rsplit('/').next().unwrap().to_owned()
}

#[test]
fn frames_of_our_own_code_equal_addr2line() {
    let path = std::env::current_exe().unwrap();
    let object = object(&path);
    // Own functions: goldens' and the library's, spread over their code.
    let text = object
        .segments()
        .iter()
        .find(|s| s.executable)
        .copied()
        .unwrap();
    let known = |&svma: &u64| {
        object.symbol(svma).is_some_and(|s| {
            let name = String::from_utf8_lossy(s.name);
            name.contains("goldens") || name.contains("pilotlight_symbolize")
        })
    };
    let all: Vec<u64> = (text.svma..text.svma + text.memory_size)
        .step_by(7)
        .filter(known)
        .collect();
    let addresses: Vec<u64> = all
        .iter()
        .copied()
        .step_by((all.len() / 400).max(1))
        .collect();
    assert!(addresses.len() >= 300, "{}", addresses.len());
    let Some(expected) = addr2line(&path, &addresses) else {
        println!("SKIP: addr2line is not installed");
        return;
    };
    let (mut same, mut inlined) = (0, 0);
    let mut different = Vec::new();
    for (svma, expected) in addresses.iter().zip(&expected) {
        let ours = object.frames(*svma);
        let places: Vec<String> = ours
            .iter()
            .map(|f| {
                let line = f.line.map_or("?".to_owned(), |l| l.to_string());
                place(&format!("{}:{line}", f.file.as_deref().unwrap_or("??")))
            })
            .collect();
        let theirs: Vec<String> = expected.iter().map(|e| place(&e.1)).collect();
        // binutils often gives the innermost frame the name of the symbol around it, which is our
        // outermost one; the frames between carry DWARF's names in both.
        let last = ours.len() - 1;
        let mut between = ours[1..last.max(1)].iter().zip(&expected[1..]);
        let innermost = [&ours[0].system_name, &ours[last].system_name];
        let same_names =
            innermost.contains(&&expected[0].0) && between.all(|(f, e)| f.system_name == e.0);
        inlined += usize::from(ours.len() > 1);
        same += usize::from(same_names);
        if places != theirs {
            different.push((*svma, places, theirs));
        }
    }
    println!(
        "{same} of {} with equal names, {inlined} with inlined frames",
        addresses.len()
    );
    assert!(inlined > 100);
    // Functions of identical code share one address, and either name is right.
    assert!(same * 100 >= addresses.len() * 95);
    assert_eq!(different, [], "{} differ", different.len());
}

#[test]
fn a_stripped_binary_has_its_symbol_names_still() {
    let dir = scratch("strip");
    let source =
        "int answer_me(int x) { return x * 42; }\nint main(void) { return answer_me(0); }\n";
    std::fs::write(dir.join("a.c"), source).unwrap();
    run(Command::new("cc").current_dir(&dir).args([
        "-g",
        "-O1",
        "-fno-inline",
        "a.c",
        "-o",
        "full",
    ]));
    run(Command::new("cc")
        .current_dir(&dir)
        .args(["-s", "-O1", "-shared", "-fPIC", "a.c", "-o", "stripped"]));
    let full = object(dir.join("full"));
    let svma = (0..1 << 20)
        .find(|&at| full.symbol(at).is_some_and(|s| s.name == b"answer_me"))
        .unwrap();
    let frames = full.frames(svma);
    assert_eq!(
        (frames[0].function.as_str(), frames[0].line),
        ("answer_me", Some(1))
    );
    assert!(frames[0].file.as_ref().unwrap().ends_with("a.c"));
    // Without .symtab and DWARF the dynamic symbols remain.
    let stripped = object(dir.join("stripped"));
    assert!(!stripped.has_debug_info());
    let svma = (0..1 << 20)
        .find(|&at| stripped.symbol(at).is_some())
        .unwrap();
    let frames = stripped.frames(svma);
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].file.as_deref(), frames[0].line), (None, None));
    assert!(!frames[0].function.is_empty());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_go_binary_has_names_lines_and_inlined_calls() {
    let dir = scratch("gosym");
    let source = "package main\n\nimport \"os\"\n\nfunc inner(x int) int {\n\treturn x*x + 7\n}\n\n//go:noinline\nfunc Outer(x int) int {\n\treturn inner(x) * 3\n}\n\nfunc main() {\n\tos.Exit(Outer(len(os.Args)))\n}\n";
    std::fs::write(dir.join("main.go"), source).unwrap();
    run(Command::new("go")
        .current_dir(&dir)
        .args(["build", "-o", "out", "main.go"]));
    let object = object(dir.join("out"));
    let text = object
        .segments()
        .iter()
        .find(|s| s.executable)
        .copied()
        .unwrap();
    let outer: Vec<u64> = (text.svma..text.svma + text.memory_size)
        .filter(|&at| object.symbol(at).is_some_and(|s| s.name == b"main.Outer"))
        .collect();
    assert!(!outer.is_empty());
    let chains: Vec<Vec<(String, Option<u32>)>> = outer
        .iter()
        .map(|&at| {
            object
                .frames(at)
                .into_iter()
                .map(|f| (f.function, f.line))
                .collect()
        })
        .collect();
    let expected = [
        ("main.inner".to_owned(), Some(6)),
        ("main.Outer".to_owned(), Some(11)),
    ];
    assert!(chains.iter().any(|c| c == &expected), "{chains:?}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn file_offsets_map_to_code_addresses() {
    let object = object("/lib64/ld-linux-x86-64.so.2");
    let text = object
        .segments()
        .iter()
        .find(|s| s.executable)
        .copied()
        .unwrap();
    assert_eq!(
        object.file_offset_to_svma(text.file_offset + 100),
        Some(text.svma + 100)
    );
    assert_eq!(object.file_offset_to_svma(1 << 40), None);
}

#[test]
fn damaged_files_are_refused_or_answer_without_panic() {
    let good = std::fs::read("/proc/self/exe").unwrap();
    let headers = good.len() - 64 * 60..good.len();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    let text = object("/proc/self/exe")
        .segments()
        .iter()
        .find(|s| s.executable)
        .copied()
        .unwrap();
    for round in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..4 {
            let at = if round % 2 == 0 {
                headers.start + next(headers.len())
            } else {
                next(bytes.len())
            };
            bytes[at] = next(256) as u8;
        }
        if round % 5 == 0 {
            bytes.truncate(next(good.len()));
        }
        if let Ok(object) = Object::parse(bytes) {
            for _ in 0..20 {
                object.frames(text.svma + next(text.memory_size as usize) as u64);
            }
        }
    }
    assert!(Object::parse(&b"no elf"[..]).is_err());
}
