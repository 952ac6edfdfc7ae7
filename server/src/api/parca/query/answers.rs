//! What `Query` answers with: field numbers and names are the protocol's.

use prost::Message;

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
