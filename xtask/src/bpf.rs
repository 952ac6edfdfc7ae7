//! The agent's BPF objects: built from C, compared byte for byte, their instructions counted.

use crate::steps;
use std::fs;

const FOLDER: &str = "host-agent-bpf";
const OBJECTS: &[&str] = &["agent"];
/// The version is part of what makes objects equal.
const CLANG: &str = "clang-19";
const STRIP: &str = "llvm-strip-19";
const DUMP: &str = "llvm-objdump-19";

/// Builds every object from `c/`, and writes its checksum and instruction counts beside it.
pub fn build() -> Result<(), String> {
    OBJECTS.iter().try_for_each(|name| {
        let (object, notes) = compile(name)?;
        write(&format!("{FOLDER}/objects/{name}.bpf.o"), &object)?;
        write(
            &format!("{FOLDER}/objects/{name}.bpf.txt"),
            notes.as_bytes(),
        )
    })
}

/// What is committed is what `c/` builds, and no program grew by more than 5 % unnoticed.
pub fn check() -> Result<(), String> {
    OBJECTS.iter().try_for_each(|name| {
        let (object, notes) = compile(name)?;
        let committed = read(&format!("{FOLDER}/objects/{name}.bpf.o"))?;
        let noted = String::from_utf8_lossy(&read(&format!("{FOLDER}/objects/{name}.bpf.txt"))?).into_owned();
        grown(&noted, &notes)?;
        if object != committed || notes != noted {
            return Err(format!(
                "{FOLDER}/objects/{name}.bpf.o is not what {FOLDER}/c builds: run `cargo xtask bpf` and commit"
            ));
        }
        Ok(())
    })
}

/// The object and what is noted of it: `sha256 HEX`, then `SECTION INSTRUCTIONS` lines.
fn compile(name: &str) -> Result<(Vec<u8>, String), String> {
    let out = steps::target_dir().join(format!("{name}.bpf.o"));
    let shown = out.to_string_lossy().into_owned();
    let here = steps::root().join(FOLDER);
    let prefix = format!("-ffile-prefix-map={}=.", here.display());
    let source = format!("c/{name}.bpf.c");
    let flags = [
        "-target",
        "bpf",
        "-mcpu=v3",
        "-O2",
        "-g",
        "-Wall",
        "-Wno-unused",
        "-Ic",
    ];
    // Paths stand in the object's type information: none of this machine may.
    let paths = [
        prefix.as_str(),
        "-fdebug-compilation-dir=.",
        "-c",
        &source,
        "-o",
        &shown,
    ];
    steps::run(CLANG, &[&flags[..], &paths].concat(), FOLDER)?;
    steps::run(STRIP, &["-g", &shown], FOLDER)?;
    let object = fs::read(&out).map_err(|error| format!("{shown}: {error}"))?;
    let sum = steps::lines_of("sha256sum", &[&shown])?;
    let sum = sum
        .first()
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or("");
    Ok((object, format!("sha256 {sum}\n{}", instructions(&shown)?)))
}

/// Size of each section of code; an instruction takes 8 bytes.
fn instructions(object: &str) -> Result<String, String> {
    let lines = steps::lines_of(DUMP, &["-h", object])?;
    let code = lines.iter().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, section, size, _, "TEXT"] = fields[..] else {
            return None;
        };
        let bytes = u64::from_str_radix(size, 16)
            .ok()
            .filter(|bytes| *bytes > 0)?;
        Some(format!("{section} {}\n", bytes / 8))
    });
    Ok(code.collect())
}

fn grown(before: &str, after: &str) -> Result<(), String> {
    let counts = |notes: &str| -> Vec<(String, u64)> {
        let pair = |line: &str| {
            let (section, count) = line.split_once(' ')?;
            Some((section.to_owned(), count.parse().ok()?))
        };
        notes.lines().filter_map(pair).collect()
    };
    let before = counts(before);
    for (section, now) in counts(after) {
        let was = before
            .iter()
            .find(|(name, _)| *name == section)
            .map_or(0, |(_, count)| *count);
        if was > 0 && now * 100 > was * 105 {
            return Err(format!(
                "BPF section {section} grew from {was} to {now} instructions"
            ));
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    fs::read(steps::root().join(path))
        .map_err(|error| format!("{path}: {error}; run `cargo xtask bpf`"))
}

fn write(path: &str, bytes: &[u8]) -> Result<(), String> {
    fs::write(steps::root().join(path), bytes).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn five_percent_more_instructions_are_noticed() {
        assert!(super::grown("sha256 ab\n.text 1000\n", "sha256 cd\n.text 1050\n").is_ok());
        assert!(super::grown("sha256 ab\n.text 1000\n", "sha256 cd\n.text 1051\n").is_err());
    }
}
