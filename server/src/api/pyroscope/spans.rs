//! Samples of spans, and the heatmap.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::super::{ApiError, App};
use super::proto::{LabelPair, MergeRequest, format, int64, int64_optional};
use super::{querier, select};
use crate::query::heatmap::Of;

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

/// `SelectHeatmapRequest`; exemplars and groups are not made.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatmapRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID")]
    pub profile_type_id: String,
    #[prost(string, tag = "2")]
    pub label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub end: i64,
    /// Seconds.
    #[prost(double, tag = "5")]
    pub step: f64,
    #[prost(string, repeated, tag = "6")]
    pub group_by: Vec<String>,
    /// [`OF_SPANS`], or of profiles.
    #[prost(int32, tag = "7")]
    #[serde(deserialize_with = "query_type")]
    pub query_type: i32,
}

/// `HEATMAP_QUERY_TYPE_SPAN`.
const OF_SPANS: i32 = 2;

/// By name or number.
fn query_type<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Name(String),
    }
    Ok(match Either::deserialize(from)? {
        Either::Number(number) => number,
        Either::Name(name) if name == "HEATMAP_QUERY_TYPE_SPAN" => OF_SPANS,
        Either::Name(_) => 1,
    })
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatmapResponse {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<HeatmapSeries>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatmapSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub slots: Vec<Slot>,
}

/// A step of time.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slot {
    /// Milliseconds of its end, as Pyroscope counts.
    #[prost(int64, tag = "1")]
    #[serde(with = "int64")]
    pub timestamp: i64,
    /// Where each bucket of values begins.
    #[prost(double, repeated, tag = "2")]
    pub y_min: Vec<f64>,
    /// Profiles in it.
    #[prost(int32, repeated, tag = "3")]
    pub counts: Vec<i32>,
}

/// Profiles by time and size.
pub async fn heatmap(State(app): State<Arc<App>>, request: Request) -> Response {
    querier::answer(app, request, |app, cancel, input: HeatmapRequest| {
        if !input.group_by.is_empty() {
            return Err(ApiError::bad(
                "group_by is not supported in heatmaps here; ask for one value at a time",
            ));
        }
        if input.query_type == OF_SPANS {
            return Err(ApiError::bad(
                "heatmaps are of profiles here; ask for HEATMAP_QUERY_TYPE_INDIVIDUAL",
            ));
        }
        let selection = select::selection(&MergeRequest {
            profile_type_id: input.profile_type_id,
            label_selector: input.label_selector,
            start: input.start,
            end: input.end,
            ..MergeRequest::default()
        })?;
        let step_ns = (input.step * 1e9) as i64;
        if step_ns <= 0 {
            return Err(ApiError::bad("step must be more than 0 seconds"));
        }
        let (fields, _) = app
            .engine
            .heatmap(&selection, Of::Profiles, step_ns, cancel)?;
        let mut slots: BTreeMap<i64, Slot> = BTreeMap::new();
        for field in fields {
            let slot = slots.entry(field.time_ms).or_default();
            slot.timestamp = field.time_ms.saturating_add(step_ns / 1_000_000);
            slot.y_min.push(field.from as f64);
            slot.counts
                .push(i32::try_from(field.count).unwrap_or(i32::MAX));
        }
        let series = match slots.is_empty() {
            true => Vec::new(),
            false => vec![HeatmapSeries {
                labels: Vec::new(),
                slots: slots.into_values().collect(),
            }],
        };
        Ok(HeatmapResponse { series })
    })
    .await
}
