//! Connect's unary calls: `POST /package.Service/Method` as protobuf, JSON, or gRPC on the same path.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::super::intake;
use super::super::run::run;
use super::super::{ApiError, App};
use crate::query::engine::Cancel;

/// What a call by protobuf may carry.
pub trait Binary: Message + Default + 'static {}

impl<T: Message + Default + 'static> Binary for T {}

/// What a call may carry that comes as JSON too.
pub trait Wire: Binary + Serialize + DeserializeOwned {}

impl<T: Binary + Serialize + DeserializeOwned> Wire for T {}

#[derive(Clone, Copy)]
enum Form {
    Json,
    Protobuf,
}

/// Answers a call that brings profiles: its body is counted and limited as one of ingest.
pub async fn ingest<I: Wire, O: Wire, F>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(Arc<App>, I) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    if is_grpc(&request) {
        let work = move |app: Arc<App>, input: I| async move {
            let _budget = intake::reserve(&app, input.encoded_len() as u64).await?;
            work(app, input).await
        };
        return grpc(app, request, work).await;
    }
    answered(request, async move |form, parts, body| {
        let (bytes, _budget) = intake::body(&app, &parts.headers, body).await?;
        let bytes = pilotlight_profile::inflate(&bytes, &app.limits)
            .map_err(|error| intake::refused(&error))?;
        let output = work(app.clone(), read(form, &bytes)?).await?;
        Ok(written(form, &output))
    })
    .await
}

/// Bytes of a question.
const QUESTION: usize = 1 << 20;

/// Answers a call that asks.
pub async fn call<I: Wire, O: Wire, F>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(Arc<App>, I) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    if is_grpc(&request) {
        return grpc(app, request, work).await;
    }
    answered(request, async move |form, _, body| {
        let input = question(form, body).await?;
        Ok(written(form, &work(app, input).await?))
    })
    .await
}

/// Answers a call that asks, of messages that have no JSON form here.
pub async fn binary<I: Binary, O: Binary, F>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(Arc<App>, I) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    if is_grpc(&request) {
        return grpc(app, request, work).await;
    }
    answered(request, async move |form, _, body| {
        let Form::Protobuf = form else {
            let message = "this service speaks application/grpc and application/proto only";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        };
        let bytes = whole(body).await?;
        let input = I::decode(bytes);
        let input =
            input.map_err(|error| ApiError::bad(format!("the body of the call: {error}")))?;
        let output = work(app, input).await?.encode_to_vec();
        Ok(([(header::CONTENT_TYPE, "application/proto")], output).into_response())
    })
    .await
}

/// Answers a call with the bytes of a message that `work` made.
pub async fn bytes<I: Wire>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &Cancel, I) -> Result<Vec<u8>, ApiError> + Send + 'static,
) -> Response {
    answered(request, async move |form, _, body| {
        let Form::Protobuf = form else {
            let message = "this profile comes as application/proto only";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        };
        let input = question(form, body).await?;
        let bytes = run(&app, move |app, cancel| work(app, cancel, input)).await?;
        Ok(([(header::CONTENT_TYPE, "application/proto")], bytes).into_response())
    })
    .await
}

async fn question<I: Wire>(form: Form, body: Body) -> Result<I, ApiError> {
    read(form, &whole(body).await?)
}

async fn whole(body: Body) -> Result<bytes::Bytes, ApiError> {
    let bytes = axum::body::to_bytes(body, QUESTION).await;
    bytes.map_err(|error| ApiError::bad(format!("the body of the call: {error}")))
}

fn content_type(request: &Request) -> &str {
    let head = request.headers().get(header::CONTENT_TYPE);
    head.and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn is_grpc(request: &Request) -> bool {
    content_type(request).starts_with("application/grpc")
}

async fn answered(
    request: Request,
    answer: impl AsyncFnOnce(Form, Parts, Body) -> Result<Response, ApiError>,
) -> Response {
    let form = match content_type(&request)
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
    {
        "application/json" => Form::Json,
        "application/proto" | "application/x-protobuf" => Form::Protobuf,
        _ => {
            let message = "use application/json, application/proto or application/grpc";
            let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            return failed(&error);
        }
    };
    let (parts, body) = request.into_parts();
    answer(form, parts, body)
        .await
        .unwrap_or_else(|error| failed(&error))
}

fn read<I: Wire>(form: Form, bytes: &[u8]) -> Result<I, ApiError> {
    let result = match form {
        Form::Json if bytes.is_empty() => Ok(I::default()),
        Form::Json => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        Form::Protobuf => I::decode(bytes).map_err(|error| error.to_string()),
    };
    result.map_err(|error| ApiError::bad(format!("the body of the call: {error}")))
}

fn written<O: Wire>(form: Form, output: &O) -> Response {
    match form {
        Form::Json => axum::Json(output).into_response(),
        Form::Protobuf => {
            let head = [(header::CONTENT_TYPE, "application/proto")];
            (head, output.encode_to_vec()).into_response()
        }
    }
}

/// Connect's error body.
fn failed(error: &ApiError) -> Response {
    let code = match error.status.as_u16() {
        404 => "not_found",
        413 | 429 => "resource_exhausted",
        500 => "internal",
        501 => "unimplemented",
        503 | 507 => "unavailable",
        _ => "invalid_argument",
    };
    let body = axum::Json(json!({ "code": code, "message": error.message }));
    let mut response = (error.status, body).into_response();
    if let Some(seconds) = error.retry_after {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

async fn grpc<I: Binary, O: Binary, F>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(Arc<App>, I) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    let limit = usize::try_from(app.limits.wire_bytes).unwrap_or(usize::MAX);
    let codec = tonic_prost::ProstCodec::<O, I>::default();
    let mut server = tonic::server::Grpc::new(codec)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .apply_max_message_size_config(Some(limit), None);
    let service = Once(Some((app, work)), std::marker::PhantomData);
    server.unary(service, request).await.map(Body::new)
}

struct Once<W, I, O>(Option<(Arc<App>, W)>, std::marker::PhantomData<fn(I) -> O>);

impl<W, I: Binary, O: Binary, F> tonic::server::UnaryService<I> for Once<W, I, O>
where
    W: FnOnce(Arc<App>, I) -> F + Send + 'static,
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    type Response = O;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<O>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<I>) -> Self::Future {
        let taken = self.0.take();
        Box::pin(async move {
            let Some((app, work)) = taken else {
                return Err(tonic::Status::internal("called twice"));
            };
            let output = work(app, request.into_inner()).await;
            output
                .map(tonic::Response::new)
                .map_err(|error| intake::status(&error))
        })
    }
}
