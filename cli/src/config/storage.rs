//! `server.storage` and `server.s3`.

use super::{ServerRules, Storage};
use pilotlight_scraper::config::reader::{Problems, Section};
use serde_json::Value;

/// Reads where segments are kept, when that is not the data folder.
pub fn read(server: &mut Section<'_>, problems: &Problems, rules: &mut ServerRules) {
    let place = server.text("storage");
    let nothing = Value::Null;
    let value = server.value("s3").unwrap_or(&nothing);
    let mut s3 = Section::new("server.s3", value, problems);
    let (endpoint, region) = (s3.text("endpoint"), s3.text("region"));
    s3.finish(|_| None);
    let Some(place) = place else {
        return;
    };
    let Some((bucket, prefix)) = bucket_and_prefix(&place) else {
        let text = format!("{place:?} is not a place; write it like s3://bucket/prefix");
        return server.problem("storage", text);
    };
    if !cfg!(feature = "s3") {
        let text = "this program was built without object stores: \
                    cargo build --release -p pilotlight-cli --features s3";
        return server.problem("storage", text);
    }
    rules.storage = Some(Storage {
        bucket,
        prefix,
        endpoint,
        region,
    });
}

fn bucket_and_prefix(place: &str) -> Option<(String, String)> {
    let rest = place.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    (!bucket.is_empty()).then(|| (bucket.to_owned(), prefix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        let pair = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(bucket_and_prefix("s3://b"), pair("b", ""));
        assert_eq!(bucket_and_prefix("s3://b/p/q/"), pair("b", "p/q"));
        assert_eq!(bucket_and_prefix("s3:///p"), None);
        assert_eq!(bucket_and_prefix("/data"), None);
    }
}
