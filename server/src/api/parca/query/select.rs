//! From Parca's words for a selection to ours.

use super::super::super::ApiError;
use super::proto::{Merge, Single, Time};
use crate::query::engine::Selection;
use crate::query::selector::Selector;

/// Both ends inclusive; what is not given is open.
pub fn window(start: Option<Time>, end: Option<Time>) -> (i64, i64) {
    let from = start.map_or(i64::MIN, Time::ns);
    (from, end.map_or(i64::MAX, |end| end.ns().saturating_add(1)))
}

/// A profile type of five words; Parca's sixth says how its values are to be read, which is known here.
pub fn type_id(text: &str) -> Result<String, ApiError> {
    let words: Vec<&str> = text.split(':').collect();
    match words[..] {
        [_, _, _, _, _] | [_, _, _, _, _, "delta"] => Ok(words[..5].join(":")),
        _ => Err(ApiError::bad(format!(
            "profile type {text:?}: write it like process_cpu:cpu:nanoseconds:cpu:nanoseconds:delta"
        ))),
    }
}

/// `TYPE{SELECTOR}`.
pub fn query(text: &str, window: (i64, i64)) -> Result<Selection, ApiError> {
    let (kind, rest) = text.split_at(text.find('{').unwrap_or(text.len()));
    let rest = if rest.is_empty() { "{}" } else { rest };
    Ok(Selection {
        type_id: type_id(kind.trim())?,
        selector: selector(rest)?,
        from_ns: window.0,
        until_ns: window.1,
        sample_labels: None,
    })
}

fn selector(text: &str) -> Result<Selector, ApiError> {
    let parsed = Selector::parse(text);
    parsed.map_err(|error| ApiError::bad(format!("label selector {text:?}, {error}")))
}

/// Selectors that must all hold, and the one profile type that some of them may name.
pub fn matches(
    texts: &[String],
    profile_type: Option<&str>,
) -> Result<(Selector, Option<String>), ApiError> {
    let mut all = Selector::default();
    let mut kind = profile_type
        .filter(|kind| !kind.is_empty())
        .map(type_id)
        .transpose()?;
    for text in texts.iter().filter(|text| !text.is_empty()) {
        let (front, rest) = text.split_at(text.find('{').unwrap_or(text.len()));
        if !front.trim().is_empty() {
            kind = Some(type_id(front.trim())?);
        }
        if !rest.is_empty() {
            all.and(selector(rest)?);
        }
    }
    Ok((all, kind))
}

/// All profiles of a window.
pub fn merge(of: &Merge) -> Result<Selection, ApiError> {
    query(&of.query, window(of.start, of.end))
}

/// The profiles of one time, which Parca knows to the millisecond.
pub fn single(of: &Single) -> Result<Selection, ApiError> {
    let time = of
        .time
        .ok_or_else(|| ApiError::bad("single: time is missing"))?;
    let from = time.ns().div_euclid(1_000_000).saturating_mul(1_000_000);
    query(&of.query, (from, from.saturating_add(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_type_and_a_selector_with_or_without_delta() {
        let five = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
        for text in [
            five.to_owned(),
            format!("{five}:delta{{pod=\"a\"}}"),
            format!("{five}{{}}"),
        ] {
            let selection = query(&text, (1, 2)).unwrap();
            assert_eq!((selection.type_id.as_str(), selection.from_ns), (five, 1));
        }
        for text in ["", "cpu", "a:b:c:d", "a:b:c:d:e:f", "a:b:c:d:e{pod"] {
            assert!(query(text, (1, 2)).is_err(), "{text}");
        }
        let time = Some(Time {
            seconds: 1,
            nanos: 1_500_000,
        });
        let one = single(&Single {
            time,
            query: five.to_owned(),
        })
        .unwrap();
        assert_eq!((one.from_ns, one.until_ns), (1_001_000_000, 1_002_000_000));
        let (_, kind) = matches(&[format!("{five}{{pod=\"a\"}}")], None).unwrap();
        assert_eq!(kind.as_deref(), Some(five));
    }
}
