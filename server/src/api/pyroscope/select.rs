//! From Pyroscope's words for a selection to ours.

use super::super::ApiError;
use super::proto::MergeRequest;
use crate::query::engine::Selection;
use crate::query::selector::Selector;

/// Milliseconds, both ends inclusive; 0 and 0 mean everything.
pub fn window(start_ms: i64, end_ms: i64) -> (i64, i64) {
    if start_ms == 0 && end_ms == 0 {
        return (i64::MIN, i64::MAX);
    }
    let ns = |ms: i64| ms.saturating_mul(1_000_000);
    (ns(start_ms), ns(end_ms.saturating_add(1)))
}

/// A selector with the profile type that it may name (`__profile_type__="…"`).
pub struct Matched {
    pub selector: Selector,
    pub type_id: Option<String>,
}

/// Reads a selector; what it says of profile types is taken out of it, since types are no labels here.
pub fn selector(text: &str) -> Result<Matched, ApiError> {
    let mut selector = Selector::parse(text)
        .map_err(|error| ApiError::bad(format!("label selector {text:?}, {error}")))?;
    let type_id = selector.take_equal("__profile_type__");
    Ok(Matched { selector, type_id })
}

/// One selector of several that must all hold.
pub fn matchers(texts: &[String]) -> Result<Matched, ApiError> {
    let mut all = Matched {
        selector: Selector::default(),
        type_id: None,
    };
    for text in texts {
        let matched = selector(text)?;
        all.selector.and(matched.selector);
        all.type_id = matched.type_id.or(all.type_id);
    }
    Ok(all)
}

/// What a merge asks for.
pub fn selection(request: &MergeRequest) -> Result<Selection, ApiError> {
    let matched = selector(&request.label_selector)?;
    let (from_ns, until_ns) = window(request.start, request.end);
    let wanted = match (&request.profile_type_id[..], matched.type_id) {
        ("", Some(inside)) => inside,
        ("", None) => return Err(ApiError::bad("profile_typeID is missing")),
        (given, _) => given.to_owned(),
    };
    if wanted.matches(':').count() != 4 {
        let message = format!(
            "profile type {wanted:?}: write it like process_cpu:cpu:nanoseconds:cpu:nanoseconds"
        );
        return Err(ApiError::bad(message));
    }
    Ok(Selection {
        type_id: wanted,
        selector: matched.selector,
        from_ns,
        until_ns,
        sample_labels: None,
    })
}

/// `type{selector}`, as `render` takes it.
pub fn query(text: &str) -> Result<(String, Selector), ApiError> {
    let (type_id, rest) = match text.find('{') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    if type_id.matches(':').count() != 4 {
        let message = format!(
            "query {text:?}: write it like \
             process_cpu:cpu:nanoseconds:cpu:nanoseconds{{service_name=\"checkout\"}}"
        );
        return Err(ApiError::bad(message));
    }
    Ok((type_id.to_owned(), selector(rest)?.selector))
}
