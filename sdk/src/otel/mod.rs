//! OpenTelemetry: which trace a thread works for, and which service this process is, for samples of
//! this process and for readers outside of it.
//!
//! | published | where | read by |
//! |---|---|---|
//! | process context (OTEP 4719) | a mapping named `OTEL_CTX` | agents on the host: service name, and that this process profiles itself |
//! | thread context (OTEP 4947) | thread-local symbol `otel_thread_ctx_v1` | eBPF profilers, and the handler of this process |
//!
//! The process context is published while pilotlight runs, unless [`crate::Config::otel_context`] says
//! no or another library has published one.
//!
//! Readers look the thread's symbol up in the dynamic symbol table. A Rust program exports it when it is linked
//! with `-C link-arg=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1`.

#[cfg(not(any(not(target_os = "linux"), feature = "backtrace")))]
mod message;
#[cfg(feature = "opentelemetry")]
mod observer;
#[cfg_attr(
    any(not(target_os = "linux"), feature = "backtrace"),
    path = "../elsewhere/process.rs"
)]
pub(crate) mod process;
mod thread;

#[cfg(feature = "opentelemetry")]
pub use observer::follow_opentelemetry;
pub(crate) use process::{publish, service_version, withdraw};
#[cfg(not(any(not(target_os = "linux"), feature = "backtrace")))]
pub(crate) use thread::for_sample;
pub(crate) use thread::{ThreadRecord, put_in_samples};
pub use thread::{TraceContext, TraceExt, TraceGuard, Traced};

/// Whether readers outside find this process by its process context.
#[must_use]
pub fn is_process_context_published() -> bool {
    process::is_published()
}
