//! Names that no file on disk has: the kernel's, and code that runtimes make as they run.
//!
//! All of it is input from processes that may be hostile: what cannot be read is left out, and
//! each reader has a bound.

mod jitdump;
mod kallsyms;
mod names;
mod perf_map;

pub use jitdump::jitdump;
pub use kallsyms::kallsyms;
pub use names::{LiveName, LiveNames};
pub use perf_map::perf_map;
