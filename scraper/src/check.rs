//! Is it a profile? Decided before anything is pushed, on the bytes as they came.

use pilotlight_profile::{Limits, Mode, decode};

/// What a profile says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its own start, nanoseconds since the epoch; 0 when it names none.
    pub time_ns: i64,
    /// Rows.
    pub samples: u64,
}

/// Decodes tolerantly within limits. `body_limit` bounds the inflated size as well; 0 means the decoder's own.
///
/// # Errors
/// Why these bytes are no profile, in words.
pub fn check(body: &[u8], limits: &Limits, body_limit: u64) -> Result<Checked, String> {
    if let Some(guess) = sniff(body) {
        return Err(guess.to_owned());
    }
    let mut limits = limits.clone();
    if body_limit > 0 {
        limits.inflated_bytes = limits.inflated_bytes.min(body_limit);
    }
    let decoded = decode(body, Mode::Tolerant, &limits).map_err(|error| error.to_string())?;
    Ok(Checked {
        time_ns: decoded.profile.time_ns,
        samples: decoded.profile.samples.stack.len() as u64,
    })
}

/// What the decoder cannot know: text that a wrong path or parameter of a scrape brings.
fn sniff(body: &[u8]) -> Option<&'static str> {
    if body.starts_with(b"# HELP") || body.starts_with(b"# TYPE") {
        return Some("these are Prometheus metrics; give the profile's path in profiling_config");
    }
    if body.starts_with(b"goroutine profile:") || body.starts_with(b"heap profile:") {
        return Some("this is the text form of a profile; remove the parameter debug");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_no_profiles_are_named() {
        let says = |body: &[u8]| check(body, &Limits::default(), 0).unwrap_err();
        assert!(says(b"\n<!DOCTYPE html>").contains("HTML"));
        assert!(says(b"{\"error\":1}").contains("JSON"));
        assert!(says(b"# HELP up x").contains("metrics"));
        assert!(says(b"").contains("empty"));
        assert!(says(b"404 page not found\n").contains("text"));
        assert!(says(b"goroutine profile: total 3").contains("debug"));
    }
}
