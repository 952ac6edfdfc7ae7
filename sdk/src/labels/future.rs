//! Labels that follow a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use super::Labels;
use crate::context::{self, Context, Entered};

/// Puts labels on futures.
pub trait LabelExt: Future + Sized {
    /// The labels hold while this future is polled, in whichever thread. They are added to those that
    /// hold where it is polled; in a task of its own (`tokio::spawn`) these are none.
    fn labelled(self, labels: Labels) -> Labelled<Self> {
        Labelled {
            future: self,
            labels,
            under: None,
            outer: Context::default(),
        }
    }

    /// The labels and the logical span of here hold while this future is polled: for futures that are
    /// handed to `tokio::spawn`, where they would start with none.
    fn in_current_context(self) -> Labelled<Self> {
        Labelled {
            future: self,
            labels: Labels::current(),
            under: None,
            outer: context::current(),
        }
    }
}

impl<F: Future> LabelExt for F {}

/// A future with labels; see [`LabelExt`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Labelled<F> {
    future: F,
    labels: Labels,
    /// The outer labels of the last poll, and the set that holds under them.
    under: Option<(u32, Labels)>,
    /// Whose span holds, if it has one.
    outer: Context,
}

impl<F> Labelled<F> {
    /// Number of the set that holds under the labels `outer`.
    fn id_under(&mut self, outer: Context) -> u32 {
        match &self.under {
            // Without outer labels nothing has to be added up.
            _ if outer.labels() == 0 => self.labels.id(),
            Some((id, both)) if *id == outer.labels() => both.id(),
            _ => {
                let both = self.labels.within(outer);
                let id = both.id();
                self.under = Some((outer.labels(), both));
                id
            }
        }
    }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned as this is: it is never moved out, and there is no Drop.
        let this = unsafe { self.get_unchecked_mut() };
        let ambient = Context::new(0, this.outer.node()).or(context::current());
        let _entered = Entered::new(Context::new(this.id_under(ambient), ambient.node()));
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(task)
    }
}
