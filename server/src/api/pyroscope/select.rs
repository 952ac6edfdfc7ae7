//! From Pyroscope's words for a selection to ours.

use super::super::ApiError;
use super::proto::MergeRequest;
use crate::query::engine::Selection;
use crate::query::sample_labels::SampleLabels;
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

/// A filter that is not known here must not be left out in silence: the answer would be too large.
fn refuse(request: &MergeRequest) -> Result<(), ApiError> {
    let stacks = request.stack_trace_selector.as_ref();
    if stacks.is_some_and(|stacks| !stacks.call_site.is_empty()) {
        return Err(ApiError::bad(
            "stack_trace_selector is not supported here; leave it out and zoom in the flame graph",
        ));
    }
    if !request.profile_id_selector.is_empty() {
        return Err(ApiError::bad(
            "profile_id_selector is not supported here; select by labels and time",
        ));
    }
    Ok(())
}

/// What a merge asks for.
pub fn selection(request: &MergeRequest) -> Result<Selection, ApiError> {
    refuse(request)?;
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

/// Samples of these spans; all samples when none is named.
pub fn spans<S: AsRef<str>>(ids: &[S]) -> Result<Option<SampleLabels>, ApiError> {
    let hex = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let ids = ids.iter().map(AsRef::as_ref);
    if let Some(bad) = ids.clone().find(|id| !hex(id)) {
        let message = format!("span {bad:?} is not 16 hex digits, such as 00f067aa0ba902b7");
        return Err(ApiError::bad(message));
    }
    let either: Vec<String> = ids.map(str::to_ascii_lowercase).collect();
    if either.is_empty() {
        return Ok(None);
    }
    let text = format!("{{span_id=~\"{}\"}}", either.join("|"));
    Ok(Some(SampleLabels(selector(&text)?.selector)))
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
