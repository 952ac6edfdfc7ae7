//! The web page, built and embedded.
//!
//! The files in `dist/` are built from `web/` (`npm ci && npm run build`) and committed, so that
//! building the server needs no Node. They are stored compressed and served as they are:
//!
//! ```
//! let page = pilotlight_ui::asset("/").expect("the page is embedded");
//! assert_eq!(page.content_type, "text/html; charset=utf-8");
//! assert_eq!(page.gz[..2], [0x1f, 0x8b]); // send with `Content-Encoding: gzip`
//! ```
//!
//! Responsible for: the page's files, their content types and their ETags. Not responsible for:
//! HTTP, caching headers, and the API that the page calls (`pilotlight-server`).
#![forbid(unsafe_code)]

mod generated;

/// One file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Content, compressed by gzip: send it with `Content-Encoding: gzip`.
    pub gz: &'static [u8],
    /// Value of the `Content-Type` header.
    pub content_type: &'static str,
    /// Value of the `ETag` header, quotes included: a hash of the uncompressed content.
    pub etag: &'static str,
}

/// `Content-Security-Policy` that the page needs, and nothing beyond it.
///
/// ```
/// assert!(pilotlight_ui::CONTENT_SECURITY_POLICY.starts_with("default-src 'none'"));
/// ```
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at a request path, or `None` when the page has no such file. `/` is `index.html`.
///
/// ```
/// assert!(pilotlight_ui::asset("/app.js").is_some());
/// assert!(pilotlight_ui::asset("/../secret").is_none());
/// ```
pub fn asset(path: &str) -> Option<Asset> {
    let wanted = if path == "/" { "/index.html" } else { path };
    generated::ASSETS
        .iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, asset)| *asset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_served_at_the_root_and_refers_only_to_embedded_files() {
        assert_eq!(asset("/"), asset("/index.html"));
        for path in ["/app.js", "/app.css", "/icon.svg"] {
            let found = asset(path).unwrap_or_else(|| panic!("{path} is missing"));
            assert_eq!(found.gz[..3], [0x1f, 0x8b, 8], "{path} is gzip");
            assert!(found.etag.starts_with('"') && found.etag.len() == 18);
        }
    }

    #[test]
    fn compressed_files_have_no_build_time_and_stay_within_the_budget() {
        let sum: usize = generated::ASSETS.iter().map(|(_, a)| a.gz.len()).sum();
        assert!(sum <= 120_000, "the page is {sum} bytes, more than 120,000");
        for (name, a) in generated::ASSETS {
            assert_eq!(a.gz[4..8], [0; 4], "{name} carries a time");
        }
    }

    #[test]
    fn unknown_paths_are_refused() {
        assert_eq!(asset("/nothing.js"), None);
        assert_eq!(asset(""), None);
    }
}
