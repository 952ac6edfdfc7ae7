//! From bytes to columns.

mod columns;
mod ids;
mod inflate;
mod link;
mod parse;
mod repair;
mod wire;

pub use inflate::inflate;

use crate::error::DecodeError;
use crate::limits::Limits;
use crate::model::Profile;
use crate::report::Report;

/// How [`decode`] treats profiles whose parts do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse what google/pprof refuses, accept what it accepts.
    Strict,
    /// Keep, repair and count: for profiles of other people's writers.
    Tolerant,
}

/// What [`decode`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The profile.
    pub profile: Profile,
    /// What was repaired or dropped to get it.
    pub report: Report,
}

/// Decodes a pprof profile: plain, gzipped (of one or several members) or, with the feature `zstd`,
/// zstd-compressed.
///
/// ```
/// use pilotlight_profile::{DecodeError, Limits, Mode, decode};
///
/// let refused = decode(b"<html>404</html>", Mode::Tolerant, &Limits::default());
/// assert!(matches!(refused, Err(DecodeError::NotPprof { .. })));
/// ```
///
/// # Errors
/// Input that is empty, beyond a limit, damaged, not pprof, or two profiles behind each other; in
/// strict mode also what google/pprof finds invalid. In tolerant mode, invalid parts are errors only
/// when nothing would be left: samples without sample types, or not one sample whose values fit.
pub fn decode(bytes: &[u8], mode: Mode, limits: &Limits) -> Result<Decoded, DecodeError> {
    let raw = inflate(bytes, limits)?;
    if raw.is_empty() {
        return Err(DecodeError::Empty);
    }
    decode_raw(&raw, mode, limits).map_err(|error| match (*error, looks_like(&raw)) {
        (DecodeError::Malformed { .. }, Some(looks_like)) => DecodeError::NotPprof { looks_like },
        (error, _) => error,
    })
}

fn decode_raw(raw: &[u8], mode: Mode, limits: &Limits) -> Result<Decoded, Box<DecodeError>> {
    let mut columns = columns::Columns::parse(raw, limits)?;
    let mut report = Report::default();
    columns.check_strings(mode, &mut report)?;
    let profile = link::link(columns, raw, mode, limits, &mut report)?;
    if mode == Mode::Tolerant {
        repair::note_oddities(&profile, &mut report);
    }
    Ok(Decoded { profile, report })
}

/// What input that is no protobuf seems to be.
fn looks_like(raw: &[u8]) -> Option<&'static str> {
    let start = raw.trim_ascii_start();
    let text = &start[..start.len().min(64)];
    match start.first() {
        Some(b'<') if text.is_ascii() => Some("an HTML or XML page"),
        Some(b'{' | b'[') if text.is_ascii() => Some("JSON"),
        _ if start.starts_with(b"go 1.") && text.contains(&0) => Some("a Go execution trace"),
        Some(_) if is_text(text) => Some("text, perhaps an error message or a legacy text profile"),
        _ => None,
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|&b| matches!(b, b' '..=b'~' | b'\t' | b'\r' | b'\n'))
}
