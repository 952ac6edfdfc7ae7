//! Label sets as Prometheus has them, and its relabelling.
//!
//! ```
//! use pilotlight_labels::{Labels, Outcome, Rule, relabel};
//! let rule = Rule::read(&serde_json::json!({
//!     "source_labels": ["__address__"], "regex": "(.+):.*", "target_label": "node",
//! }));
//! let mut labels = Labels::from_iter([("__address__", "10.0.0.7:6060")]);
//! assert_eq!(relabel(&[rule.unwrap()], &mut labels), Outcome::Kept);
//! assert_eq!(labels.get("node"), Some("10.0.0.7"));
//! ```

mod relabel;
mod rule;

pub use relabel::{Outcome, relabel};
pub use rule::{Action, Problem, Rule};

use std::collections::BTreeMap;
use std::fmt::Write;

/// Names and values, sorted by name; a map, so that no name stands twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets a value; an empty one removes the label, which is Prometheus' meaning of empty.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// Sets a value where there is none.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        if !self.0.contains_key(name) {
            self.set(name, value);
        }
    }

    /// Keeps the labels whose names pass.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// In order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `{a="1",b="x\"y"}`; names that are not classic identifiers are quoted as Prometheus 3 does.
    pub fn selector(&self) -> String {
        let mut out = String::from("{");
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            if is_identifier(name) {
                out.push_str(name);
            } else {
                let _ = write!(out, "\"{}\"", escape(name));
            }
            let _ = write!(out, "=\"{}\"", escape(value));
        }
        out.push('}');
        out
    }

    /// As a JSON object.
    pub fn json(&self) -> serde_json::Value {
        self.iter().collect()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut labels = Self::new();
        for (name, value) in pairs {
            labels.set(&name.into(), value);
        }
        labels
    }
}

/// Escapes a value for a quoted place in a selector or in Prometheus' text format.
pub fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_is_sorted_escaped_and_quotes_odd_names() {
        let labels = Labels::from_iter([("pod-name", "a\nb"), ("a", "x\"y\\"), ("empty", "")]);
        assert_eq!(labels.selector(), r#"{a="x\"y\\","pod-name"="a\nb"}"#);
        assert_eq!(Labels::new().selector(), "{}");
    }

    #[test]
    fn an_empty_value_removes_the_label() {
        let mut labels = Labels::from_iter([("a", "1")]);
        labels.set("a", "");
        assert!(labels.is_empty());
        labels.set_default("a", "2");
        labels.set_default("a", "3");
        assert_eq!(labels.get("a"), Some("2"));
    }
}
