//! What stands in the body: the format, and the fields of a form.

use axum::body::Bytes;
use axum::http::StatusCode;
use prost::Message;

use super::super::super::ApiError;
use super::jfr::Labels;

/// Formats of the older push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines that end in a number.
    Groups,
    /// Lines that count once.
    Lines,
    Tree,
    Trie,
    Speedscope,
    Jfr,
    Pprof,
}

impl Format {
    /// From the parameter `format`, else from the content type.
    pub fn of(asked: &str, content: &str) -> Result<Format, ApiError> {
        let kind = content.split(';').next().unwrap_or("").trim();
        Ok(match (asked, kind) {
            ("pprof", _) => Format::Pprof,
            ("jfr", _) => Format::Jfr,
            ("trie", _) => Format::Trie,
            ("tree", _) => Format::Tree,
            ("lines", _) => Format::Lines,
            ("speedscope", _) => Format::Speedscope,
            ("groups" | "folded" | "collapsed", _) => Format::Groups,
            ("", "binary/octet-stream+trie") => Format::Trie,
            ("", "binary/octet-stream+tree") => Format::Tree,
            ("", "multipart/form-data") => Format::Pprof,
            ("", _) => Format::Groups,
            (other, _) => {
                let message = format!(
                    "format {other:?} is none of pprof, jfr, trie, tree, lines, groups and speedscope"
                );
                return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
            }
        })
    }

    /// For errors.
    pub fn named(self) -> &'static str {
        match self {
            Format::Groups | Format::Lines => "folded text",
            Format::Tree => "a tree",
            Format::Trie => "a trie",
            Format::Speedscope => "a file of speedscope",
            Format::Jfr => "a flight recording",
            Format::Pprof => "a pprof",
        }
    }
}

/// A body taken apart.
pub struct Parts {
    /// What the profile is written in.
    pub format: Format,
    /// The profile itself.
    pub profile: Bytes,
    /// Of samples in a recording.
    pub labels: Labels,
}

impl Parts {
    /// Takes a form apart; any other body is the profile.
    pub async fn read(format: Format, content: &str, bytes: Bytes) -> Result<Parts, ApiError> {
        let mut parts = Parts {
            format,
            profile: bytes.clone(),
            labels: Labels::default(),
        };
        if !content.starts_with("multipart/form-data") {
            return Ok(parts);
        }
        let wanted = match format {
            Format::Jfr => "jfr",
            _ => "profile",
        };
        let bad = |error: multer::Error| ApiError::bad(format!("the form: {error}"));
        let boundary = multer::parse_boundary(content).map_err(bad)?;
        let whole = futures_util::stream::once(async { Ok::<_, std::io::Error>(bytes) });
        let mut fields = multer::Multipart::new(whole, boundary);
        let mut found = false;
        while let Some(field) = fields.next_field().await.map_err(bad)? {
            let name = field.name().unwrap_or("").to_owned();
            if name == wanted {
                parts.profile = field.bytes().await.map_err(bad)?;
                found = true;
            } else if name == "labels" {
                let bytes = field.bytes().await.map_err(bad)?;
                parts.labels = Labels::decode(bytes)
                    .map_err(|error| ApiError::bad(format!("field labels of the form: {error}")))?;
            }
        }
        match found {
            true => Ok(parts),
            false => Err(ApiError::bad(format!("the form has no field {wanted}"))),
        }
    }
}
