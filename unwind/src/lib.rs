//! Stack unwinding from `.eh_frame` compiled to a flat table that a signal handler can read.
//!
//! ```no_run
//! use pilotlight_unwind::{Cache, Module, Modules, Registers, unwind};
//!
//! // Before: read what is mapped (here only the executable), once.
//! let exe = std::fs::read("/proc/self/exe")?;
//! let load_bias = 0x5555_5555_4000; // from dl_iterate_phdr
//! let modules = Modules::new(vec![Module::from_elf(&exe, load_bias, "/proc/self/exe")?]);
//! let cache = Cache::new(&modules);
//!
//! // In the signal handler: registers come from its ucontext.
//! let regs = Registers { ip: 0x5555_5555_8123, sp: 0x7fff_0000_1000, bp: 0, bx: 0 };
//! let stack = 0x7fff_0000_0f80..0x7fff_0010_0000;
//! let mut frames = [0u64; 1024];
//! // SAFETY: `stack` lies inside this thread's stack.
//! let unwound = unsafe { unwind(regs, &modules, &cache, stack, &mut frames) };
//! println!("{} frames, ended at {:?}", unwound.frames, unwound.end);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who is responsible for what
//! - **This crate** compiles call-frame information into rows, finds the rule of an address, and
//!   walks. Whatever the CFI or the stack says, it reads no byte outside the bounds it was given,
//!   and always ends. It knows no threads, no signals, no files.
//! - **The caller** finds modules (`dl_iterate_phdr`, `/proc/PID/maps`), takes registers from the
//!   signal's ucontext, knows the readable bounds of the stack, and keeps a [`Modules`] and its
//!   [`Cache`] alive while a handler may use them. Addresses are resolved to names elsewhere.
//!
//! # What it can unwind
//! Every rule of [`Kind`]: CFA from sp, bp or rbx, by dereference, PLT entries, the kernel's
//! signal frame. Where no CFI covers the code: by frame pointer, or, in an image that has CFI for the
//! rest (a program that holds musl), by looking for the nearest return address. CFI beyond that (7 of the 30,800
//! rows of glibc and its linker) ends the walk with [`End::NoRule`], and is counted in [`Stats`].
//! x86-64 Linux, and aarch64 Linux by [`aarch64`]: both speak of the same table.
//!
//! # Map
//! | module | job |
//! |---|---|
//! | `image` | an ELF image through its program headers, in a file or in memory |
//! | `cfi` | `.eh_frame` entries, their instructions, their expressions |
//! | `rule` | the 12-byte rule, and its 30-bit form for the cache |
//! | `table` | rows, pages, lookup |
//! | `modules` | what is mapped where |
//! | `cache` | rules by address |
//! | `aarch64` | registers and walk of aarch64 |
//! | `stack`, `walk`, `guess` | bounded reads, the walk, code without CFI |

pub mod aarch64;
mod cache;
mod cfi;
mod error;
mod guess;
mod image;
mod modules;
mod rule;
mod stack;
mod table;
mod walk;

pub use cache::Cache;
pub use error::Error;
pub use image::ProgramHeader;
pub use modules::{Module, Modules, Segment, build_id_in_memory};
pub use rule::{Kind, Rule, Saved};
pub use stack::{Live, Stack};
pub use table::{PAGE_BITS, Row, Stats, Table};
pub use walk::{End, Registers, Unwound, step, unwind, unwind_with};
