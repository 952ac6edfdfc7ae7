//! Reads mappings key by key: every problem is kept with its place, and every key that nobody asked for is a problem.

use super::duration::parse_duration;
use super::size::parse_size;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::time::Duration;

/// What was wrong, in the order met.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<String>>);

impl Problems {
    /// Adds `place: text`.
    pub fn add(&self, place: &str, text: impl AsRef<str>) {
        let separator = if place.is_empty() { "" } else { ": " };
        self.0
            .borrow_mut()
            .push(format!("{place}{separator}{}", text.as_ref()));
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<String> {
        self.0.into_inner()
    }
}

/// One mapping of the file, with its place such as `scrape_configs[1]`.
pub struct Section<'a> {
    place: String,
    map: Option<&'a Map<String, Value>>,
    asked: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> Section<'a> {
    /// Takes the value as a mapping; null is an empty one.
    pub fn new(place: impl Into<String>, value: &'a Value, problems: &'a Problems) -> Self {
        let place = place.into();
        if !value.is_object() && !value.is_null() {
            problems.add(&place, format!("must be a mapping, not {}", kind(value)));
        }
        Self {
            place,
            map: value.as_object(),
            asked: Vec::new(),
            problems,
        }
    }

    /// Where we are.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Names the mapping more clearly than by its index.
    pub fn rename(&mut self, place: String) {
        self.place = place;
    }

    /// Reports a problem of this key.
    pub fn problem(&self, key: &str, text: impl AsRef<str>) {
        self.problems.add(&self.at(key), text);
    }

    fn at(&self, key: &str) -> String {
        if self.place.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.place)
        }
    }

    /// The raw value; null counts as absent.
    pub fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.asked.push(key);
        self.map?.get(key).filter(|value| !value.is_null())
    }

    /// A text; whole numbers pass as Go's YAML reads them into strings.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.value(key)?;
        self.parsed(key, scalar(value))
    }

    /// A whole number from 0.
    pub fn number(&mut self, key: &'static str) -> Option<u64> {
        let value = self.value(key)?;
        let number = value.as_u64();
        if number.is_none() {
            self.problem(key, format!("must be a whole number from 0, not {value}"));
        }
        number
    }

    /// `true` or `false`.
    pub fn truth(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let truth = value.as_bool();
        if truth.is_none() {
            self.problem(key, format!("must be true or false, not {value}"));
        }
        truth
    }

    /// A duration as Prometheus writes it.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let text = self.text(key)?;
        self.parsed(key, parse_duration(&text))
    }

    /// A size in bytes, `64MB`.
    pub fn size(&mut self, key: &'static str) -> Option<u64> {
        let text = self.text(key)?;
        self.parsed(key, parse_size(&text))
    }

    fn parsed<T>(&self, key: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|text| self.problem(key, text)).ok()
    }

    /// Whether a key stands here.
    pub fn has(&self, key: &str) -> bool {
        self.map.is_some_and(|map| map.contains_key(key))
    }

    /// The elements of a list with their places.
    pub fn list(&mut self, key: &'static str) -> Vec<(String, &'a Value)> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(list) = value.as_array() else {
            self.problem(key, format!("must be a list, not {}", kind(value)));
            return Vec::new();
        };
        let at = self.at(key);
        list.iter()
            .enumerate()
            .map(|(index, value)| (format!("{at}[{index}]"), value))
            .collect()
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str) -> Vec<String> {
        let list = self.list(key);
        texts(list, self.problems)
    }

    /// The entries of a mapping with their places.
    pub fn entries(&mut self, key: &'static str) -> Vec<(&'a str, String, &'a Value)> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(map) = value.as_object() else {
            self.problem(key, format!("must be a mapping, not {}", kind(value)));
            return Vec::new();
        };
        let at = self.at(key);
        map.iter()
            .map(|(name, value)| (name.as_str(), format!("{at}.{name}"), value))
            .collect()
    }

    /// Where problems of elements go.
    pub fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// Ends reading: keys that were never asked for are refused, in words of `later` when they are known elsewhere.
    pub fn finish(self, later: fn(&str) -> Option<String>) {
        for key in self.map.into_iter().flat_map(Map::keys) {
            if self.asked.contains(&key.as_str()) {
                continue;
            }
            let text = later(key).unwrap_or_else(|| match nearest(key, &self.asked) {
                Some(known) => format!("unknown key; did you mean {known}?"),
                None => format!("unknown key; known here: {}", self.asked.join(", ")),
            });
            self.problem(key, text);
        }
    }
}

/// Elements as texts; others are problems.
pub fn texts(list: Vec<(String, &Value)>, problems: &Problems) -> Vec<String> {
    let mut out = Vec::with_capacity(list.len());
    for (place, value) in list {
        match scalar(value) {
            Ok(text) => out.push(text),
            Err(problem) => problems.add(&place, problem),
        }
    }
    out
}

/// A text, or a whole number as text. Whether `1.10` was meant as a number cannot be seen any more: it needs quotes.
pub fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        Value::Number(_) | Value::Bool(_) => {
            Err(format!("is read as {}; write it in quotes", kind(value)))
        }
        _ => Err(format!("must be a text, not {}", kind(value))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// The known key at an edit distance of at most a third of its length.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| (distance(key, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| distance * 3 <= candidate.len())
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_answered_by_the_nearest() {
        let known = ["scrape_interval", "scrape_timeout", "job_name"];
        assert_eq!(nearest("scrap_interval", &known), Some("scrape_interval"));
        assert_eq!(nearest("jobname", &known), Some("job_name"));
        assert_eq!(nearest("completely_else", &known), None);
    }
}
