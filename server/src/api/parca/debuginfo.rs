//! `DebuginfoService`: Parca's way of sending what `/api/v1/debuginfo/uploads` takes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use tonic::Streaming;

use super::super::debuginfo::{blocking, write};
use super::super::pyroscope::connect;
use super::super::{ApiError, App, intake};
use super::proto::{
    BY_GRPC, DEBUGINFO, Data, EXECUTABLE, Empty, Initiate, InitiateAnswer, Instructions, Piece,
    Should, ShouldAnswer, Upload, UploadAnswer,
};
use crate::debuginfo::{Announced, Quality, Source, Started};

/// Bytes of one message of an upload.
const MAX_PIECE: usize = 32 << 20;

/// What Parca says of a file is less than what our protocol says: its kind only.
fn assumed(kind: i32) -> Result<(Quality, bool), ApiError> {
    match kind {
        DEBUGINFO => Ok((Quality::Dwarf, false)),
        EXECUTABLE => Ok((Quality::Dynsym, true)),
        _ => Err(ApiError::bad(
            "only debuginfo and executables are kept here, neither sources nor source maps",
        )),
    }
}

/// `ShouldInitiateUpload`.
pub async fn should(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::call(app, request, |app, asked: Should| async move {
        let Ok((quality, has_code)) = assumed(asked.r#type) else {
            return Ok(ShouldAnswer {
                should_initiate_upload: false,
                reason: "neither sources nor source maps are kept here".to_owned(),
            });
        };
        let store = &app.engine.debuginfo;
        let wanted = store.wanted(&asked.build_id, quality, has_code);
        // The same file again would tell no more than it did.
        let known = !asked.force && store.was_sent(&asked.build_id, &asked.hash);
        let reason = if wanted.yes() && known {
            "sent_before"
        } else {
            wanted.text()
        };
        Ok(ShouldAnswer {
            should_initiate_upload: wanted.yes() && !known,
            reason: reason.to_owned(),
        })
    })
    .await
}

/// `InitiateUpload`.
pub async fn initiate(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::call(app, request, |app, asked: Initiate| async move {
        let (quality, has_code) = assumed(asked.r#type)?;
        let announced = Announced {
            build_id: asked.build_id.clone(),
            quality,
            has_code,
            size_bytes: u64::try_from(asked.size).unwrap_or(0),
            sha256: String::new(),
            name: String::new(),
            hash: asked.hash,
        };
        let started = blocking(&app, move |app| {
            let store = &app.engine.debuginfo;
            store.start_upload(announced, Source::Parca)
        });
        match started.await? {
            Started::Upload { id, .. } => Ok(InitiateAnswer {
                upload_instructions: Some(Instructions {
                    build_id: asked.build_id,
                    upload_id: id,
                    upload_strategy: BY_GRPC,
                    signed_url: String::new(),
                    r#type: asked.r#type,
                }),
            }),
            Started::NotNeeded(reason) => {
                Err(ApiError::new(StatusCode::CONFLICT, reason.to_owned()))
            }
        }
    })
    .await
}

/// `MarkUploadFinished`.
pub async fn finished(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::call(app, request, |app, of: Upload| async move {
        let held = app.engine.debuginfo.hold(&of.upload_id).await?;
        let done = blocking(&app, move |app| app.engine.debuginfo.finish_upload(&held));
        done.await.map(|_| Empty {})
    })
    .await
}

/// `Upload`: a stream of pieces, gRPC only.
pub async fn upload(State(app): State<Arc<App>>, request: Request) -> Response {
    let codec = tonic_prost::ProstCodec::<UploadAnswer, Piece>::default();
    let mut server = tonic::server::Grpc::new(codec)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .apply_max_message_size_config(Some(MAX_PIECE), None);
    let answer = server.client_streaming(Pieces(app), request).await;
    answer.map(Body::new)
}

struct Pieces(Arc<App>);

type Answer = Result<tonic::Response<UploadAnswer>, tonic::Status>;

impl tonic::server::ClientStreamingService<Piece> for Pieces {
    type Response = UploadAnswer;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Piece>>) -> Self::Future {
        let app = self.0.clone();
        Box::pin(async move {
            let received = receive(&app, request.into_inner()).await;
            received
                .map(tonic::Response::new)
                .map_err(|error| intake::status(&error))
        })
    }
}

async fn receive(app: &App, mut pieces: Streaming<Piece>) -> Result<UploadAnswer, ApiError> {
    let first = pieces.next().await.and_then(Result::ok);
    let Some(Data::Info(of)) = first.and_then(|piece| piece.data) else {
        return Err(ApiError::bad(
            "the first message must be the info of an upload",
        ));
    };
    let held = app.engine.debuginfo.hold(&of.upload_id).await?;
    // This protocol knows no offsets: a stream begins with the first byte.
    held.restart()
        .await
        .map_err(crate::debuginfo::UploadError::from)?;
    let chunks = pieces.map(|piece| match piece.map(|piece| piece.data) {
        Ok(Some(Data::Chunk(bytes))) => Ok(bytes),
        Ok(_) => Ok(bytes::Bytes::new()),
        Err(status) => Err(status),
    });
    let size = write(&held, 0, chunks).await?;
    Ok(UploadAnswer {
        build_id: of.build_id,
        size,
    })
}
