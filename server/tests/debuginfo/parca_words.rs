//! Messages of Parca's query service, written down anew: those fields that the test needs.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
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
    #[prost(string, tag = "3")]
    pub sample_unit: String,
    #[prost(bool, tag = "6")]
    pub delta: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Values {
    #[prost(string, tag = "1")]
    pub label_name: String,
    #[prost(string, repeated, tag = "2")]
    pub matching: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Words {
    #[prost(string, repeated, tag = "1")]
    pub words: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Yes {
    #[prost(bool, tag = "1")]
    pub yes: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeOf {
    #[prost(string, tag = "1")]
    pub query: String,
    #[prost(message, optional, tag = "2")]
    pub start: Option<Time>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<Time>,
    #[prost(message, optional, tag = "5")]
    pub step: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(message, optional, tag = "1")]
    pub labels: Option<Labels>,
    #[prost(message, repeated, tag = "2")]
    pub points: Vec<Point>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Labels {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Point {
    #[prost(message, optional, tag = "1")]
    pub time: Option<Time>,
    #[prost(int64, tag = "2")]
    pub value: i64,
    #[prost(double, tag = "3")]
    pub a_second: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Asked {
    #[prost(message, optional, tag = "2")]
    pub diff: Option<Diff>,
    #[prost(message, optional, tag = "3")]
    pub merge: Option<Merge>,
    #[prost(message, optional, tag = "4")]
    pub single: Option<Single>,
    #[prost(int32, tag = "5")]
    pub report: i32,
    #[prost(bool, optional, tag = "11")]
    pub inverted: Option<bool>,
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
pub struct Diff {
    #[prost(message, optional, tag = "1")]
    pub a: Option<Side>,
    #[prost(message, optional, tag = "2")]
    pub b: Option<Side>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Side {
    #[prost(message, optional, tag = "2")]
    pub merge: Option<Merge>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    #[prost(message, optional, tag = "5")]
    pub graph: Option<Graph>,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub pprof: Option<Vec<u8>>,
    #[prost(message, optional, tag = "7")]
    pub top: Option<Top>,
    #[prost(int64, tag = "9")]
    pub total: i64,
    #[prost(message, optional, tag = "14")]
    pub metadata: Option<Words>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Top {
    #[prost(message, repeated, tag = "1")]
    pub list: Vec<TopNode>,
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

#[derive(Clone, PartialEq, Message)]
pub struct Meta {
    #[prost(message, optional, tag = "3")]
    pub function: Option<Function>,
    #[prost(uint32, tag = "5")]
    pub location: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint32, tag = "6")]
    pub string: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, optional, tag = "1")]
    pub root: Option<Root>,
    #[prost(int32, tag = "4")]
    pub height: i32,
    #[prost(string, repeated, tag = "5")]
    pub strings: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub locations: Vec<Location>,
    #[prost(message, repeated, tag = "8")]
    pub functions: Vec<Function>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(message, repeated, tag = "6")]
    pub lines: Vec<LineOf>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LineOf {
    #[prost(uint32, tag = "3")]
    pub function: u32,
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
    #[prost(message, repeated, tag = "4")]
    pub children: Vec<Node>,
}
