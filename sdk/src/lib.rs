//! Continuous profiling of a Rust service: one dependency, one line, `/debug/pprof`.
//!
//! ```no_run
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let _pilotlight = pilotlight::start("checkout")?;
//!     // go tool pprof -top 'http://127.0.0.1:6060/debug/pprof/profile?seconds=5'
//!     Ok(())
//! }
//! ```
//!
//! # What it costs
//! Nothing is sampled until somebody asks. During a capture each thread is interrupted 97 times per
//! second of its CPU time, for a few microseconds. Two sleeping threads, a ring of 2 MiB that is
//! touched as it is used, and the unwind tables of what is loaded are all that it keeps.
//!
//! # What it cannot see
//! - Time that threads wait, in the CPU profile: that is in `wall` and `offcpu`, and in
//!   `mutex` and `block` where they wait for each other. Time that tasks wait is in `await`, for futures that
//!   are [`spans`].
//! - Above the kernel's tick (often 250 Hz) stacks get finer only where perf events with time in the
//!   kernel are permitted ([`Engine`]); sums are right all the same, and the profile's comment says
//!   which rate was achieved.
//! - Inlined functions and lines need debug information: `debug = 1` in the release profile;
//!   `"line-tables-only"` names them without their path.
//! - Threads that other languages' libraries start, or all without the feature `thread-hook`, are
//!   found by a look every 50 ms when the number of threads changed (less often with thousands). What ran before, or in a
//!   thread that nobody saw, is shown under `[threads that ended unsampled]`.
//! - Threads that block SIGPROF: `[threads that block SIGPROF]`.
//!
//! # What it does in your process
//! It installs a handler for SIGPROF and leaves it there for good (a late signal would otherwise
//! kill the process), forwards signals that are not its own, and defines `pthread_create`, which
//! notes the thread and calls libc's; `syscall` and the functions of pthreads that block, which time
//! waits when that is switched on. It never uses libgcc's unwinder: panics are safe. A forked
//! child is not sampled until it starts anew, unless [`AfterFork::Restart`] is chosen. A library that starts it cannot be unloaded.
//!
//! # Where it runs
//! Linux on x86_64 and aarch64, with glibc or musl, libc shared or part of the program. aarch64 is
//! tested by emulation: stacks, labels, spans, the hooks of locks. What an emulator has not is compiled only: perf
//! events, and the thread context as readers outside see it. Stacks of waiting threads are not read from outside
//! there, so `offcpu` is off. musl has no unwind tables: a stack that was interrupted inside it is found by
//! looking for the nearest return address, and may miss a frame.
//!
//! On macOS (x86_64, aarch64) it compiles, and samples CPU time by `ITIMER_PROF` and the crate
//! `backtrace`; `heap`, `tasks` and `await` are there too. That was never run on macOS, only on Linux, where the
//! feature `backtrace` does the same. What is missing: `wall`, `offcpu`, `threads`, `mutex`, `block`, labels and
//! spans in CPU samples, mappings and build ids (names are looked up in the process). What is
//! dangerous: the system's unwinder runs in a signal handler, and a sample in the middle of a panic or a
//! `dlopen` may hang or end the program.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `lock-hooks` (default) | `syscall`, `pthread_mutex_lock` and the like are pilotlight's, so that waits can be timed: profiles `mutex` and `block`. Weak symbols: another definition in the program wins |
//! | `thread-hook` (default) | `pthread_create` of this program is pilotlight's. Leave it out (`default-features = false`) where something else must define that symbol, or its allocator starts threads; short-lived threads then show as `[threads that ended unsampled]` |
//! | `symbolize` (default) | names and lines are looked up in the process, within 32 MB; without it addresses and build ids go out, for the server to name |
//! | `axum` | the routes as an axum router |
//! | `backtrace` | samples on Linux as on macOS, worse in every way: for tests of that |
//! | `hyper` | the routes as a hyper service |
//! | `jemalloc` | `heap` and `allocs` from jemalloc's own profile, for programs that allocate through it and not through [`Alloc`]; a C build |
//! | `push` | profiles sent to a server, by pprof or OTLP |
//! | `pprof` | what pprof-rs samples, through these endpoints |
//! | `macros` | `#[pilotlight::main]` and `#[pilotlight::span]` |
//! | `opentelemetry` | trace and span ids from the crate of that name |
//! | `tracing` | spans of the crate of that name as logical spans |
//!
//! # Who is responsible for what
//! | module | job |
//! |---|---|
//! | `config` | settings, environment, errors |
//! | `engine` | the background thread: arms timers while somebody captures, drains the ring |
//! | `threads` | which threads there are, which engine samples each, the account of their CPU time |
//! | `slots` | what the handler knows of a thread, and what a sample weighs |
//! | `fork` | what happens around a fork |
//! | `handler` | what runs in the signal; its README lists what that may do |
//! | `kind` | what a capture samples, what a record is |
//! | `ring` | from handlers to the background thread |
//! | `locks`, [`sync`] | waits of threads for each other, timed; locks with names |
//! | `modules`, `lived` | snapshot of what is loaded; what was |
//! | `aggregate`, `tree` | samples added up by stack, within a budget of bytes |
//! | `heap` | [`Alloc`], the sampling allocator |
//! | `here` | the calling thread's stack, at once |
//! | `sites`, `pages` | stacks with counters in bounded memory, filled without allocation |
//! | `tags` | labels, span and trace of a capture's samples |
//! | `capture`, `symbols` | stacks to a profile with names and lines |
//! | `types` | the registry: which profiles there are, whether they are on, how they are taken |
//! | [`http`] | `/debug/pprof/`, as pure functions and as a small server |
//! | `push` | profiles sent to a server (feature `push`) |
//! | [`foreign`], `pprof` | profiles that something else makes, served like ours |
//! | [`labels`] | what a sample belongs to, by names of the program's own |
//! | [`spans`] | logical stacks of tasks: where they wait (`await`), which live (`tasks`) |
//! | [`otel`] | trace and span ids, published for readers outside |
//! | `context` | the words of a thread that a handler may read: labels and span |
//! | `wall` | the thread that looks at all threads, whether they run or wait |
//! | `stats` | what happened to every signal |
//! | `sys` | what differs between processors and C libraries |
//! | `elsewhere` | what stands in the place of modules where Linux is not |

#![cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    allow(dead_code, reason = "what only Linux asks for")
)]

#[cfg(not(all(
    any(target_os = "linux", target_vendor = "apple"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
)))]
compile_error!("pilotlight runs on Linux and macOS, x86_64 or aarch64, so far");

mod aggregate;
mod atomics;
#[cfg(feature = "axum")]
pub mod axum;
mod capture;
mod config;
mod context;
mod engine;
pub mod foreign;
mod fork;
mod handler;
mod heap;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/here.rs"
)]
mod here;
pub mod http;
#[cfg(feature = "hyper")]
pub mod hyper;
mod kind;
pub mod labels;
mod lived;
#[cfg(all(feature = "lock-hooks", target_os = "linux"))]
mod locks;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/modules.rs"
)]
mod modules;
pub mod otel;
mod pages;
#[cfg(feature = "pprof")]
pub mod pprof;
#[cfg(feature = "push")]
pub mod push;
mod ring;
mod sites;
mod slots;
pub mod spans;
mod stats;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/symbols.rs"
)]
#[cfg_attr(
    all(
        not(any(not(target_os = "linux"), feature = "backtrace")),
        not(feature = "symbolize")
    ),
    path = "symbols_off.rs"
)]
mod symbols;
pub mod sync;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/sys.rs"
)]
mod sys;
mod tags;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/threads.rs"
)]
mod threads;
#[cfg(feature = "tracing")]
pub mod tracing;
mod tree;
mod types;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "elsewhere/wall.rs"
)]
mod wall;

use std::sync::Arc;

pub use capture::{Capture, capture};
pub use config::{AfterFork, Config, Error};
pub use heap::Alloc;
pub use labels::{LabelExt, Labels};
#[cfg(feature = "macros")]
pub use pilotlight_macros::{main, span};
pub use pilotlight_profile::Profile;
pub use spans::SpanExt;
pub use stats::{Stats, stats};
pub use threads::Engine;
pub use types::{Kind, ProfileType, State, profile_types, set_enabled, take};

/// Keeps profiling possible; dropping it ends the listener and the captures.
#[derive(Debug)]
#[must_use = "dropping the guard stops everything at once"]
pub struct Guard {
    #[cfg(feature = "push")]
    pusher: Option<push::Pusher>,
    server: Option<http::ServerHandle>,
    engine: Option<Arc<engine::Engine>>,
}

impl Guard {
    fn new(engine: Arc<engine::Engine>) -> Guard {
        Guard {
            #[cfg(feature = "push")]
            pusher: None,
            server: None,
            engine: Some(engine),
        }
    }

    /// Switched off by `PILOTLIGHT_ENABLED`.
    fn off() -> Guard {
        Guard {
            #[cfg(feature = "push")]
            pusher: None,
            server: None,
            engine: None,
        }
    }

    /// Where `/debug/pprof/` is served.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.server.as_ref().map(http::ServerHandle::address)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // What is being taken is sent while samples still flow.
        #[cfg(feature = "push")]
        {
            self.pusher = None;
        }
        // The server first: its captures end while samples still flow.
        self.server = None;
        if let Some(engine) = self.engine.take() {
            otel::withdraw();
            engine.stop();
        }
    }
}

/// Makes this process profile itself on demand, at `http://127.0.0.1:6060/debug/pprof/` or where
/// `PILOTLIGHT_LISTEN` says. More settings: [`Config`].
///
/// # Errors
/// When the address is taken, an environment variable makes no sense, or it runs already.
pub fn start(service: &str) -> Result<Guard, Error> {
    Config::new(service).start()
}

/// For `#[pilotlight::main]`: a service runs also where its profiler does not.
#[doc(hidden)]
#[must_use = "dropping the guard stops everything at once"]
pub fn start_or_say_why_not(service: &str) -> Option<Guard> {
    start(service)
        .inspect_err(|why| eprintln!("pilotlight: {service} runs without profiles: {why}"))
        .ok()
}

/// For tests of this crate: facts about the inside.
#[doc(hidden)]
pub mod testing {
    /// The calling thread runs the signal handler now.
    #[must_use]
    pub fn this_thread_handles_a_signal() -> bool {
        crate::handler::is_running_here()
    }

    /// Makes [`this_thread_handles_a_signal`] say what a test wants it to.
    pub fn pretend_in_handler(inside: bool) {
        crate::handler::pretend(inside);
    }

    /// What a signal must carry to be taken for one of ours; send it with `rt_tgsigqueueinfo`.
    #[must_use]
    pub fn signal_value() -> u64 {
        u64::from(crate::slots::TOKEN) << 32
    }
}

/// What the guides show compiles.
#[cfg(all(doctest, feature = "push"))]
#[doc = include_str!("../../docs/migration.md")]
#[doc = include_str!("../../docs/profiles/README.md")]
pub struct Guides;
