//! Labels of samples, which come beside a recording: its events name a context, this says what it is.

use std::collections::HashMap;

use prost::Message;

/// Pyroscope's `LabelsSnapshot`.
#[derive(Clone, PartialEq, Message)]
pub struct Labels {
    /// By the number in the event.
    #[prost(map = "int64, message", tag = "1")]
    contexts: HashMap<i64, Context>,
    #[prost(map = "int64, string", tag = "2")]
    strings: HashMap<i64, String>,
}

/// Names and values as numbers of texts.
#[derive(Clone, PartialEq, Message)]
struct Context {
    #[prost(map = "int64, int64", tag = "1")]
    labels: HashMap<i64, i64>,
}

impl Labels {
    /// Pairs of a context, sorted.
    pub fn of(&self, context: i64) -> Vec<(&str, &str)> {
        let text = |number: &i64| self.strings.get(number).map(String::as_str);
        let pairs = self.contexts.get(&context).into_iter();
        let pairs = pairs.flat_map(|context| &context.labels);
        let mut pairs: Vec<_> = pairs
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect();
        pairs.sort_unstable();
        pairs
    }
}
