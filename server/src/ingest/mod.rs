//! From a request's body to a durable segment.

pub mod ids;
pub mod series;
pub mod writer;
