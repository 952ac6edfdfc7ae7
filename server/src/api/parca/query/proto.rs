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

/// `QueryResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    #[prost(oneof = "Report", tags = "5, 6, 7, 11, 13, 14")]
    pub report: Option<Report>,
    #[prost(int64, tag = "9")]
    pub total: i64,
    #[prost(int64, tag = "10")]
    pub filtered: i64,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Report {
    #[prost(message, tag = "5")]
    Flamegraph(Flamegraph),
    /// Gzipped.
    #[prost(bytes = "vec", tag = "6")]
    Pprof(Vec<u8>),
    #[prost(message, tag = "7")]
    Top(Top),
    #[prost(message, tag = "11")]
    FlamegraphArrow(FlamegraphArrow),
    #[prost(message, tag = "13")]
    TableArrow(TableArrow),
    #[prost(message, tag = "14")]
    Metadata(Metadata),
}

#[derive(Clone, PartialEq, Message)]
pub struct FlamegraphArrow {
    /// A stream of one batch.
    #[prost(bytes = "vec", tag = "1")]
    pub record: Vec<u8>,
    #[prost(string, tag = "2")]
    pub unit: String,
    #[prost(int32, tag = "3")]
    pub height: i32,
    #[prost(int64, tag = "4")]
    pub trimmed: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableArrow {
    /// A stream of one batch.
    #[prost(bytes = "vec", tag = "1")]
    pub record: Vec<u8>,
    #[prost(string, tag = "2")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(string, repeated, tag = "1")]
    pub mapping_files: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub labels: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Top {
    #[prost(message, repeated, tag = "1")]
    pub list: Vec<TopNode>,
    #[prost(int32, tag = "2")]
    pub reported: i32,
    #[prost(string, tag = "4")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct TopNode {
    #[prost(message, optional, tag = "1")]
    pub meta: Option<Meta>,
    #[prost(int64, tag = "2")]
    pub cumulative: i64,
    #[prost(int64, tag = "3")]
    pub flat: i64,
    #[prost(int64, tag = "4")]
    pub diff: i64,
}

/// `TopNodeMeta` and `FlamegraphNodeMeta`.
#[derive(Clone, PartialEq, Message)]
pub struct Meta {
    #[prost(message, optional, tag = "3")]
    pub function: Option<Function>,
    /// From 1; 0 means none.
    #[prost(uint32, tag = "5")]
    pub location_index: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "5")]
    pub filename: String,
    #[prost(uint32, tag = "6")]
    pub name_string_index: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, repeated, tag = "6")]
    pub lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    /// From 1; 0 means none.
    #[prost(uint32, tag = "3")]
    pub function_index: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Flamegraph {
    #[prost(message, optional, tag = "1")]
    pub root: Option<Root>,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(int32, tag = "4")]
    pub height: i32,
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub locations: Vec<Location>,
    #[prost(message, repeated, tag = "8")]
    pub function: Vec<Function>,
    #[prost(int64, tag = "10")]
    pub trimmed: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Root {
    #[prost(int64, tag = "1")]
    pub cumulative: i64,
    #[prost(int64, tag = "2")]
    pub diff: i64,
    #[prost(message, repeated, tag = "3")]
    pub children: Vec<Node>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(message, optional, tag = "1")]
    pub meta: Option<Meta>,
    #[prost(int64, tag = "2")]
    pub cumulative: i64,
    #[prost(int64, tag = "3")]
    pub diff: i64,
    #[prost(message, repeated, tag = "4")]
    pub children: Vec<Node>,
}
