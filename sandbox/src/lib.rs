//! Hostile files are parsed in a process of their own that may do nothing else.
//!
//! ```no_run
//! use pilotlight_sandbox::{Job, Parser};
//!
//! // A program whose `parse-debuginfo` calls `pilotlight_sandbox::child`: `pilotlight` itself.
//! let parser = Parser::new("/usr/bin/pilotlight", &["parse-debuginfo"]);
//! let object = std::fs::File::open("app.debug")?;
//! let table = std::fs::File::create_new("app.table")?;
//! let report = parser.build(&Job::new(object, table))?;
//! println!("{} bytes", report.table_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The child has the file on standard input, the table on standard output and a report on
//! standard error, and no other file. Before it looks at the file it gives up, in this order:
//! every other descriptor, memory and CPU time beyond limits, the whole file system (Landlock),
//! and every system call that is not in [`filter::ALLOWED`] (seccomp; another one kills it).
//! Whatever the file makes of the parser then costs one child. [`Parser::inspect`] asks the same child
//! for build ids, quality and segments alone.
//!
//! | module | job |
//! |---|---|
//! | `parent` | starts the child, bounds its time, reads its report |
//! | `child` | gives up rights, builds the table |
//! | `table` | a table on disk that is mapped |
//! | `limits` | memory, CPU time, descriptors |
//! | `filter` | system calls, as data |
//! | `report`, `facts` | what the child says of a table, and of a file's headers, as text |
//!
//! # Blind spots
//! Landlock needs Linux 5.13 and may be off; the child goes on without it, since seccomp alone
//! refuses every call that opens a file. Without seccomp it refuses to parse.

mod child;
mod facts;
pub mod filter;
mod limits;
mod parent;
mod report;
mod table;

pub use child::child;
pub use facts::Facts;
pub use limits::Limits;
pub use parent::{Failure, Job, Parser};
pub use report::Report;
pub use table::Mapped;
