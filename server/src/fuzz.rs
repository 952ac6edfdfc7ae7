//! Ways in for the fuzz targets (`fuzz/`) to parsers that are no part of this crate's interface.
//! What they are given is any bytes; they panic when the parser breaks a promise.

use pilotlight_profile::{Limits, Profile};
use prost::Message;

use crate::api::{ingest_any, parca_any};
use crate::debuginfo::{Announced, Record};
use crate::otlp::{convert, from_json, proto::ExportRequest};
use crate::query::selector::{Selector, parse_labels};

/// A selector: what is read says yes or no to every label set, and an empty one says yes.
///
/// # Panics
/// When it contradicts itself.
pub fn selector(text: &str) {
    if let Ok(labels) = parse_labels(text) {
        let again = Selector::parse(&crate::block::series_text(&labels));
        let again = again.unwrap_or_else(|error| panic!("{text:?} is written wrong: {error}"));
        let mut once = labels.clone();
        once.dedup_by(|a, b| a.0 == b.0);
        assert!(
            once.len() < labels.len() || again.matches(&labels),
            "{text:?}"
        );
    }
    let Ok(mut selector) = Selector::parse(text) else {
        return;
    };
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        pairs.collect::<Vec<_>>()
    };
    for set in [&[][..], &[("service_name", "a"), ("pod", text)]] {
        let set = labels(set);
        let service = set.first().map_or("", |(_, value)| value);
        assert!(
            !selector.matches(&set) || selector.may_match_service(service),
            "{text:?}"
        );
    }
    while selector.take_equal("service_name").is_some() {}
}

/// The body of an OTLP export, protobuf and JSON: each profile that is taken encodes and decodes.
///
/// # Panics
/// When a profile that was taken is none.
pub fn otlp(body: &[u8]) {
    let limits = Limits::default();
    let text = ExportRequest::decode(body).ok();
    for request in [text, from_json(body).ok()].into_iter().flatten() {
        for taken in convert(&request, &limits).into_iter().flatten() {
            decodes(&taken.profile, &limits);
        }
    }
}

/// A body of Pyroscope's older push: the first byte says the format. Each profile that is taken
/// encodes and decodes.
///
/// # Panics
/// When a profile that was taken is none.
pub fn ingest(body: &[u8]) {
    let Some((format, body)) = body.split_first() else {
        return;
    };
    let limits = Limits::default();
    for profile in ingest_any::profiles(*format, body, &limits) {
        decodes(&profile, &limits);
    }
}

/// What Parca's clients send, and what describes files of debug information.
///
/// # Panics
/// When a message that was read is written wrong.
pub fn messages(body: &[u8]) {
    parca_any::messages(body);
    for profile in parca_any::profiles(body) {
        decodes(&profile, &Limits::default());
    }
    if let Some(record) = Record::decode(body) {
        let again = Record::decode(&record.encode());
        assert_eq!(
            again.as_ref(),
            Some(&record),
            "a description is written wrong"
        );
        let _ = (record.key(), record.file_name(), record.segments());
    }
    let _ = serde_json::from_slice::<Announced>(body);
}

fn decodes(profile: &Profile, limits: &Limits) {
    let encoded = profile.to_pprof();
    let mode = pilotlight_profile::Mode::Strict;
    if let Err(error) = pilotlight_profile::decode(&encoded, mode, limits) {
        panic!("a profile that was taken does not decode: {error}");
    }
}

#[cfg(test)]
mod tests;
