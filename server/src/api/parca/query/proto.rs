//! Messages of `parca.query.v1alpha1` and what they hold of `parca.metastore.v1alpha1`: field numbers
//! and names are the protocol's. Fields that are neither read nor written here are left out.

use prost::Message;

pub use super::super::proto::{Empty, LabelSet};

/// `google.protobuf.Timestamp` and `Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    /// Nanoseconds.
    pub fn ns(self) -> i64 {
        let seconds = self.seconds.saturating_mul(1_000_000_000);
        seconds.saturating_add(i64::from(self.nanos))
    }

    /// Of milliseconds.
    pub fn of_ms(ms: i64) -> Self {
        Self {
            seconds: ms.div_euclid(1000),
            nanos: (ms.rem_euclid(1000) * 1_000_000) as i32,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct TypesRequest {
    #[prost(message, optional, tag = "1")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "2")]
    pub end: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Types {
    #[prost(message, repeated, tag = "1")]
    pub types: Vec<Type>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Type {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub sample_type: String,
    #[prost(string, tag = "3")]
    pub sample_unit: String,
    #[prost(string, tag = "4")]
    pub period_type: String,
    #[prost(string, tag = "5")]
    pub period_unit: String,
    #[prost(bool, tag = "6")]
    pub delta: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct LabelsRequest {
    #[prost(string, repeated, tag = "1")]
    pub r#match: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<Time>,
    #[prost(string, optional, tag = "4")]
    pub profile_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValuesRequest {
    #[prost(string, tag = "1")]
    pub label_name: String,
    #[prost(string, repeated, tag = "2")]
    pub r#match: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "4")]
    pub end: Option<Time>,
    #[prost(string, optional, tag = "5")]
    pub profile_type: Option<String>,
}

/// `LabelsResponse` and `ValuesResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Words {
    #[prost(string, repeated, tag = "1")]
    pub words: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub warnings: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HasData {
    #[prost(bool, tag = "1")]
    pub has_data: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(string, tag = "1")]
    pub query: String,
    #[prost(message, optional, tag = "2")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<Time>,
    #[prost(uint32, tag = "4")]
    pub limit: u32,
    #[prost(message, optional, tag = "5")]
    pub step: Option<Time>,
    #[prost(string, repeated, tag = "6")]
    pub sum_by: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Series {
    #[prost(message, optional, tag = "1")]
    pub labelset: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Point>,
    #[prost(message, optional, tag = "3")]
    pub period_type: Option<ValueType>,
    #[prost(message, optional, tag = "4")]
    pub sample_type: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Point {
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Time>,
    #[prost(int64, tag = "2")]
    pub value: i64,
    #[prost(double, tag = "3")]
    pub value_per_second: f64,
    /// Nanoseconds of the step.
    #[prost(int64, tag = "4")]
    pub duration: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub unit: String,
}

/// `QueryRequest`. What is not understood is here as well, so that it can be refused.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(int32, tag = "1")]
    pub mode: i32,
    #[prost(oneof = "Options", tags = "2, 3, 4")]
    pub options: Option<Options>,
    #[prost(int32, tag = "5")]
    pub report_type: i32,
    #[prost(string, optional, tag = "6")]
    pub filter_query: Option<String>,
    /// Percent of the total.
    #[prost(float, optional, tag = "7")]
    pub node_trim_threshold: Option<f32>,
    #[prost(message, optional, tag = "8")]
    pub group_by: Option<GroupBy>,
    #[prost(bool, optional, tag = "11")]
    pub invert_call_stack: Option<bool>,
    #[prost(message, repeated, tag = "12")]
    pub filter: Vec<Empty>,
    #[prost(string, optional, tag = "13")]
    pub sandwich_by_function: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GroupBy {
    #[prost(string, repeated, tag = "1")]
    pub fields: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Options {
    #[prost(message, tag = "2")]
    Diff(DiffOf),
    #[prost(message, tag = "3")]
    Merge(Merge),
    #[prost(message, tag = "4")]
    Single(Single),
}

#[derive(Clone, PartialEq, Message)]
pub struct Merge {
    #[prost(string, tag = "1")]
    pub query: String,
    #[prost(message, optional, tag = "2")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Single {
    #[prost(message, optional, tag = "1")]
    pub time: Option<Time>,
    #[prost(string, tag = "2")]
    pub query: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct DiffOf {
    #[prost(message, optional, tag = "1")]
    pub a: Option<Side>,
    #[prost(message, optional, tag = "2")]
    pub b: Option<Side>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Side {
    #[prost(oneof = "SideOptions", tags = "2, 3")]
    pub options: Option<SideOptions>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum SideOptions {
    #[prost(message, tag = "2")]
    Merge(Merge),
    #[prost(message, tag = "3")]
    Single(Single),
}
