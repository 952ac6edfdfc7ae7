//! Debug information: what is missing, what is stored, and files on their way in.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::params::Params;
use super::read::unit;
use super::run::run;
use super::{ApiError, App};
use crate::debuginfo::{
    Announced, Debuginfo, Held, Quality, Source, Started, UploadError, base_name,
};
use crate::query::engine::Selection;
use crate::query::unresolved::Unresolved;

/// Questions in one request.
const MAX_QUESTIONS: usize = 10_000;
/// Bytes of a body that is JSON.
const MAX_JSON: usize = 4 << 20;

/// Routes of this part.
pub fn router() -> Router<Arc<App>> {
    let bytes = post(upload).put(upload).layer(DefaultBodyLimit::disable());
    Router::new()
        .route("/api/v1/debuginfo", get(missing))
        .route("/api/v1/debuginfo/files", get(files))
        .route("/api/v1/debuginfo/wanted", post(wanted))
        .route("/api/v1/debuginfo/uploads", post(start))
        .route("/api/v1/debuginfo/uploads/{id}", bytes)
        .route("/api/v1/debuginfo/uploads/{id}/finish", post(finish))
}

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> Self {
        let status = match &error {
            UploadError::Bad(_) => StatusCode::BAD_REQUEST,
            UploadError::Unknown(_) => StatusCode::NOT_FOUND,
            UploadError::Offset { .. } => StatusCode::CONFLICT,
            UploadError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            UploadError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            UploadError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            UploadError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            UploadError::Io(cause) if crate::store::disk::is_full(cause) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            UploadError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let answer = Self::new(status, error.to_string());
        match error {
            UploadError::Busy(_) => answer.retry(10),
            _ => answer,
        }
    }
}

/// `GET /api/v1/debuginfo`: binaries of a selection whose addresses have no names.
async fn missing(State(app): State<Arc<App>>, params: Params) -> Result<Json<Value>, ApiError> {
    run(&app, move |app, cancel| {
        let selection = selection(app, &params)?;
        let (binaries, total, coverage) = match &selection {
            Some(selection) => app.engine.unresolved(selection, cancel)?,
            None => Default::default(),
        };
        let kind = selection.as_ref().map_or("", |of| &of.type_id);
        Ok(Json(json!({
            "type": kind,
            "unit": unit(kind),
            "total": total,
            "binaries": binaries.iter().map(|of| binary(of, &app.engine.debuginfo)).collect::<Vec<_>>(),
            "sources": sources(&app.engine.debuginfo),
            "partial": coverage.partial,
            "problems": coverage.problems,
        })))
    })
    .await
}

/// Without a type, CPU time is looked at, else the first type that there is.
fn selection(app: &App, params: &Params) -> Result<Option<Selection>, ApiError> {
    if params.get("type").is_some() {
        return params.selection(app).map(Some);
    }
    let (from_ns, until_ns) = params.window(app.env.now_ns())?;
    let selector = params.selector()?;
    let types = app.engine.types(&selector, from_ns, until_ns);
    let cpu = types.iter().find(|of| of.sample_type == "cpu");
    let chosen = cpu.or_else(|| types.first()).map(|of| of.id.clone());
    Ok(chosen.map(|type_id| Selection {
        type_id,
        selector,
        from_ns,
        until_ns,
        sample_labels: None,
    }))
}

fn binary(of: &Unresolved, store: &Debuginfo) -> Value {
    let asked = store.asked(&of.build_id).map(|asked| {
        json!({
            "outcome": asked.outcome.word(),
            "at_ns": asked.at_ns,
            "again_ns": asked.again_ns,
        })
    });
    json!({
        "binary": base_name(&of.file),
        "file": of.file,
        "build_id": of.build_id,
        "reason": of.reason.word(),
        "frames": of.frames,
        "value": of.value,
        "what_to_do": of.advice(),
        "asked": asked,
    })
}

/// Where files are looked for that nobody sent, and what came of it.
fn sources(store: &Debuginfo) -> Value {
    let (sources, asking) = store.sources_and_queue();
    let urls: Vec<String> = sources.debuginfod.iter().map(ToString::to_string).collect();
    json!({
        "waiting": asking.waiting(),
        "debuginfod": {
            "urls": urls, "outcomes": counted(&asking.counts().of(Source::Debuginfod)),
        },
        "folders": {
            "count": sources.folders.len(), "outcomes": counted(&asking.counts().of(Source::Folder)),
        },
    })
}

/// `GET /api/v1/debuginfo/files`.
async fn files(State(app): State<Arc<App>>) -> Json<Value> {
    let store = &app.engine.debuginfo;
    let (bytes, uploads, table_bytes, tables) = store.stats();
    let file = |of: &crate::debuginfo::Record| {
        json!({
            "name": of.name,
            "build_ids": of.ids(),
            "quality": of.quality,
            "has_code": of.has_code,
            "size_bytes": of.size_bytes,
            "sha256": of.sha256,
            "source": of.source,
            "stored_ns": of.stored_ns,
            "failed": of.failed,
            "shared": of.shared.as_ref().map(|shared| json!({
                "build_id": shared.build_id,
                "path": shared.path,
                "stored": store.of_build_id(&shared.build_id).is_some(),
            })),
        })
    };
    let files: Vec<Value> = store.all().iter().map(|of| file(of)).collect();
    Json(json!({
        "files": files, "bytes": bytes, "uploads": uploads,
        "in_memory": { "files": tables, "bytes": table_bytes },
        "read": counted(&store.counts().read()),
        "unread": counted(&store.counts().failed()),
    }))
}

fn counted(counts: &[(&str, u64)]) -> Value {
    let pairs = counts
        .iter()
        .map(|(key, n)| ((*key).to_owned(), (*n).into()));
    Value::Object(pairs.collect())
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8], example: &str) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad(format!("the JSON body: {error}; write it like {example}")))
}

async fn small_body(body: Body) -> Result<bytes::Bytes, ApiError> {
    axum::body::to_bytes(body, MAX_JSON).await.map_err(|error| {
        let text = format!("the body has more than {MAX_JSON} bytes, or ended early ({error})");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    })
}

#[derive(Deserialize)]
struct Questions {
    files: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    build_id: String,
    quality: Quality,
    #[serde(default)]
    has_code: bool,
}

/// `POST /api/v1/debuginfo/wanted`: which of these to send.
async fn wanted(State(app): State<Arc<App>>, body: Body) -> Result<Json<Value>, ApiError> {
    let example = r#"{"files":[{"build_id":"ab12…","quality":"dwarf"}]}"#;
    let asked: Questions = parse(&small_body(body).await?, example)?;
    if asked.files.len() > MAX_QUESTIONS {
        let text = format!("files: more than {MAX_QUESTIONS} at a time; ask in several requests");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let store = &app.engine.debuginfo;
    let answer = |file: &Question| {
        let wanted = store.wanted(&file.build_id, file.quality, file.has_code);
        json!({ "build_id": file.build_id, "wanted": wanted.yes(), "reason": wanted.text() })
    };
    let answers: Vec<Value> = asked.files.iter().map(answer).collect();
    Ok(Json(json!({ "files": answers })))
}

/// `POST /api/v1/debuginfo/uploads`: begins or goes on.
async fn start(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let example =
        r#"{"build_id":"ab12…","quality":"dwarf","size_bytes":123,"sha256":"…","name":"app"}"#;
    let announced: Announced = parse(&small_body(body).await?, example)?;
    if announced.sha256.is_empty() {
        return Err(ApiError::bad(
            "sha256 is missing: that of the whole file, hexadecimal",
        ));
    }
    let started = blocking(&app, |app| {
        app.engine.debuginfo.start_upload(announced, Source::Upload)
    });
    Ok(match started.await? {
        Started::Upload { id, offset } => {
            let body = json!({ "state": "uploading", "upload": id, "offset": offset });
            Json(body).into_response()
        }
        Started::NotNeeded(reason) => {
            Json(json!({ "state": "not_needed", "reason": reason })).into_response()
        }
    })
}

/// Runs what touches the disk.
pub async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, UploadError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = app.clone();
    let done = tokio::task::spawn_blocking(move || work(&app)).await;
    let broken = |error| {
        let text = format!("the file broke the server ({error}); please report it");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    Ok(done.map_err(broken)??)
}

/// `PUT` or `POST /api/v1/debuginfo/uploads/{id}?offset=N`: bytes from there on.
async fn upload(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    params: Params,
    body: Body,
) -> Result<Response, ApiError> {
    let offset = params.number("offset", 0, usize::MAX, 0)? as u64;
    let held = app.engine.debuginfo.hold(&id).await?;
    let written = write(&held, offset, body.into_data_stream()).await;
    let expected = match written {
        Ok(received) => return Ok(Json(json!({ "offset": received })).into_response()),
        Err(UploadError::Offset { expected, .. }) => expected,
        Err(error) => return Err(error.into()),
    };
    let text = format!("the next byte is that at offset {expected}, and these begin at {offset}");
    let body = json!({ "error": text, "offset": expected });
    Ok((StatusCode::CONFLICT, Json(body)).into_response())
}

/// Writes what comes; what has come stays, even where the rest does not.
pub async fn write<E: std::fmt::Display>(
    held: &Held,
    offset: u64,
    mut stream: impl futures_util::Stream<Item = Result<bytes::Bytes, E>> + Unpin,
) -> Result<u64, UploadError> {
    /// A sender that falls silent for so long is gone.
    const SILENCE: std::time::Duration = std::time::Duration::from_secs(30);
    let (mut file, mut room) = held.append(offset).await?;
    let mut failed = None;
    loop {
        let chunk = match tokio::time::timeout(SILENCE, stream.next()).await {
            Ok(None) => break,
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) => {
                failed = Some(UploadError::Bad(format!("the body ended early ({error})")));
                break;
            }
            Err(_) => {
                failed = Some(UploadError::Bad("nothing came for 30 s".to_owned()));
                break;
            }
        };
        if chunk.len() as u64 > room {
            failed = Some(UploadError::TooLarge(
                "more bytes came than were announced; the file is kept up to there".to_owned(),
            ));
            break;
        }
        room -= chunk.len() as u64;
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(held.received()?),
    }
}

/// `POST /api/v1/debuginfo/uploads/{id}/finish`.
async fn finish(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let held = app.engine.debuginfo.hold(&id).await?;
    let done = blocking(&app, move |app| app.engine.debuginfo.finish_upload(&held));
    let (record, counts) = done.await?;
    Ok(Json(json!({
        "state": if counts { "stored" } else { "not_needed" },
        "quality": record.quality,
        "build_ids": record.ids(),
    })))
}
