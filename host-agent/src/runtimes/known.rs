//! The table of runtimes.

use super::symbols::{Symbol, Symbols};
use std::fs::File;

/// A kind of runtime, and what a file that holds it exports.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What only it exports. All of them.
    marks: &'static [&'static str],
    /// What of its frames is seen.
    pub support: Support,
}

/// What is seen of a runtime's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Walked, with names, when the version is one of [`VERSIONS`](super::offsets::VERSIONS).
    Walked,
    /// Code that it compiled is named when it writes a perf map or keeps frame pointers: with this.
    Told(&'static str),
    /// Only its native functions.
    Native,
}

const fn known(name: &'static str, marks: &'static [&'static str], support: Support) -> Known {
    Known {
        name,
        marks,
        support,
    }
}

/// The first that fits is it.
const KNOWN: &[Known] = &[
    known(
        "CPython",
        &["_PyRuntime", "_PyEval_EvalFrameDefault"],
        Support::Walked,
    ),
    known("CPython", &["PyEval_EvalFrameEx"], Support::Native),
    known(
        "V8",
        &["_ZN2v87Isolate10GetCurrentEv"],
        Support::Told("--perf-basic-prof"),
    ),
    known(
        "HotSpot",
        &["gHotSpotVMTypes", "JNI_CreateJavaVM"],
        Support::Told("-XX:+PreserveFramePointer"),
    ),
    known(
        ".NET",
        &["coreclr_initialize"],
        Support::Told("DOTNET_PerfMapEnabled=1"),
    ),
    known("Ruby", &["rb_vm_top_self"], Support::Native),
    known("Ruby", &["ruby_run_node"], Support::Native),
    known("PHP", &["zend_execute_ex"], Support::Native),
    known("Perl", &["Perl_runops_standard"], Support::Native),
    known("LuaJIT", &["luaJIT_setmode"], Support::Native),
];

/// A runtime in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub known: &'static Known,
    /// Major and minor version, where the file tells.
    pub version: Option<(u8, u8)>,
    /// The structure that everything is reached from (stated address).
    pub(super) root: u64,
    /// The function that executes frames.
    pub(super) executor: Symbol,
}

impl Found {
    /// A CPython whose structures begin at 0 of its memory.
    pub(super) fn of_python(version: (u8, u8)) -> Found {
        Found {
            known: &KNOWN[0],
            version: Some(version),
            root: 0,
            executor: Symbol::default(),
        }
    }

    /// Its frames are walked.
    pub fn is_walked(&self) -> bool {
        let is_known = |version| super::offsets::VERSIONS.contains(&version);
        self.known.support == Support::Walked && self.version.is_some_and(is_known)
    }
}

/// `CPython 3.12`
impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.known.name)?;
        match self.version {
            Some((major, minor)) => write!(f, " {major}.{minor}"),
            None if self.known.support == Support::Walked => write!(f, " before 3.11"),
            None => Ok(()),
        }
    }
}

/// The runtime that an ELF file holds.
pub fn find(file: &File) -> Option<Found> {
    let symbols = Symbols::open(file)?;
    let fits = |known: &&Known| known.marks.iter().all(|mark| symbols.find(mark).is_some());
    let known = KNOWN.iter().find(fits)?;
    let of_python = known.support == Support::Walked;
    let find = |name| symbols.find(name).filter(|_| of_python).unwrap_or_default();
    Some(Found {
        known,
        version: if of_python {
            python_version(&symbols)
        } else {
            None
        },
        root: find("_PyRuntime").address,
        executor: find("_PyEval_EvalFrameDefault"),
    })
}

/// `PY_VERSION_HEX` in `Py_Version`, since 3.11.
fn python_version(symbols: &Symbols<'_>) -> Option<(u8, u8)> {
    let at = symbols.find("Py_Version")?.address;
    let mut bytes = [0; 4];
    symbols.read(at, &mut bytes)?;
    let [_, _, minor, major] = bytes;
    Some((major, minor))
}
