//! The SDK's tests on other C libraries and processors than the machine's own, and over allocators
//! that are C builds, with what other systems are sampled by, and under a model checker.

use crate::runner::{Test, test_binaries, tests_in};
use crate::tools;

/// Tests that are built for another target.
pub struct Elsewhere {
    /// How their names begin.
    pub name: &'static str,
    target: &'static str,
    emulator: Option<&'static str>,
    /// Arguments of `cargo test` that choose them.
    which: &'static [&'static str],
}

/// A program that holds musl, aarch64 by emulation, jemalloc's own profile, what macOS is sampled
/// by, and the model checker.
pub const ELSEWHERE: [Elsewhere; 5] = [
    Elsewhere {
        name: "musl",
        target: "x86_64-unknown-linux-musl",
        emulator: None,
        which: &[
            "--target=x86_64-unknown-linux-musl",
            "--package=pilotlight",
            "--lib",
            "--test=heap",
            "--test=lifecycle",
            "--test=lock_hooks",
            "--test=locks",
            "--test=quiet_threads",
            "--test=stacks",
            "--test=storm",
            "--test=storm_all",
        ],
    },
    Elsewhere {
        name: "aarch64",
        target: "aarch64-unknown-linux-gnu",
        emulator: Some("qemu-aarch64"),
        which: &[
            "--target=aarch64-unknown-linux-gnu",
            "--config=target.aarch64-unknown-linux-gnu.linker='aarch64-linux-gnu-gcc'",
            "--package=pilotlight",
            // Not the unit tests: an emulator has no memory of other threads to read by the kernel.
            "--test=stacks",
            // The thread's words and the definitions before libc's, in assembly.
            "--test=async_spans",
            "--test=lock_hooks",
        ],
    },
    Elsewhere {
        name: "allocators",
        target: "x86_64-unknown-linux-gnu",
        emulator: None,
        which: &[
            "--manifest-path=bench/peers/alloc/Cargo.toml",
            "--target-dir=target/bench/alloc",
        ],
    },
    Elsewhere {
        name: "fallback",
        target: "x86_64-unknown-linux-gnu",
        emulator: None,
        which: &[
            "--package=pilotlight",
            "--features=backtrace",
            "--test=fallback",
        ],
    },
    Elsewhere {
        name: "loom",
        target: "x86_64-unknown-linux-gnu",
        emulator: None,
        which: &[
            "--manifest-path=sdk/loom/Cargo.toml",
            "--target-dir=target/loom",
        ],
    },
];

impl Elsewhere {
    /// Otherwise what to install.
    pub fn is_possible(&self) -> Result<(), String> {
        if !tools::has_target(self.target) {
            return Err(format!("run `rustup target add {}`", self.target));
        }
        self.emulator.map_or(Ok(()), |_| tools::emulator())
    }

    /// Builds and lists them.
    pub fn tests(&self) -> Result<Vec<Test>, String> {
        let mut tests = Vec::new();
        for (binary, folder, package) in test_binaries(self.which)? {
            let name = format!("{}::{package}", self.name);
            tests.extend(tests_in(&binary, &folder, &name, self.emulator)?);
        }
        Ok(tests)
    }
}
