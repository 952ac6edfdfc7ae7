//! Sources of the SDK, compiled with the model checker's atomics, and models of how they are used.

#[path = "../../src/ring.rs"]
#[allow(dead_code, reason = "the models use a part")]
mod ring;

#[path = "../../src/handler/swap.rs"]
mod swap;

/// In place of the SDK's module of this name.
mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

    pub(crate) fn zeros(count: usize) -> Box<[AtomicU64]> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }
}

#[path = "../../src/kind.rs"]
#[allow(dead_code, reason = "the models use a part")]
mod kind;

mod context {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Context(pub(crate) u64);
}

mod otel {
    /// No model has a trace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct TraceContext;

    impl TraceContext {
        pub(crate) fn to_words(self) -> [u64; 4] {
            [0; 4]
        }

        pub(crate) fn from_words(_: [u64; 4]) -> TraceContext {
            TraceContext
        }
    }
}

pub mod models;
pub mod swap_models;
