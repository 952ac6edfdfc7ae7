//! Messages of `parca.profilestore.v1alpha1` and `parca.debuginfo.v1alpha1`: field numbers and names
//! are the protocol's.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::super::pyroscope::proto::base64;
pub use super::super::pyroscope::proto::{Empty, Labels as LabelSet, RawSample};

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteRawRequest {
    #[prost(message, repeated, tag = "2")]
    pub series: Vec<RawSeries>,
    /// Addresses are those of the files already.
    #[prost(bool, tag = "3")]
    pub normalized: bool,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSeries {
    #[prost(message, optional, tag = "1")]
    pub labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<RawSample>,
}

/// `WriteArrowRequest`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteArrow {
    /// A whole stream.
    #[prost(bytes = "vec", tag = "1")]
    #[serde(with = "base64")]
    pub ipc_buffer: Vec<u8>,
}

/// `WriteRequest` and `WriteResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    /// A whole stream.
    #[prost(bytes = "bytes", tag = "1")]
    pub record: bytes::Bytes,
}

/// `ShouldInitiateUploadRequest`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Should {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(string, tag = "2")]
    pub hash: String,
    #[prost(bool, tag = "3")]
    pub force: bool,
    /// [`DEBUGINFO`] or [`EXECUTABLE`].
    #[prost(int32, tag = "4")]
    pub r#type: i32,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShouldAnswer {
    #[prost(bool, tag = "1")]
    pub should_initiate_upload: bool,
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// `InitiateUploadRequest`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initiate {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(int64, tag = "2")]
    pub size: i64,
    #[prost(string, tag = "3")]
    pub hash: String,
    #[prost(bool, tag = "4")]
    pub force: bool,
    #[prost(int32, tag = "5")]
    pub r#type: i32,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InitiateAnswer {
    #[prost(message, optional, tag = "1")]
    pub upload_instructions: Option<Instructions>,
}

/// `UploadInstructions`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Instructions {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(string, tag = "2")]
    pub upload_id: String,
    #[prost(int32, tag = "3")]
    pub upload_strategy: i32,
    #[prost(string, tag = "4")]
    pub signed_url: String,
    #[prost(int32, tag = "5")]
    pub r#type: i32,
}

/// Upload by the method `Upload`.
pub const BY_GRPC: i32 = 1;
/// A file of debug information.
pub const DEBUGINFO: i32 = 0;
/// The executable itself.
pub const EXECUTABLE: i32 = 1;

/// `MarkUploadFinishedRequest` and `UploadInfo`.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Upload {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(string, tag = "2")]
    pub upload_id: String,
}

/// `UploadRequest`: first the upload, then bytes.
#[derive(Clone, PartialEq, Message)]
pub struct Piece {
    #[prost(oneof = "Data", tags = "1, 2")]
    pub data: Option<Data>,
}

/// What a piece holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Data {
    /// Which upload.
    #[prost(message, tag = "1")]
    Info(Upload),
    /// The next bytes.
    #[prost(bytes = "bytes", tag = "2")]
    Chunk(bytes::Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct UploadAnswer {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(uint64, tag = "2")]
    pub size: u64,
}
