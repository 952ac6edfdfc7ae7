//! gRPC-Web: gRPC for pages, whose requests have no trailers. They come as the last frame of the body; the
//! text form is base64 of the same.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;

/// Bytes of a question in the text form.
const MOST_TEXT: usize = 4 << 20;
/// The first byte of the frame of trailers.
const TRAILERS: u8 = 0x80;

/// The form of a request's content type: whether it is text; none when it is not of this protocol.
fn form(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let rest = value.strip_prefix("application/grpc-web")?;
    let (is_text, rest) = match rest.strip_prefix("-text") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let known = matches!(rest.split(';').next(), Some("" | "+proto"));
    known.then_some(is_text)
}

/// Turns such a request into one of gRPC, and its answer back.
pub async fn translate(request: Request, next: Next) -> Response {
    let Some(is_text) = form(request.headers()) else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let plain = HeaderValue::from_static("application/grpc+proto");
    parts.headers.insert(header::CONTENT_TYPE, plain);
    let body = match is_text {
        false => body,
        true => {
            parts.headers.remove(header::CONTENT_LENGTH);
            let bytes = axum::body::to_bytes(body, MOST_TEXT).await;
            match bytes.ok().and_then(|bytes| decoded(&bytes)) {
                Some(bytes) => Body::from(bytes),
                None => return answered(refused().into_response(), is_text),
            }
        }
    };
    answered(next.run(Request::from_parts(parts, body)).await, is_text)
}

fn refused() -> (HeaderMap, ()) {
    let status = tonic::Status::invalid_argument("the body is not base64, or too long");
    let mut headers = HeaderMap::new();
    // Only fails for details, of which there are none.
    let _ = status.add_header(&mut headers);
    (headers, ())
}

/// Base64 may end within the body and go on: each message by itself is padded.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.chunks(4) {
        out.extend(BASE64_STANDARD.decode(four).ok()?);
    }
    Some(out)
}

fn answered(answer: Response, is_text: bool) -> Response {
    let (mut parts, body) = answer.into_parts();
    let form = match is_text {
        true => "application/grpc-web-text+proto",
        false => "application/grpc-web+proto",
    };
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.remove(header::CONTENT_LENGTH);
    let body = body.map_frame(move |frame| {
        let bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(frame) => trailers(&frame.into_trailers().unwrap_or_default()),
        };
        http_body::Frame::data(match is_text {
            true => BASE64_STANDARD.encode(bytes).into(),
            false => bytes,
        })
    });
    Response::from_parts(parts, Body::new(body))
}

fn trailers(of: &HeaderMap) -> Bytes {
    let mut lines = Vec::new();
    for (name, value) in of {
        for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    let mut frame = vec![TRAILERS];
    frame.extend_from_slice(&(lines.len() as u32).to_be_bytes());
    frame.extend(lines);
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_content_types_are_translated() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text));
            form(&headers)
        };
        assert_eq!(of("application/grpc-web+proto"), Some(false));
        assert_eq!(of("application/grpc-web"), Some(false));
        assert_eq!(of("application/grpc-web-text; charset=utf-8"), Some(true));
        for other in [
            "application/grpc",
            "application/grpc-web+json",
            "application/json",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(decoded(b"YQ==YmM=").as_deref(), Some(&b"abc"[..]));
        assert_eq!(decoded(b"YQ=").as_deref(), None);
    }
}
