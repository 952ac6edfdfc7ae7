//! OpenTelemetry: which trace a thread works for, and which service this process is, for samples of
//! this process and for readers outside of it.
//!
//! | published | where | read by |
//! |---|---|---|
//! | thread context (OTEP 4947) | thread-local symbol `otel_thread_ctx_v1` | eBPF profilers, and the handler of this process |
//!
//! Readers look the symbol up in the dynamic symbol table. A Rust program exports it when it is linked
//! with `-C link-arg=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1`.

mod thread;

pub(crate) use thread::ThreadRecord;
pub use thread::{TraceContext, TraceExt, TraceGuard, Traced};
