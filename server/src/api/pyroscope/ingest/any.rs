//! Any bytes in each format: the way in for what looks for inputs that break a decoder.

use axum::body::Bytes;
use futures_util::FutureExt;
use pilotlight_profile::{Limits, Profile, inflate};
use prost::Message;

use super::form::{Format, Parts};
use super::jfr::{self, Labels};
use super::kind;
use super::stacks::{Numbers, PERIOD_NS};
use super::{folded, speedscope, trees};

/// Formats that [`profiles`] knows.
pub const FORMATS: u8 = 7;

/// What `body` holds in the format of a number: nothing where it is none of that format.
pub fn profiles(format: u8, body: &[u8], limits: &Limits) -> Vec<Profile> {
    let numbers = Numbers {
        kind: kind::CPU,
        period_ns: PERIOD_NS,
        limits,
    };
    let Ok(bytes) = inflate(body, limits) else {
        return Vec::new();
    };
    let one = match format % FORMATS {
        0 => trees::tree(&bytes, &numbers),
        1 => trees::trie(&bytes, &numbers),
        2 => folded::profile(&bytes, false, &numbers),
        3 => folded::profile(&bytes, true, &numbers),
        4 => speedscope::profile(&bytes, None, numbers).map(|(_, profile)| profile),
        5 => return recording(&bytes, &Labels::default(), limits),
        _ => return form(body, limits),
    };
    one.into_iter().collect()
}

fn recording(bytes: &[u8], labels: &Labels, limits: &Limits) -> Vec<Profile> {
    let all = jfr::profiles(bytes, None, labels, limits).unwrap_or_default();
    all.into_iter().map(|(_, profile)| profile).collect()
}

/// A form with a recording and its labels.
fn form(body: &[u8], limits: &Limits) -> Vec<Profile> {
    let content = "multipart/form-data; boundary=b";
    let parts = Parts::read(Format::Jfr, content, Bytes::copy_from_slice(body));
    match parts.now_or_never() {
        Some(Ok(parts)) => recording(&parts.profile, &parts.labels, limits),
        _ => {
            let labels = Labels::decode(body).unwrap_or_default();
            for context in [0, 1, i64::MAX] {
                let _ = labels.of(context);
            }
            Vec::new()
        }
    }
}
