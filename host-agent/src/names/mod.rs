//! Names that only this host knows: of the kernel, and of code that a runtime made while it ran.
//!
//! Everything else leaves as (build id, file offset) and is named by the server.
//!
//! | file | job |
//! |---|---|
//! | `kallsyms` | functions of the kernel, its modules and BPF programs |
//! | `ranges` | names by address, where later ones win |
//! | `perfmap` | `/tmp/perf-PID.map`: Node, Java, .NET, LuaJIT and others |
//! | `jitdump` | `jit-PID.dump`, mapped by the process |
//! | `v8` | what V8 writes into names |
//! | `hotspot` | asks a Java process for its perf map |
//! | `vdso` | functions that the kernel maps into each process |
//! | `process` | all names of one process |

pub mod hotspot;
pub mod jitdump;
pub mod kallsyms;
pub mod perfmap;
mod process;
mod ranges;
mod v8;
pub mod vdso;

pub use kallsyms::Kallsyms;
pub use process::JitNames;
pub use ranges::Ranges;
pub use v8::{Function, function};
