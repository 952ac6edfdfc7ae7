//! From a request's body to a durable segment.

pub mod ids;
pub mod policy;
pub mod series;
pub mod writer;
