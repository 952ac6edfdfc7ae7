//! Labels: what a sample belongs to, by names of your own (route, tenant, job).
//!
//! ```
//! use pilotlight::{LabelExt, labels};
//! # fn price() {}
//! # async fn pay() {}
//! // In a thread, until the guard is dropped:
//! let entered = labels! { "route" => "/price", "tenant" => 17 }.enter();
//! price();
//! drop(entered);
//! // In a task, wherever it is polled:
//! let task = pay().labelled(labels! { "route" => "/pay" });
//! # drop(task);
//! ```
//!
//! Samples of CPU time carry them as pprof labels, and the logical span as the label `span`.
//!
//! # Cost and bounds
//! Making a set costs a look-up under a lock and, the first time, its bytes; entering and leaving it
//! is one store each; a sample carries a number. A set has at most 16 labels, keys of 64 and values of
//! 128 bytes (longer ones are cut). At most 16,384 sets or 4 MiB are kept: beyond that sets that
//! nobody holds make room, and when all are held, the set is `labels="[overflow]"`; each is counted in
//! [`Stats`](crate::Stats).

mod future;
mod table;

pub(crate) use table::lock;

use std::fmt;
use std::sync::Arc;

use crate::context::{self, Context, Entered as EnteredContext};

pub use future::{LabelExt, Labelled};
pub(crate) use table::{OVERFLOW, Set, of_id};

/// Labels of a set at most.
pub const MAX_LABELS: usize = 16;
/// Bytes of a key at most.
pub const MAX_KEY_BYTES: usize = 64;
/// Bytes of a value at most.
pub const MAX_VALUE_BYTES: usize = 128;

/// A set of labels. Equal sets are one set; a clone is a reference.
#[derive(Clone)]
pub struct Labels(Arc<Set>);

impl Labels {
    /// A set from keys and values; of equal keys the last one counts. [`labels!`](crate::labels!)
    /// reads better.
    #[must_use]
    pub fn new(labels: &[(&str, &dyn fmt::Display)]) -> Labels {
        let mut made = Vec::with_capacity(labels.len());
        for (key, value) in labels {
            put(&mut made, cut(key, MAX_KEY_BYTES), value_of(*value));
        }
        Labels(table::intern(made))
    }

    /// The labels that hold in this thread now.
    #[must_use]
    pub fn current() -> Labels {
        Labels::of_id(context::current().labels())
    }

    /// These labels and `inner`'s; where both have a key, `inner`'s value counts.
    #[must_use]
    pub fn and(&self, inner: &Labels) -> Labels {
        let mut made = self.0.labels.to_vec();
        for (key, value) in &inner.0.labels {
            put(&mut made, key, value.clone());
        }
        Labels(table::intern(made))
    }

    /// Adds these labels to those of this thread, until the guard is dropped. Drop guards in the
    /// reverse order of their making. In async code use [`LabelExt::labelled`]: the guard is not
    /// `Send`, so that it cannot be kept across an `await` of a task that changes threads.
    #[must_use = "the labels are gone when the guard is"]
    pub fn enter(&self) -> Entered {
        let outer = context::current();
        let labels = self.within(outer);
        Entered {
            _context: EnteredContext::new(Context::new(labels.0.id, outer.node())),
            _labels: labels,
        }
    }

    /// The set that holds where these are entered under `outer`.
    fn within(&self, outer: Context) -> Labels {
        match of_id(outer.labels()) {
            Some(outer) => Labels(outer).and(self),
            None => self.clone(),
        }
    }

    /// Keys and values, ascending by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The set of an id; empty where there is none any more.
    pub(crate) fn of_id(id: u32) -> Labels {
        Labels(of_id(id).unwrap_or_else(|| table::intern(Vec::new())))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Labels) -> bool {
        self.0.labels == other.0.labels
    }
}

impl Eq for Labels {}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Labels hold while this lives.
#[derive(Debug)]
pub struct Entered {
    _context: EnteredContext,
    /// A sample's number stays good while somebody holds the set.
    _labels: Labels,
}

/// Makes [`Labels`]: `labels! { "route" => route, "tenant" => 17 }`. Values are anything that can be
/// displayed.
#[macro_export]
macro_rules! labels {
    ($($key:expr => $value:expr),* $(,)?) => {
        $crate::Labels::new(&[$(($key, &$value as &dyn ::std::fmt::Display)),*])
    };
}

type Pair = (Box<str>, Box<str>);

/// Puts a label in its place by key.
fn put(labels: &mut Vec<Pair>, key: &str, value: Box<str>) {
    match labels.binary_search_by(|(other, _)| (**other).cmp(key)) {
        Ok(at) => labels[at].1 = value,
        Err(_) if labels.len() == MAX_LABELS => crate::stats::COUNTERS.labels_dropped.add(1),
        Err(at) => labels.insert(at, (key.into(), value)),
    }
}

fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    crate::stats::COUNTERS.labels_cut.add(1);
    let fits = (0..=limit).rev().find(|&at| text.is_char_boundary(at));
    &text[..fits.unwrap_or(0)]
}

/// The value as text, never longer than the limit while it is made.
fn value_of(value: &dyn fmt::Display) -> Box<str> {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(text);
            // One byte more than fits tells that it has to be cut.
            if self.0.len() > MAX_VALUE_BYTES {
                return Err(fmt::Error);
            }
            Ok(())
        }
    }
    let mut text = Bounded(String::new());
    // A value that is too long stops here, which is no failure.
    let _ = fmt::write(&mut text, format_args!("{value}"));
    cut(&text.0, MAX_VALUE_BYTES).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(labels: &Labels) -> Vec<(String, String)> {
        let own = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        labels.iter().map(own).collect()
    }

    #[test]
    fn inner_labels_win_and_leaving_restores() {
        let outer = labels! { "route" => "/pay", "tenant" => 17 }.enter();
        {
            let _inner = labels! { "tenant" => 18, "step" => "card" }.enter();
            let seen = Labels::current();
            let expected = labels! { "step" => "card", "route" => "/pay", "tenant" => 18 };
            assert_eq!(seen, expected);
            assert_eq!(seen.id(), expected.id(), "equal sets are one set");
        }
        assert_eq!(
            Labels::current(),
            labels! { "tenant" => 17, "route" => "/pay" }
        );
        drop(outer);
        assert_eq!(Labels::current(), labels! {});
    }

    #[test]
    fn keys_values_and_counts_are_bounded() {
        let long = "é".repeat(200);
        let set = labels! { &"k".repeat(100) => long };
        let [(key, value)] = &pairs(&set)[..] else {
            panic!("{set:?}")
        };
        assert_eq!(key.len(), MAX_KEY_BYTES);
        assert_eq!(value.as_str(), "é".repeat(64));
        let keys: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
        let many: Vec<(&str, &dyn fmt::Display)> =
            keys.iter().map(|key| (key.as_str(), &1 as _)).collect();
        let dropped = crate::stats().labels_dropped;
        assert_eq!(Labels::new(&many).iter().count(), MAX_LABELS);
        assert!(crate::stats().labels_dropped >= dropped + 24);
    }
}
