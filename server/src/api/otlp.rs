//! OTLP profiles, over HTTP (protobuf or JSON) and over gRPC.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pilotlight_profile::{Report, inflate};
use prost::Message;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::intake::{self, Offer};
use super::{ApiError, App};
use crate::ingest::series::{self, SeriesError};
use crate::ingest::writer::Ticket;
use crate::otlp::proto::{ExportRequest, ExportResponse, PartialSuccess, Status};
use crate::otlp::{Converted, Rejected, convert, from_json};

/// `POST /v1development/profiles`.
pub async fn http(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let form = headers.get(header::CONTENT_TYPE);
    let form = form.and_then(|value| value.to_str().ok()).unwrap_or("");
    let is_json = form.starts_with("application/json");
    let result = if is_json || form.starts_with("application/x-protobuf") {
        accept(&app, &headers, body, is_json).await
    } else {
        let message = "OTLP is application/x-protobuf or application/json";
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
    };
    match result {
        Ok(response) if is_json => {
            let partial = response.partial_success.map_or(json!({}), |partial| {
                json!({ "partialSuccess": {
                    "rejectedProfiles": partial.rejected_profiles.to_string(),
                    "errorMessage": partial.error_message,
                }})
            });
            axum::Json(partial).into_response()
        }
        Ok(response) => protobuf(StatusCode::OK, &response),
        Err(error) => {
            intake::count_refusal(&app, &error);
            if is_json {
                return error.into_response();
            }
            let status = Status {
                code: intake::grpc_code(error.status) as i32,
                message: error.message,
            };
            let mut response = protobuf(error.status, &status);
            if let Some(seconds) = error.retry_after {
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
    }
}

fn protobuf(status: StatusCode, message: &impl Message) -> Response {
    let form = [(header::CONTENT_TYPE, "application/x-protobuf")];
    (status, form, message.encode_to_vec()).into_response()
}

async fn accept(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    is_json: bool,
) -> Result<ExportResponse, ApiError> {
    let (bytes, budget) = intake::body(app, headers, body).await?;
    let read = move |app: &App| {
        let raw = inflate(&bytes, &app.limits).map_err(|error| intake::refused(&error))?;
        if is_json {
            from_json(&raw).map_err(|error| ApiError::bad(format!("the JSON body: {error}")))
        } else {
            ExportRequest::decode(&raw[..])
                .map_err(|error| ApiError::bad(format!("the protobuf body: {error}")))
        }
    };
    let request = intake::decoding(app, read).await?;
    export(app, request, budget).await
}

/// Stores what can be taken, and says what cannot.
async fn export(
    app: &Arc<App>,
    request: ExportRequest,
    budget: OwnedSemaphorePermit,
) -> Result<ExportResponse, ApiError> {
    let work = move |app: &App| {
        let converted = convert(&request, &app.limits);
        let taken = converted.into_iter().map(|profile| take(app, profile));
        Ok(taken.collect::<Vec<_>>())
    };
    let mut rejected = Vec::new();
    let mut waiting = Vec::new();
    for taken in intake::decoding(app, work).await? {
        match taken {
            Ok((ticket, notes)) => waiting.push((ticket, notes)),
            Err(reason) => rejected.push(reason),
        }
    }
    for (ticket, notes) in &mut waiting {
        intake::durable(ticket).await?;
        intake::answer(&app.engine.metrics, ticket, notes);
    }
    drop(budget);
    let Some(first) = rejected.first() else {
        return Ok(ExportResponse::default());
    };
    let count = rejected.len();
    app.engine
        .metrics
        .reason("refused", "invalid", count as u64);
    Ok(ExportResponse {
        partial_success: Some(PartialSuccess {
            rejected_profiles: count as i64,
            error_message: format!("{count} profiles are not stored; the first because: {first}"),
        }),
    })
}

fn take(
    app: &App,
    converted: Result<Converted, Rejected>,
) -> Result<(Ticket, intake::Notes), String> {
    let converted = converted.map_err(|Rejected(reason)| reason)?;
    let limits = app.policy.labels();
    let series = series::checked(converted.labels, converted.name, limits);
    let series = series.map_err(|error| match error {
        SeriesError::Syntax(text) | SeriesError::Limit(text) => text,
    })?;
    let profile = converted.profile;
    let offer = Offer {
        series,
        from_ns: None,
        until_ns: None,
        // All zeros means "no id"; one id may come with several kinds of values.
        request_id: converted.id.iter().any(|&byte| byte != 0).then(|| {
            let kinds = profile.sample_types.iter();
            let kinds = kinds.flat_map(|of| profile.strings.get(of.ty).iter().copied());
            converted.id.iter().copied().chain(kinds).collect()
        }),
        received_ns: app.env.now_ns(),
    };
    for (reason, count) in converted.dropped {
        if count > 0 {
            app.engine.metrics.reason("dropped", reason, count);
        }
    }
    if let Some(ticket) = intake::known(app, &offer) {
        return Ok((ticket, intake::Notes::default()));
    }
    let content = profile.to_pprof();
    intake::admit_series(app, &offer)
        .and_then(|()| intake::store(app, &offer, profile, Report::default(), &content))
        .map_err(|error| error.message)
}

/// `…collector.profiles.v1development.ProfilesService/Export`.
pub async fn grpc(State(app): State<Arc<App>>, request: Request) -> Response {
    let limit = usize::try_from(app.limits.inflated_bytes).unwrap_or(usize::MAX);
    let codec = tonic_prost::ProstCodec::<ExportResponse, ExportRequest>::default();
    let mut server = tonic::server::Grpc::new(codec)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .apply_max_message_size_config(Some(limit), None);
    server.unary(Export(app), request).await.map(Body::new)
}

struct Export(Arc<App>);

type Answer = Result<tonic::Response<ExportResponse>, tonic::Status>;

impl tonic::server::UnaryService<ExportRequest> for Export {
    type Response = ExportResponse;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&mut self, request: tonic::Request<ExportRequest>) -> Self::Future {
        let app = self.0.clone();
        Box::pin(async move {
            let request = request.into_inner();
            let bytes = request.encoded_len() as u64;
            let result = async {
                let budget = intake::reserve(&app, bytes).await?;
                export(&app, request, budget).await
            };
            result.await.map(tonic::Response::new).map_err(|error| {
                intake::count_refusal(&app, &error);
                intake::status(&error)
            })
        })
    }
}
