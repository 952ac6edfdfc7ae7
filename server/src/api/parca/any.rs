//! Any bytes as Parca's messages: the way in for what looks for inputs that break a decoder.

use prost::Message;
use serde::de::DeserializeOwned;

use super::arrow;
use super::proto::{Initiate, Should, Upload, WriteRawRequest};
use super::query::select;

/// Reads `body` as each message that a client sends, protobuf and JSON.
pub fn messages(body: &[u8]) {
    both::<WriteRawRequest>(body);
    both::<Should>(body);
    both::<Initiate>(body);
    let _ = Upload::decode(body);
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = (select::type_id(text), select::query(text, (0, i64::MAX)));
    }
}

/// Reads `body` as an Arrow write, and as the stacks of one; every profile that is taken.
pub fn profiles(body: &[u8]) -> Vec<pilotlight_profile::Profile> {
    let limits = pilotlight_profile::Limits::default();
    let mut out = arrow::profiles(body, None, &limits);
    out.extend(arrow::profiles(body, Some(body), &limits));
    out
}

fn both<M: Message + Default + DeserializeOwned>(body: &[u8]) {
    let json = serde_json::from_slice::<M>(body).ok();
    for message in M::decode(body).ok().into_iter().chain(json) {
        let again = M::decode(message.encode_to_vec().as_slice());
        assert!(again.is_ok(), "a message that was read is written wrong");
    }
}
