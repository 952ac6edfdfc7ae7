//! Profiles by time and size.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::super::{ApiError, App};
use super::proto::{LabelPair, MergeRequest, int64};
use super::{querier, select};
use crate::query::heatmap::{Largest, Of};

/// `SelectHeatmapRequest`; groups are not made, and there is one series, so that `limit` leaves out nothing.
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
    /// [`EACH_PROFILE`], [`EACH_SPAN`], or none.
    #[prost(int32, tag = "8")]
    #[serde(deserialize_with = "exemplar_type")]
    pub exemplar_type: i32,
}

/// `HEATMAP_QUERY_TYPE_SPAN`.
const OF_SPANS: i32 = 2;

/// `EXEMPLAR_TYPE_INDIVIDUAL`.
const EACH_PROFILE: i32 = 2;
/// `EXEMPLAR_TYPE_SPAN`.
const EACH_SPAN: i32 = 3;

/// By name or number; a name that is not known is `other`.
fn named<'de, D: serde::Deserializer<'de>>(
    from: D,
    known: &[(&str, i32)],
    other: i32,
) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Name(String),
    }
    Ok(match Either::deserialize(from)? {
        Either::Number(number) => number,
        Either::Name(name) => {
            let found = known.iter().find(|(of, _)| *of == name);
            found.map_or(other, |&(_, number)| number)
        }
    })
}

fn query_type<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    named(from, &[("HEATMAP_QUERY_TYPE_SPAN", OF_SPANS)], 1)
}

fn exemplar_type<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let known = [
        ("EXEMPLAR_TYPE_INDIVIDUAL", EACH_PROFILE),
        ("EXEMPLAR_TYPE_SPAN", EACH_SPAN),
    ];
    named(from, &known, 1)
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
    /// The largest profile of each bucket, where they are asked for.
    #[prost(message, repeated, tag = "4")]
    pub exemplars: Vec<Exemplar>,
}

/// A profile; profiles have no ids here, so that it is told by its time and labels.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exemplar {
    /// Milliseconds.
    #[prost(int64, tag = "1")]
    #[serde(with = "int64")]
    pub timestamp: i64,
    /// In the type's unit.
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub value: i64,
    /// Labels of its series.
    #[prost(message, repeated, tag = "5")]
    pub labels: Vec<LabelPair>,
}

/// Profiles by time and size.
pub async fn heatmap(State(app): State<Arc<App>>, request: Request) -> Response {
    querier::answer(app, request, |app, cancel, input: HeatmapRequest| {
        if !input.group_by.is_empty() {
            return Err(ApiError::bad(
                "group_by is not supported in heatmaps here; ask for one value at a time",
            ));
        }
        if input.query_type == OF_SPANS || input.exemplar_type == EACH_SPAN {
            return Err(ApiError::bad(
                "heatmaps are of profiles here; ask for HEATMAP_QUERY_TYPE_INDIVIDUAL, and for \
                 EXEMPLAR_TYPE_INDIVIDUAL or NONE",
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
        if input.exemplar_type == EACH_PROFILE {
            let largest = app.engine.largest_profiles(&selection, step_ns, cancel)?;
            for profile in largest {
                let slot = slots.entry(profile.step_ms).or_default();
                slot.exemplars.push(exemplar(profile));
            }
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

fn exemplar(profile: Largest) -> Exemplar {
    let pair = |(name, value)| LabelPair { name, value };
    Exemplar {
        timestamp: profile.time_ms,
        value: profile.value,
        labels: profile.labels.into_iter().map(pair).collect(),
    }
}
