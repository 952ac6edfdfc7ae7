//! The page's files.

use std::io::Read;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::ApiError;
use super::tree::accepts_gzip;

/// Everything that no other route takes.
pub async fn asset(method: Method, uri: Uri, request: HeaderMap) -> Response {
    let Some(asset) = pilotlight_ui::asset(uri.path()) else {
        let message = format!(
            "{}: not found; the page is at /, the API under /api/v1",
            uri.path()
        );
        return ApiError::new(StatusCode::NOT_FOUND, message).into_response();
    };
    if method != Method::GET && method != Method::HEAD {
        let message = format!("{}: use GET", uri.path());
        return ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response();
    }
    let seen = request
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let fresh = seen.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == asset.etag));
    let mut response = if fresh {
        StatusCode::NOT_MODIFIED.into_response()
    } else if accepts_gzip(&request) {
        let mut response = asset.gz.into_response();
        let gzip = HeaderValue::from_static("gzip");
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, gzip);
        response
    } else {
        let mut plain = Vec::new();
        // The files are our own and checked by the page's tests.
        let _ = flate2::read::GzDecoder::new(asset.gz).read_to_end(&mut plain);
        plain.into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, asset.content_type),
        (header::ETAG, asset.etag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
        (
            header::CONTENT_SECURITY_POLICY,
            pilotlight_ui::CONTENT_SECURITY_POLICY,
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
