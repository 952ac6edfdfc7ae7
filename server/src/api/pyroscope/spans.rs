//! Samples of spans.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::super::App;
use super::proto::{MergeRequest, format, int64, int64_optional};
use super::{querier, select};

/// `SelectMergeSpanProfileRequest`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpanRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID")]
    pub profile_type_id: String,
    #[prost(string, tag = "2")]
    pub label_selector: String,
    #[prost(string, repeated, tag = "3")]
    pub span_selector: Vec<String>,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    pub end: i64,
    #[prost(int64, optional, tag = "6")]
    #[serde(with = "int64_optional")]
    pub max_nodes: Option<i64>,
    #[prost(int32, tag = "7")]
    #[serde(deserialize_with = "format")]
    pub format: i32,
}

/// The flame graph of some spans.
pub async fn merge(State(app): State<Arc<App>>, request: Request) -> Response {
    querier::answer(app, request, |app, cancel, input: SpanRequest| {
        let spans = select::spans(&input.span_selector)?;
        let asked = MergeRequest {
            profile_type_id: input.profile_type_id,
            label_selector: input.label_selector,
            start: input.start,
            end: input.end,
            max_nodes: input.max_nodes,
            format: input.format,
            ..MergeRequest::default()
        };
        let mut selection = select::selection(&asked)?;
        selection.sample_labels = spans;
        querier::merge_response(app, cancel, &selection, &asked)
    })
    .await
}
