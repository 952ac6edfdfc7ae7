//! The context of the crate `opentelemetry`, followed as it changes.

use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver};
use opentelemetry::trace::TraceContextExt;

use super::TraceContext;
use super::thread::swap;

struct Observer;

impl ContextObserver for Observer {
    fn on_context_enter(&self, _from: &Context, to: &Context) {
        swap(span_of(to));
    }

    fn on_context_exit(&self, _from: &Context, to: &Context) {
        swap(span_of(to));
    }
}

/// Ids of the span that is active in a context, when they are valid.
fn span_of(context: &Context) -> Option<TraceContext> {
    if !context.has_active_span() {
        return None;
    }
    let span = context.span();
    let ids = span.span_context();
    ids.is_valid().then(|| TraceContext {
        trace_id: ids.trace_id().to_bytes(),
        span_id: ids.span_id().to_bytes(),
        flags: ids.trace_flags().to_u8(),
    })
}

/// From now on each thread works for the span that is active in its
/// [`opentelemetry::Context`], also inside of futures that carry a context. Call it once, when the
/// program starts: the crate takes one observer, and logs a warning about a second.
///
/// With `tracing-opentelemetry` spans of `tracing` are followed too, as that activates their context.
/// Costs one write of 28 bytes each time a context is attached or detached.
pub fn follow_opentelemetry() {
    GlobalContextObserver::set(Arc::new(Observer));
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

    use super::*;

    #[test]
    fn the_thread_works_for_the_active_span() {
        follow_opentelemetry();
        let context = |span: u64| {
            let trace = TraceId::from(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
            let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
            let ids = SpanContext::new(trace, SpanId::from(span), flags, false, state);
            Context::new().with_remote_span_context(ids)
        };
        let span_id = || TraceContext::current().map(|ids| u64::from_be_bytes(ids.span_id));
        let outer = context(7).attach();
        let current = TraceContext::current().unwrap();
        assert_eq!(current.trace_id, std::array::from_fn(|at| at as u8 + 1));
        assert_eq!((span_id(), current.flags), (Some(7), 1));
        let inner = context(8).attach();
        assert_eq!(span_id(), Some(8));
        drop(inner);
        let none = Context::new().attach();
        assert_eq!(span_id(), None);
        drop(none);
        assert_eq!(span_id(), Some(7));
        drop(outer);
        assert_eq!(span_id(), None);
    }
}
