//! Errors for people: what, where, what next.

use axum::Json;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::query::engine::QueryError;

/// An error answer.
#[derive(Debug)]
pub struct ApiError {
    /// Status.
    pub status: StatusCode,
    /// Text for people.
    pub message: String,
    /// Seconds after which the same request may work.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// An error of this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after: None,
        }
    }

    /// 400.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Adds `Retry-After`.
    pub fn retry(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.message }))).into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let status = match error {
            QueryError::Bad(_) => StatusCode::BAD_REQUEST,
            QueryError::NotFound(_) => StatusCode::NOT_FOUND,
            QueryError::TooLarge(_) => StatusCode::UNPROCESSABLE_ENTITY,
            // Nobody reads it: the client has gone.
            QueryError::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

/// 404 inside the API's paths.
pub async fn no_such_endpoint(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!(
            "{}: no such endpoint; there are push, types, labels, labels/{{name}}/values, tree, \
             tree.json, top, diff, diff.json, diff/top, depth, function, heatmap, exemplars, series, live, openapi.json, pprof, debuginfo, targets and status under /api/v1",
            uri.path()
        ),
    )
}

/// 405.
pub async fn wrong_method(uri: Uri) -> ApiError {
    let wanted = if uri.path() == "/api/v1/push" {
        "POST"
    } else {
        "GET"
    };
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{}: use {wanted}", uri.path()),
    )
}
