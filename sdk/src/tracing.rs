//! Spans of the crate `tracing` as logical spans.
//!
//! ```
//! use tracing_subscriber::layer::SubscriberExt;
//! let subscriber = tracing_subscriber::registry().with(pilotlight::tracing::layer());
//! # drop(subscriber);
//! ```
//! Everything that is `#[tracing::instrument]`ed then shows in `await` and, as the label `span`, in
//! samples. The time between leaving a span and entering it again counts as its wait, unless a span
//! inside of it waits at that time: what `tracing` itself calls idle. For a span around a future this
//! is the time between polls.
//!
//! Trace and span ids come from [`follow_opentelemetry`](crate::otel) (feature `opentelemetry`), or
//! from what [`Layer::trace_ids`] finds in a span's extensions.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracing_core::span::{Attributes, Id};
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::layer::Context as LayerContext;
use tracing_subscriber::registry::{Extensions, LookupSpan, SpanRef};

use crate::context;
use crate::otel::{TraceContext, TraceGuard};
use crate::spans::{Site, waits};

type TraceIds = dyn Fn(&Extensions<'_>) -> Option<TraceContext> + Send + Sync;

/// A layer for `tracing-subscriber`; see [the module](self).
pub struct Layer {
    trace_ids: Option<Arc<TraceIds>>,
}

/// Makes logical spans of spans.
#[must_use]
pub fn layer() -> Layer {
    Layer { trace_ids: None }
}

impl Layer {
    /// Where a span's trace and span id are, when a layer before this one put them into its
    /// extensions. Asked each time the span is entered.
    #[must_use]
    pub fn trace_ids(
        self,
        find: impl Fn(&Extensions<'_>) -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Layer {
        Layer {
            trace_ids: Some(Arc::new(find)),
        }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").finish_non_exhaustive()
    }
}

/// What a span's extensions hold.
struct State {
    site: &'static Site,
    /// Logical stack of the last entry.
    node: AtomicU32,
    /// When it was left, 0 while it is entered or not timed.
    left_ns: AtomicU64,
    /// Spans inside that were left and not entered again.
    inner_left: AtomicU32,
    /// It is one of those of its parent.
    counted: AtomicU32,
}

/// A span that is entered in this thread.
struct EnteredSpan {
    id: u64,
    /// The logical span around it.
    before: u32,
    _trace: Option<TraceGuard>,
}

thread_local! {
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, all: LayerContext<'_, S>) {
        let Some(span) = all.span(id) else { return };
        span.extensions_mut().insert(State {
            site: site_of(attributes.metadata()),
            node: AtomicU32::new(0),
            left_ns: AtomicU64::new(0),
            inner_left: AtomicU32::new(0),
            counted: AtomicU32::new(0),
        });
    }

    fn on_enter(&self, id: &Id, all: LayerContext<'_, S>) {
        let Some(span) = all.span(id) else { return };
        let extensions = span.extensions();
        let Some(state) = extensions.get::<State>() else {
            return;
        };
        returns(state, &span);
        let before = context::current().node();
        let node = state.site.under(before);
        state.node.store(node, Ordering::Relaxed);
        context::set_node(node);
        let ids = self.trace_ids.as_ref().and_then(|find| find(&extensions));
        // Not in a thread that ends.
        let _ = ENTERED.try_with(|entered| {
            entered.borrow_mut().push(EnteredSpan {
                id: id.into_u64(),
                before,
                _trace: ids.map(TraceContext::enter),
            })
        });
    }

    fn on_exit(&self, id: &Id, all: LayerContext<'_, S>) {
        let _ = ENTERED.try_with(|entered| leave(&mut entered.borrow_mut(), id.into_u64()));
        let Some(span) = all.span(id).filter(|_| waits::is_enabled()) else {
            return;
        };
        let extensions = span.extensions();
        let Some(state) = extensions.get::<State>() else {
            return;
        };
        if state.inner_left.load(Ordering::Relaxed) == 0 {
            state.left_ns.store(waits::now_ns(), Ordering::Relaxed);
        }
        state.counted.store(1, Ordering::Relaxed);
        of_parent(&span, |parent| {
            parent.inner_left.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn on_close(&self, id: Id, all: LayerContext<'_, S>) {
        let Some(span) = all.span(&id) else { return };
        let extensions = span.extensions();
        if let Some(state) = extensions.get::<State>() {
            // What ends does not wait: the time since it was left is not counted.
            state.left_ns.store(0, Ordering::Relaxed);
            returns(state, &span);
        }
    }
}

/// A span that was left goes on: its wait ends.
fn returns<'a, S: LookupSpan<'a>>(state: &State, span: &SpanRef<'a, S>) {
    let left_ns = state.left_ns.swap(0, Ordering::Relaxed);
    if left_ns != 0 {
        let wait_ns = waits::now_ns().saturating_sub(left_ns);
        waits::add(state.node.load(Ordering::Relaxed), wait_ns);
    }
    if state.counted.swap(0, Ordering::Relaxed) == 1 {
        of_parent(span, |parent| {
            parent.inner_left.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn of_parent<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>, act: impl FnOnce(&State)) {
    if let Some(parent) = span.parent()
        && let Some(state) = parent.extensions().get::<State>()
    {
        act(state);
    }
}

/// Takes a span off the thread's list; of one that is not the last, the next keeps what was before it.
fn leave(entered: &mut Vec<EnteredSpan>, id: u64) {
    let Some(at) = entered.iter().rposition(|span| span.id == id) else {
        return;
    };
    let left = entered.remove(at);
    match entered.get_mut(at) {
        Some(next) => next.before = left.before,
        None => context::set_node(left.before),
    }
}

/// The site of a span of the program, made once.
fn site_of(metadata: &'static Metadata<'static>) -> &'static Site {
    let file = metadata.file().unwrap_or_default();
    crate::spans::site_at(metadata.name(), file, metadata.line().unwrap_or(0))
}
