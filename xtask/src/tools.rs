//! What the tests need besides Rust, and how it gets here.

use std::path::{Path, PathBuf};

use crate::steps::{self, works};

struct Tool {
    program: &'static str,
    probe: &'static [&'static str],
    debian_package: &'static str,
    why: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "cc",
        probe: &["--version"],
        debian_package: "gcc",
        why: "links Rust and builds test libraries",
    },
    Tool {
        program: "readelf",
        probe: &["--version"],
        debian_package: "binutils",
        why: "reference for ELF and DWARF",
    },
    Tool {
        program: "go",
        probe: &["version"],
        debian_package: "golang-go",
        why: "go tool pprof and Go services are the reference",
    },
    Tool {
        program: "node",
        probe: &["--version"],
        debian_package: "nodejs",
        why: "type check and unit tests of the page",
    },
    Tool {
        program: "npm",
        probe: &["--version"],
        debian_package: "npm",
        why: "dependencies of the page's tests",
    },
    Tool {
        program: "chromium",
        probe: &["--version"],
        debian_package: "chromium",
        why: "the page is tested in a real browser",
    },
    Tool {
        program: "python3",
        probe: &["-c", "import venv, ensurepip"],
        debian_package: "python3-venv",
        why: "DuckDB and pandas read our Parquet files",
    },
    Tool {
        program: "clang-19",
        probe: &["--version"],
        debian_package: "clang-19",
        why: "the agent's BPF objects are rebuilt and compared",
    },
    Tool {
        program: "llvm-strip-19",
        probe: &["--version"],
        debian_package: "llvm-19",
        why: "BPF objects are committed without debug sections",
    },
    Tool {
        program: "dwz",
        probe: &["--version"],
        debian_package: "dwz",
        why: "names in debug files that share DWARF",
    },
];

/// What runs the SDK's tests on aarch64; without it those are skipped.
const EMULATOR: &[Tool] = &[
    Tool {
        program: "qemu-aarch64",
        probe: &["--version"],
        debian_package: "qemu-user",
        why: "runs tests of aarch64",
    },
    Tool {
        program: "aarch64-linux-gnu-gcc",
        probe: &["--version"],
        debian_package: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        why: "links tests of aarch64",
    },
];

/// The emulator is here, installed first where that is possible; otherwise what to install.
pub fn emulator() -> Result<(), String> {
    let missing = |tool: &&Tool| !works(tool.program, tool.probe);
    if EMULATOR.iter().any(|tool| missing(&tool)) {
        // Without the right or the network: said below.
        let _ = install(&EMULATOR.iter().filter(missing).collect::<Vec<_>>());
    }
    let still: Vec<&str> = EMULATOR
        .iter()
        .filter(missing)
        .map(|t| t.debian_package)
        .collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("install {}", still.join(" ")))
    }
}

fn install(tools: &[&Tool]) -> Result<(), String> {
    if !is_root() || !works("apt-get", &["--version"]) {
        return Ok(());
    }
    let packages: Vec<&str> = tools
        .iter()
        .flat_map(|tool| tool.debian_package.split(' '))
        .collect();
    let arguments = ["-q", "install", "-y", "--no-install-recommends"];
    steps::run("apt-get", &["-q", "update"], "")?;
    steps::run("apt-get", &[&arguments[..], &packages].concat(), "")
}

/// Checks every tool; as root with apt-get, installs what is missing; otherwise says what to install.
pub fn ensure(may_install: bool) -> Result<(), String> {
    let missing: Vec<&Tool> = TOOLS
        .iter()
        .filter(|tool| !works(tool.program, tool.probe))
        .collect();
    if missing.is_empty() {
        eprintln!("tools: all {} here", TOOLS.len());
        return Ok(());
    }
    if may_install {
        install(&missing)?;
    }
    let still: Vec<String> = missing
        .iter()
        .filter(|tool| !works(tool.program, tool.probe))
        .map(|tool| {
            format!(
                "  {:<10} ({}): install the package `{}`",
                tool.program, tool.why, tool.debian_package
            )
        })
        .collect();
    if still.is_empty() {
        return Ok(());
    }
    Err(format!(
        "these tools are missing:\n{}\nthen run the same command again",
        still.join("\n")
    ))
}

/// Targets whose standard library the checks and tests need.
const TARGETS: &[&str] = &[
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
];

/// Adds targets that are missing, where rustup is there and may.
pub fn add_targets() {
    for target in TARGETS.iter().filter(|target| !has_target(target)) {
        if let Err(error) = steps::run("rustup", &["target", "add", target], "") {
            eprintln!("{error}: what needs it is skipped");
        }
    }
}

/// The standard library of `target` is here.
pub fn has_target(target: &str) -> bool {
    steps::lines_of("rustc", &["--print", "target-libdir", "--target", target])
        .is_ok_and(|lines| lines.first().is_some_and(|path| Path::new(path).is_dir()))
}

/// DuckDB and pandas in `target/pytools`, for the test of the block format. Without them the test says
/// that it was skipped.
pub fn python_engines() {
    let folder = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| steps::root().join("target"), PathBuf::from)
        .join("pytools");
    let python = folder.join("bin/python");
    let (Some(folder), Some(python)) = (folder.to_str(), python.to_str()) else {
        return;
    };
    if works(python, &["-c", "import duckdb, pandas, pyarrow"]) {
        return;
    }
    let pip = ["-m", "pip", "install", "-q", "duckdb", "pandas", "pyarrow"];
    let made = steps::run("python3", &["-m", "venv", folder], "")
        .and_then(|()| steps::run(python, &pip, ""));
    if let Err(error) = made {
        eprintln!("tools: no DuckDB and pandas in {folder} ({error}); their test is skipped");
    }
}

fn is_root() -> bool {
    steps::lines_of("id", &["-u"]).is_ok_and(|lines| lines.first().is_some_and(|uid| uid == "0"))
}

/// cargo-deny over licences, sources, bans and advisories.
///
/// The advisory database comes from the network, or, where there is none, from the archive named by
/// `PILOTLIGHT_ADVISORY_DB` (default `../shared/advisory-db.tar.gz`).
pub fn deny() -> Result<(), String> {
    if !works("cargo", &["deny", "--version"]) {
        steps::cargo(&["install", "--locked", "cargo-deny"])?;
    }
    let archive = std::env::var_os("PILOTLIGHT_ADVISORY_DB").map_or_else(
        || steps::root().join("../shared/advisory-db.tar.gz"),
        PathBuf::from,
    );
    if !archive.is_file() {
        return steps::cargo(&["deny", "--workspace", "check"]);
    }
    unpack_advisories(&archive)?;
    steps::cargo(&["deny", "--workspace", "check", "--disable-fetch"])
}

/// Lays the archive where cargo-deny looks for its clone of the default database.
fn unpack_advisories(archive: &Path) -> Result<(), String> {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let home = cargo_home
        .ok_or("neither CARGO_HOME nor HOME is set")?
        .join("advisory-dbs");
    // The suffix is cargo-deny's hash of the default database's URL.
    let clone = home.join("advisory-db-3157b0e258782691");
    if clone.join(".git/FETCH_HEAD").is_file() {
        return Ok(());
    }
    let script = "set -e; rm -rf \"$2\"; mkdir -p \"$2\"; tar -xzf \"$1\" -C \"$2\" --strip-components=1; \
        cd \"$2\"; git init -q; git add -A; \
        git -c user.name=advisories -c user.email=advisories@localhost commit -qm snapshot; \
        git rev-parse HEAD > .git/FETCH_HEAD";
    let (archive, clone) = (archive.to_string_lossy(), clone.to_string_lossy());
    steps::run("sh", &["-c", script, "unpack", &archive, &clone], "")
}

/// cargo-fuzz and a nightly toolchain, which libFuzzer's instrumentation needs.
pub fn fuzz_ready() -> Result<(), String> {
    if !works("cargo", &["+nightly", "--version"]) {
        return Err(
            "fuzzing needs a nightly toolchain: run `rustup toolchain install nightly`".into(),
        );
    }
    if !works("cargo", &["fuzz", "--version"]) {
        steps::cargo(&["install", "--locked", "cargo-fuzz"])?;
    }
    Ok(())
}

/// Otherwise what to install.
pub fn miri_ready() -> Result<(), String> {
    if works("cargo", &["+nightly", "miri", "--version"]) {
        return Ok(());
    }
    Err("miri is missing: run `rustup toolchain install nightly --component miri,rust-src`".into())
}

/// The S3 server of the tests: a Go module, Apache-2.0, that honours create-only puts.
pub fn build_object_store() -> Result<(), String> {
    const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
    let folder = steps::target_dir().join("tools");
    if folder.join("versitygw").is_file() {
        return Ok(());
    }
    let setting = format!("GOBIN={}", folder.display());
    steps::run("env", &[&setting, "go", "install", MODULE], "")
}
