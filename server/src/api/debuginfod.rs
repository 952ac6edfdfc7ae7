//! The server side of debuginfod, so that `gdb` and `perf` find here what profiles are named by:
//! `DEBUGINFOD_URLS=http://127.0.0.1:4040`.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::{ApiError, App};
use crate::debuginfo::{Fetched, Quality, Record};

/// Routes of this protocol.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/buildid/{id}/debuginfo", get(debuginfo))
        .route("/buildid/{id}/executable", get(executable))
        .route("/buildid/{id}/{*other}", get(no_such))
}

async fn debuginfo(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let found = app.engine.debuginfo.of_build_id(&id);
    let found = found.filter(|(best, _)| best.rank() >= Quality::Symtab);
    answer(app, &id, found.map(|(best, _)| best)).await
}

async fn executable(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let found = app.engine.debuginfo.of_build_id(&id);
    answer(app, &id, found.and_then(|(_, code)| code)).await
}

async fn no_such(Path((id, _)): Path<(String, String)>) -> Response {
    missing(&id)
}

fn missing(id: &str) -> Response {
    let text = format!("nothing of this kind is stored for build id {id}");
    ApiError::new(StatusCode::NOT_FOUND, text).into_response()
}

async fn answer(app: Arc<App>, id: &str, record: Option<Arc<Record>>) -> Response {
    let Some(record) = record else {
        return missing(id);
    };
    let of = record.clone();
    let fetched = tokio::task::spawn_blocking(move || app.engine.debuginfo.fetch(&of)).await;
    let opened = match fetched
        .map_err(io::Error::other)
        .and_then(|fetched| fetched)
    {
        Ok(fetched) => open(fetched).await,
        Err(error) => Err(error),
    };
    let body = match opened {
        Ok(body) => body,
        Err(error) => {
            let text = format!("the stored file cannot be read: {error}");
            return ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
        }
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, record.size_bytes.into());
    // What debuginfod itself says besides.
    headers.insert("x-debuginfod-size", record.size_bytes.into());
    if let Ok(name) = HeaderValue::from_str(&record.name) {
        headers.insert("x-debuginfod-file", name);
    }
    response
}

/// A body that reads the file as it is sent.
async fn open(fetched: Fetched) -> io::Result<Body> {
    const PIECE: usize = 256 << 10;
    let file = tokio::fs::File::open(fetched.path()).await?;
    let pieces = futures_util::stream::try_unfold((file, fetched), |(mut file, fetched)| async {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        let piece: Bytes = piece.freeze();
        Ok::<_, io::Error>((read > 0).then_some((piece, (file, fetched))))
    });
    Ok(Body::from_stream(pieces))
}
