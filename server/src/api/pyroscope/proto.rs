//! Messages of Pyroscope's `push.v1`, `querier.v1` and `types.v1`: field numbers and names are the
//! protocol's, and so is the JSON form (64-bit numbers as texts).

use prost::Message;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelPair {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<RawSeries>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(with = "base64")]
    pub raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    #[serde(rename = "ID")]
    pub id: String,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Empty {}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Window {
    #[prost(int64, tag = "1")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileType {
    #[prost(string, tag = "1")]
    #[serde(rename = "ID")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub sample_type: String,
    #[prost(string, tag = "5")]
    pub sample_unit: String,
    #[prost(string, tag = "6")]
    pub period_type: String,
    #[prost(string, tag = "7")]
    pub period_unit: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileTypes {
    #[prost(message, repeated, tag = "1")]
    pub profile_types: Vec<ProfileType>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelNamesRequest {
    #[prost(string, repeated, tag = "1")]
    pub matchers: Vec<String>,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelValuesRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub matchers: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub end: i64,
}

/// Of label names and of label values.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Names {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeriesRequest {
    #[prost(string, repeated, tag = "1")]
    pub matchers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub label_names: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub end: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Labels {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeriesResponse {
    #[prost(message, repeated, tag = "2")]
    pub labels_set: Vec<Labels>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MergeRequest {
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
    #[prost(int64, optional, tag = "5")]
    #[serde(with = "int64_optional")]
    pub max_nodes: Option<i64>,
    /// 2 is `PROFILE_FORMAT_TREE`.
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "format")]
    pub format: i32,
    #[prost(message, optional, tag = "7")]
    pub stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "8")]
    pub profile_id_selector: Vec<String>,
}

/// Which stacks count; see `select::refuse`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackTraceSelector {
    #[prost(message, repeated, tag = "1")]
    pub call_site: Vec<CallSite>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallSite {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MergeResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flamegraph: Option<FlameGraph>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(with = "base64", skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<u8>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlameGraph {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub max_self: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Level {
    #[prost(int64, repeated, tag = "1")]
    #[serde(with = "int64_list")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiffRequest {
    #[prost(message, optional, tag = "1")]
    pub left: Option<MergeRequest>,
    #[prost(message, optional, tag = "2")]
    pub right: Option<MergeRequest>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiffResponse {
    #[prost(message, optional, tag = "1")]
    pub flamegraph: Option<FlameGraphDiff>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlameGraphDiff {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "int64")]
    pub max_self: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "int64")]
    pub left_ticks: i64,
    #[prost(int64, tag = "6")]
    #[serde(with = "int64")]
    pub right_ticks: i64,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectSeriesRequest {
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
    #[prost(string, repeated, tag = "5")]
    pub group_by: Vec<String>,
    /// Seconds.
    #[prost(double, tag = "6")]
    pub step: f64,
    #[prost(message, optional, tag = "8")]
    pub stack_trace_selector: Option<StackTraceSelector>,
    #[prost(int64, optional, tag = "9")]
    #[serde(with = "int64_optional")]
    pub limit: Option<i64>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectSeriesResponse {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Series {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Point {
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds.
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileStats {
    #[prost(bool, tag = "1")]
    pub data_ingested: bool,
    #[prost(int64, tag = "2")]
    #[serde(with = "int64")]
    pub oldest_profile_time: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "int64")]
    pub newest_profile_time: i64,
}

pub mod int64 {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    pub enum Either {
        Number(i64),
        Text(String),
    }

    impl Either {
        pub fn number<E: serde::de::Error>(self) -> Result<i64, E> {
            match self {
                Either::Number(number) => Ok(number),
                Either::Text(text) => text.parse().map_err(E::custom),
            }
        }
    }

    pub fn serialize<S: Serializer>(value: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        Either::deserialize(from)?.number()
    }
}

pub mod int64_optional {
    use super::int64::Either;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        Option::<Either>::deserialize(from)?
            .map(Either::number)
            .transpose()
    }
}

mod int64_list {
    use super::int64::Either;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(values: &[i64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(ToString::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i64>, D::Error> {
        let values = Vec::<Either>::deserialize(from)?;
        values.into_iter().map(Either::number).collect()
    }
}

/// `ProfileFormat` by name or number.
pub fn format<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Name(String),
    }
    Ok(match Either::deserialize(from)? {
        Either::Number(number) => number,
        Either::Name(name) if name == "PROFILE_FORMAT_TREE" => 2,
        Either::Name(_) => 1,
    })
}

/// Bytes in the JSON form.
pub mod base64 {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD
            .decode(text)
            .map_err(serde::de::Error::custom)
    }
}
