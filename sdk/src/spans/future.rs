//! A future as a logical span.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use super::entry::Entry;
use super::nodes::{Site, site};
use crate::context::{self, Context, Polling};

/// Makes spans of futures.
pub trait SpanExt: Future + Sized {
    /// This future is a span of this name in logical stacks, under the span that runs where it is
    /// polled first.
    #[track_caller]
    fn span(self, name: &'static str) -> Spanned<Self> {
        Spanned::at(self, site(name, Location::caller()))
    }
}

impl<F: Future> SpanExt for F {}

/// A future that is a span; see [`SpanExt`].
#[must_use = "futures do nothing unless polled"]
pub struct Spanned<F> {
    future: F,
    site: &'static Site,
    entry: Entry,
}

// SAFETY: the entry's cells are touched by the thread that polls or drops the future, and by others
// only under the lock of the list.
unsafe impl<F: Send> Send for Spanned<F> {}
// SAFETY: a shared reference to it gives access to nothing of the entry.
unsafe impl<F: Sync> Sync for Spanned<F> {}

impl<F> fmt::Debug for Spanned<F> {
    // Not the entry: other threads may not read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spanned")
            .field("site", self.site)
            .finish_non_exhaustive()
    }
}

impl<F> Spanned<F> {
    /// For `#[pilotlight::span]`.
    #[doc(hidden)]
    pub const fn at(future: F, site: &'static Site) -> Spanned<F> {
        Spanned {
            future,
            site,
            entry: Entry::new(),
        }
    }
}

impl<F: Future> Future for Spanned<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        // SAFETY: `future` and `entry` are pinned as this is; neither is moved, and Drop treats them
        // as pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let (outer, around) = (context::current(), context::current_entry());
        if this.entry.is_live() {
            this.entry.wait_ends();
        } else {
            let node = this.site.under(outer.node());
            // SAFETY: pinned, and Drop ends it.
            unsafe { this.entry.begin(Context::new(outer.labels(), node)) };
        }
        let context = Context::new(outer.labels(), this.entry.node());
        let polling = Polling::new(context, &raw mut this.entry);
        // SAFETY: as above.
        let polled = unsafe { Pin::new_unchecked(&mut this.future) }.poll(task);
        drop(polling);
        match polled {
            Poll::Pending => this.entry.wait_begins(around),
            Poll::Ready(_) => this.entry.end(),
        }
        polled
    }
}

impl<F> Drop for Spanned<F> {
    fn drop(&mut self) {
        self.entry.end();
    }
}
