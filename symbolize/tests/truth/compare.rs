//! Our frames against `llvm-symbolizer`'s at random addresses.

use pilotlight_symbolize::tables::{Limits, Sources, Table, build};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// One frame of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub name: String,
    pub file: String,
    pub line: u32,
}

/// How many addresses had which outcome; an example of each.
#[derive(Default, Debug)]
pub struct Outcome {
    pub addresses: usize,
    pub counts: BTreeMap<&'static str, usize>,
    pub examples: BTreeMap<&'static str, String>,
}

/// The newest `llvm-symbolizer`; `None` when there is none.
pub fn symbolizer() -> Option<&'static str> {
    let works = |name: &&&str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|o| o.status.success())
    };
    ["llvm-symbolizer-19", "llvm-symbolizer"]
        .iter()
        .find(works)
        .copied()
}

/// What LLVM says of each address.
pub fn truth(tool: &str, object: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let mut child = Command::new(tool)
        .arg(format!("--obj={}", object.display()))
        .args(["--no-demangle", "--inlines", "--functions=linkage"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("llvm-symbolizer runs");
    let mut stdin = child.stdin.take().unwrap();
    let input: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<Vec<Frame>> = text.trim_end().split("\n\n").map(answer).collect();
    assert_eq!(answers.len(), addresses.len(), "one answer an address");
    answers
}

/// Pairs of lines: a function, then `file:line:column`.
fn answer(text: &str) -> Vec<Frame> {
    let lines: Vec<&str> = text.lines().collect();
    let frame = |pair: &[&str]| {
        let mut place = pair[1].rsplitn(3, ':');
        let (_column, line) = (place.next(), place.next());
        let known = |t: &str| {
            if t == "??" {
                String::new()
            } else {
                t.to_owned()
            }
        };
        Frame {
            name: known(pair[0]),
            file: known(place.next().unwrap_or("")),
            line: line.and_then(|l| l.parse().ok()).unwrap_or(0),
        }
    };
    let frames: Vec<Frame> = lines.chunks_exact(2).map(frame).collect();
    // LLVM's way to know nothing.
    let nothing = |f: &Frame| f.name.is_empty() && f.file.is_empty();
    if frames.iter().all(nothing) {
        Vec::new()
    } else {
        frames
    }
}

fn ours(table: &Table<'_>, svma: u64) -> Vec<Frame> {
    let frames = table.frames(svma).expect("our own table");
    let frame = |f: pilotlight_symbolize::Frame| Frame {
        name: f.system_name,
        file: f.file.unwrap_or_default(),
        line: f.line.unwrap_or(0),
    };
    frames.into_iter().map(frame).collect()
}

/// Addresses spread evenly over the executable sections, from a fixed seed.
pub fn addresses(ranges: &[(u64, u64)], count: usize) -> Vec<u64> {
    let total: u64 = ranges.iter().map(|r| r.1 - r.0).sum();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let address = |_| {
        let mut at = next() % total.max(1);
        for (start, end) in ranges {
            if at < end - start {
                return start + at;
            }
            at -= end - start;
        }
        0
    };
    (0..count).map(address).collect()
}

/// One file to compare.
pub struct Check<'a> {
    tool: &'static str,
    path: &'a Path,
    /// What we build from; LLVM reads `path`.
    pub object: Vec<u8>,
    /// `.dwo` files, which LLVM finds by itself.
    pub split: Vec<Vec<u8>>,
}

impl Check<'_> {
    /// `None` when LLVM is not installed.
    pub fn new(path: &Path) -> Option<Check<'_>> {
        let Some(tool) = symbolizer() else {
            println!("SKIP: llvm-symbolizer is not installed");
            return None;
        };
        let object = std::fs::read(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        Some(Check {
            tool,
            path,
            object,
            split: Vec::new(),
        })
    }

    /// Compares both at `count` addresses.
    pub fn run(&self, count: usize) -> Outcome {
        let split: Vec<&[u8]> = self.split.iter().map(Vec::as_slice).collect();
        let sources = Sources {
            split: &split,
            ..Sources::of(&self.object)
        };
        let mut bytes = Vec::new();
        let report = build(&sources, &Limits::default(), &mut bytes);
        let report = report.unwrap_or_else(|e| panic!("{:?}: {e}", self.path));
        assert_eq!(
            (report.damaged_units, report.missing_split_units),
            (0, 0),
            "{:?}",
            self.path
        );
        let table = Table::open(&bytes).unwrap();
        let addresses = addresses(&code(self.path), count);
        let aliases = Aliases::read(self.path);
        let mut outcome = Outcome {
            addresses: count,
            ..Outcome::default()
        };
        for (svma, theirs) in addresses
            .iter()
            .zip(truth(self.tool, self.path, &addresses))
        {
            let ours = ours(&table, *svma);
            let kind = kind(&ours, &theirs, &aliases);
            *outcome.counts.entry(kind).or_default() += 1;
            let example = || format!("{svma:#x}\n    ours   {ours:?}\n    theirs {theirs:?}");
            outcome.examples.entry(kind).or_insert_with(example);
        }
        outcome
    }
}

/// Executable sections, as `readelf` lists them.
pub fn code(path: &Path) -> Vec<(u64, u64)> {
    let output = Command::new("readelf")
        .arg("-SW")
        .arg(path)
        .output()
        .expect("readelf runs");
    let section = |line: &str| {
        let fields: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
        let hex = |i: usize| u64::from_str_radix(fields.get(i)?, 16).ok();
        let start = hex(2)?;
        fields
            .get(6)
            .filter(|f| **f == "AX")
            .and(Some((start, start + hex(4)?)))
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(section)
        .collect()
}

/// What differs; "equal" when nothing does.
fn kind(ours: &[Frame], theirs: &[Frame], aliases: &Aliases) -> &'static str {
    if ours == theirs {
        return "equal";
    }
    let Some((outer, inner)) = ours.split_last() else {
        // A symbol without a size reaches on into another section.
        return if theirs[0].line == 0 {
            "a symbol beyond its section"
        } else {
            "only LLVM knows it"
        };
    };
    let Some((their_outer, their_inner)) = theirs.split_last() else {
        return "only we know it";
    };
    if ours.len() != theirs.len() {
        return "depth";
    }
    if inner != their_inner {
        let names = inner.iter().zip(their_inner).any(|(o, t)| o.name != t.name);
        return if names {
            "name of an inlined function"
        } else {
            "place of an inlined function"
        };
    }
    if (&outer.file, outer.line) != (&their_outer.file, their_outer.line) {
        // LLVM takes the last file symbol before it.
        let guess = outer.file.is_empty() && outer.line == 0 && their_outer.line == 0;
        return if guess {
            "a file from the symbol table"
        } else {
            "place"
        };
    }
    if clone_of(&outer.name, &their_outer.name) || clone_of(&their_outer.name, &outer.name) {
        return "a clone's suffix";
    }
    if outer.name.replace('·', ".") == their_outer.name {
        return "a dot of Go's";
    }
    if aliases.same(&outer.name, &their_outer.name) {
        return "another name of the same symbol";
    }
    "name"
}

/// `name` is `of` and the suffix of a clone or a cold part.
fn clone_of(name: &str, of: &str) -> bool {
    name.strip_prefix(of)
        .is_some_and(|suffix| suffix.starts_with('.'))
}

/// Addresses of symbols by name.
pub struct Aliases(BTreeMap<String, Vec<String>>);

impl Aliases {
    /// As `nm` lists them.
    pub fn read(object: &Path) -> Aliases {
        let mut aliases = Aliases(BTreeMap::new());
        for table in [&[][..], &["-D"]] {
            let output = Command::new("nm")
                .args(table)
                .arg(object)
                .output()
                .expect("nm runs");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let fields: Vec<&str> = line.split_whitespace().collect();
                if let [address, _, name] = fields[..] {
                    let name = name.split('@').next().unwrap_or(name);
                    aliases
                        .0
                        .entry(name.to_owned())
                        .or_default()
                        .push(address.to_owned());
                }
            }
        }
        aliases
    }

    fn same(&self, a: &str, b: &str) -> bool {
        // Symbols of a shared library may have a version.
        let plain = |name: &str| name.split('@').next().unwrap_or(name).to_owned();
        let of = |name: &str| self.0.get(&plain(name)).map_or(&[][..], |v| v);
        of(a).iter().any(|address| of(b).contains(address))
    }
}
